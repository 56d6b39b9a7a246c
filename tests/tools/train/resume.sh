#!/bin/sh
# A run that is stopped or killed goes on with --resume and ends with the bits of one that was not; what cannot be gone on with is
# refused by name.
set -eu
# shellcheck source=tests/tools/train/helpers.sh
. "${top_srcdir:?}/tests/tools/train/helpers.sh"
# shellcheck source=tests/tools/train/metrics.sh
. "$top_srcdir/tests/tools/train/metrics.sh"
cd -- "$work"
pack y "$cases/11-uneven-estimator-shards/train.csv" train.tbf
pack y "$cases/11-uneven-estimator-shards/test.csv" test.tbf
# same RUN: the bits of the run that nothing happened to, and nothing left of how it came.
same() {
    cmp -- whole/model.safetensors "$1/model.safetensors" || fail "$1: other weights"
    course whole >want
    course "$1" >got
    diff want got || fail "$1: other losses"
    for key in steps epochs_run best_epoch base_metric best_metric ended_by; do
        [ "$(field "$1/run.json" $key)" = "$(field whole/run.json $key)" ] || fail "$1: other $key"
    done
    [ "$(find "$1" -type f | wc -l)" = 4 ] || fail "$1 holds $(ls -A "$1")"
}
# stopped SIGNAL LINES COMMAND...: the command is sent the signal when its metrics have so many lines, and ends as it should.
stopped() {
    signal=$1 lines=$2
    shift 2
    env --default-signal "$@" >out 2>said &
    child=$!
    waits_for run/metrics.jsonl.partial "$lines"
    kill "-$signal" "$child"
    status=0
    wait "$child" || status=$?
    case $signal in
    KILL) [ "$status" = 137 ] || fail "killed: status $status" ;;
    *)
        [ "$status" = 75 ] || { cat said; fail "stopped: status $status"; }
        [ "$(grep -c "stopped on request (SIG$signal) after step" said)" = 1 ] || { cat said; fail 'stopped: says nothing of it'; }
        [ "$(find run -name manifest.tbf | wc -l)" -ge 1 ] || fail 'stopped without a checkpoint'
        [ ! -e run/run.json ] || fail 'stopped, and complete?'
        ;;
    esac
}

# Warm-up, cosine, early stopping, 3 chunks a step of 5, so that epochs end in smaller steps; 60 steps.
set -- tabft-train --model "$model" --data train.tbf --epochs 30 --estimators 2 --chunk-rows 57 --chunks-per-step 3 --lr 1e-3 --seed 17 \
    --patience 40 --threads 1
works "$@" --out whole
works "$@" --out every --checkpoint-every 1
same every

