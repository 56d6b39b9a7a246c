#!/bin/sh
# A run's folder with run.json in it is a whole run, whatever happened: tabft-train is killed at, and given errors by, each of
# the calls that publish its files, in a new folder and over an older run.
set -eu
# shellcheck source=tests/faults/writers.sh
. "${top_srcdir:?}/tests/faults/writers.sh"
need_strace
network=$top_srcdir/tests/data/reference/v2_6_cls.model.safetensors

# train SEED [COMMAND...]: a run into ./run, as arguments of COMMAND, in $status.
train() {
    seed=$1
    shift
    status_of "$@" tabft-train --model "$network" --data train.tbf --out run --epochs 1 --estimators 1 --threads 1 --lr 1e-3 \
        --validation-split 0 --seed "$seed" --force
}
# check WHAT: a run.json stands for one whole run.
check() {
    [ -e run/run.json ] || return 0
    { (cd run && sha256sum -c --status model.safetensors.sha256) && grep -q "$(cut -d ' ' -f 1 run/model.safetensors.sha256)" run/run.json &&
        [ "$(wc -l <run/metrics.jsonl)" = 1 ]; } || fail "$1: run.json without its run"
    # The metrics are those of the model that lies there.
    seed=$(sed -n 's/^  "seed": \([0-9]*\),/\1/p' run/run.json)
    grep -o '"loss":[^,]*' run/metrics.jsonl | cmp -s - "loss.$seed" || fail "$1: the metrics of another run"
}

for seed in 1 2; do
    rm -rf run
    train $seed strace -f -qq -o trace -e trace=fsync,renameat2,renameat,rename,unlink,unlinkat,mkdir,write
    [ "$status" = 0 ] || fail "training ends with $status"
    grep -o '"loss":[^,]*' run/metrics.jsonl >"loss.$seed"
done
runs=0
for over in nothing run; do
    [ "$over" = run ] || rm -rf run
    [ "$over" = nothing ] || train 1 env
    rm -rf before
    [ "$over" = nothing ] || cp -r run before
    train 2 strace -f -qq -o trace -e trace=fsync,renameat2,renameat,unlink,mkdir
    sed -n 's/^[0-9 ]*\([a-z0-9]*\)(.*/\1/p' trace | sort | uniq -c >calls
    while read -r count call; do
        n=1
        while [ "$n" -le "$count" ]; do
            for fault in signal=SIGKILL error=EIO; do
                rm -rf run
                [ "$over" = nothing ] || cp -r before run
                train 2 strace -f -qq -o trace -e trace="$call" -e "inject=$call:$fault:when=$n"
                what="over $over, $call $n $fault"
                [ "$status" != 0 ] || [ "$call" = unlink ] || fail "$what: ends well"
                [ "$fault" = signal=SIGKILL ] || [ "$status" = 0 ] || [ "$status" = 4 ] || fail "$what: status $status"
                check "$what"
                runs=$((runs + 1))
            done
            n=$((n + 1))
        done
        train 2 env
        [ "$status" = 0 ] || fail "after $call over $over: the next run ends with $status"
        check "after $call over $over"
    done <calls
done
[ "$runs" -ge 40 ] || fail "only $runs runs"
# No space for the metrics or the weights.
for n in 1 2 3; do
    rm -rf run
    train 2 strace -f -qq -o trace -P "$PWD/run" -e trace=write,pwrite64 -e "inject=write,pwrite64:error=ENOSPC:when=$n"
    [ "$status" = 0 ] || { [ "$status" = 4 ] && grep -q 'No space left' said; } || fail "no space at write $n: status $status"
    check "no space at write $n"
done
printf '%s runs\n' "$runs"