# By request and by force, the same and other numbers of threads, the same and other ways to compute; each time further.
stopped USR1 3 "$@" --out run
stopped TERM 12 "$@" --out run --resume --threads 2
stopped KILL 30 "$@" --out run --resume --checkpoint-every 5
stopped KILL 36 "$@" --out run --resume --checkpoint-every 1steps --recompute block
stopped USR1 60 "$@" --out run --resume --checkpoint-every 0
[ "$(find run -name manifest.tbf | wc -l)" = 2 ] || fail "$(find run -name manifest.tbf | wc -l) checkpoints instead of 2"
cp -r run kept
works "$@" --out run --resume
says 'resumes after step [3-5][0-9] of 60, in epoch [1-3][0-9], from state-0000000000[3-5][0-9]-'
same run
# Another time on the complete run: nothing is done.
before=$(sha256sum run/*)
works "$@" --out run --resume
says 'run: the run is complete already'
[ "$before" = "$(sha256sum run/*)" ] || fail 'a complete run was changed'
refuses 2 '--lr: the run to resume has 0.001, now it is 0.002' "$@" --out run --resume --lr 2e-3
# Begun where nothing is, and where nothing had been saved.
works "$@" --out new --resume --checkpoint-every 0
same new
rm -rf run
stopped KILL 3 "$@" --out run --checkpoint-every 0
works "$@" --out run --resume
same run
# Stopped before its first step: SIGUSR1 comes while it loads or validates.
rm -rf run
env --default-signal "$@" --out run >out 2>said &
child=$!
tries=0
until [ -e run/.lock-1 ]; do
    kill -0 "$child" || fail 'the run ends before it is seen'
    tries=$((tries + 1))
    [ "$tries" -lt 100000 ] || fail 'the run does not start'
done
kill -USR1 "$child"
status=0
wait "$child" || status=$?
[ "$status" = 75 ] || { cat said; fail "stopped early: status $status"; }
works "$@" --out run --resume
same run

# Predictions.
for run in whole run; do
    works tabft-eval predict --model $run/model.safetensors --train train.tbf --test test.tbf --estimators 2 --seed 17 -o $run.tbf
    tabft-prep cat $run.tbf >$run.csv
done
cmp whole.csv run.csv || fail 'other predictions'

# What would be another run, by name (R19).
cp train.tbf moved.tbf
tabft-prep pack --quiet --schema train.tbf --target y --classes -o other.tbf "$cases/11-uneven-estimator-shards/test.csv"
# another TEXT OPTION...
another() {
    text=$1
    shift
    rm -rf run
    cp -r kept run
    refuses 2 "$text" "$@" --out run --resume
    [ "$(cd kept && find . -type f -exec sha256sum {} + | sort)" = "$(cd run && find . -type f -exec sha256sum {} + | sort)" ] ||
        fail "refused, and changed: $text"
}
another '--lr: the run to resume has 0.001, now it is 0.002; give the same' "$@" --lr 2e-3
another '--seed: the run to resume has 17, now it is 18' "$@" --seed 18
another '--estimators: .* has 2, now it is 3' "$@" --estimators 3
another '--chunk-rows: .* has 57, now it is 58' "$@" --chunk-rows 58
another '--chunks-per-step: .* has 3, now it is 1' "$@" --chunks-per-step 1
another '--patience: ' "$@" --patience 41
another '--validation-split: ' "$@" --validation-split 0.2
another '--schedule: .* has "cosine", now it is "constant"' "$@" --schedule constant
another '--epochs: .* has 30, now it is 40' "$@" --epochs 40
another 'another training table (--data, digest): then ' "$@" --data other.tbf
another 'another validation table (--valid, digest): then none, now ' "$@" --valid other.tbf
another 'another instruction set: then .*, now baseline; set TABFT_ISA' env TABFT_ISA=baseline "$@"
another 'another base model (--model, SHA-256): then ' "$@" --model "$top_srcdir/share/models/tiny-v2_6-classifier.safetensors"
refuses 2 '--resume and --force: ' "$@" --out run --resume --force
refuses 2 'run: is used already .*use --resume to go on or --force' "$@" --out run
refuses 2 '--checkpoint-every: "5h" is neither' "$@" --out run --resume --checkpoint-every 5h
mkdir others
: >others/thesis.tex
refuses 2 'others: holds thesis.tex and nothing of a run' "$@" --out others --resume
# Not another: a table and a model that were moved.
cp "$model" moved.safetensors
works "$@" --out run --resume --data moved.tbf --model moved.safetensors
same run
# The newest is damaged: the one before, and a warning. Both: refused, and untouched.
newest=$(cd kept && echo state-* | tr ' ' '\n' | sort | tail -n 1)
older=$(cd kept && echo state-* | tr ' ' '\n' | sort | head -n 1)
for damage in cut flipped slice; do
    rm -rf run
    cp -r kept run
    case $damage in
    cut) truncate -s -1 "run/$newest/manifest.tbf" ;;
    flipped) printf 'x' | dd of="run/$newest/slice-0000-of-0001.tbf" bs=1 seek=50000 conv=notrunc status=none ;;
    slice) rm "run/$newest/slice-0000-of-0001.tbf" ;;
    esac
    works "$@" --out run --resume
    says "a checkpoint is damaged and left out: .*$newest/"
    says "resumes after step .* from $older"
    same run
done
rm -rf run
cp -r kept run
for folder in "$newest" "$older"; do truncate -s -1 "run/$folder/manifest.tbf"; done
refuses 3 "run: none of its 2 checkpoints can be read; the newest: .*$newest/manifest.tbf: .*; --force starts anew" "$@" --out run --resume
[ "$(find run -name manifest.tbf | wc -l)" = 2 ] || fail 'refused, and removed'
# --force forgets the checkpoints.
rm -rf run
cp -r kept run
works "$@" --out run --force --seed 1 --epochs 1
[ "$(find run -type f | wc -l)" = 4 ] || fail "after --force: $(ls -A run)"
rm -rf run
cp -r kept run
rm run/metrics.jsonl.partial
stopped KILL 2 "$@" --out run --force --checkpoint-every 0
[ -z "$(find run -name 'state-*')" ] || fail 'the checkpoints of the older run stay after --force'

# More epochs, where the rates do not hang on them.
set -- tabft-train --model "$model" --data train.tbf --estimators 2 --chunk-rows 57 --chunks-per-step 3 --lr 1e-3 --seed 17 --threads 1 \
    --schedule constant --validation-frequency 8
rm -rf run whole
works "$@" --epochs 24 --out whole
stopped USR1 8 "$@" --epochs 6 --out run --checkpoint-every 1
refuses 2 '--epochs: [4-6] are done or begun already' "$@" --epochs 3 --out run --resume
works "$@" --epochs 24 --out run --resume
same run
