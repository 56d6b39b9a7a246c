#!/bin/sh
# Memory: what --plan says is what a run takes, whatever the number of estimators; what does not fit does not start, and what is
# said to fit does; rows x rows is never stored.
set -eu
# shellcheck source=tests/tools/memory.sh
. "${top_srcdir:?}/tests/tools/memory.sh"
. "$top_srcdir/tests/tools/train/helpers.sh"
cd -- "$work"
tiny=$top_srcdir/share/models/tiny-v2_6-classifier.safetensors
head -n 501 "$top_srcdir/share/examples/parity_train.csv" >rows.csv
pack y rows.csv rows.tbf
planned() { awk '/^total/ { print $2 }' "$1"; }
# measure RUN OPTION...: trains and compares the plan of the schema with the peak, which is left in $peak.
measure() {
    run=$1
    shift
    set -- tabft-train --model "$tiny" --data rows.tbf --epochs 1 --threads 1 --lr 1e-3 "$@"
    works "$@" --plan >"$run.plan"
    works "$@" --out "$run"
    peak=$(field "$run/run.json" peak_bytes)
    plan=$(planned "$run.plan")
    bounds "$plan" "$peak" || { cat -- "$run.plan"; fail "$run: planned $plan, took $peak"; }
    awk -v run="$run" -v plan="$plan" -v peak="$peak" 'BEGIN { printf "%s: planned %d, took %d (%.1f %% of it)\n", run, plan, peak, 100 * peak / plan }'
}
measure one --estimators 1 --validation-split 0 --recompute none
one=$peak
measure four --estimators 4 --validation-split 0 --recompute none
awk -v a="$peak" -v b="$one" 'BEGIN { exit !(a <= 1.05 * b) }' || fail "4 estimators take $peak, one takes $one"
measure block --estimators 1 --validation-split 0 --recompute block
[ "$peak" -lt $((one / 2)) ] || fail "recomputation takes $peak, without it $one"
measure validation --estimators 2 --validation-split 0.6 --chunk-rows 60 --patience 1 --recompute block
grep -q 'the peak is in a validation' validation.plan || fail 'the peak should be in the validation'
measure checkpoints --estimators 1 --validation-split 0 --recompute block --checkpoint-every 1
rm -r checkpoints
measure many-threads --estimators 1 --validation-split 0 --recompute block --checkpoint-every 1 --threads 4

from_disk tabft-train
outer=$PATH PATH=$PWD/from-disk:$PATH
measure from-disk-1 --estimators 1 --validation-split 0 --recompute block --checkpoint-every 1
PATH=$outer

# Threads and the plan: nothing is loaded and no folder is made; --plan ends with 4 where it does not fit, and names what would.
set -- tabft-train --model "$tiny" --data rows.tbf --estimators 4 --validation-split 0 --threads 2
works "$@" --plan >fits
status=0
"$@" --plan --memory 40M >fits-not 2>said || status=$?
[ "$status" = 4 ] || { cat fits-not; fail "a plan that does not fit ends with $status"; }
[ ! -s said ] || fail "--plan says on stderr: $(cat said)"
rows=$(sed -n 's/^would fit: .*--recompute block --chunk-rows \([0-9]*\).*/\1/p' fits-not)
[ -n "$rows" ] || { cat fits-not; fail 'names no --chunk-rows'; }
works "$@" --plan --memory 40M --recompute block --chunk-rows "$rows" >fits
"$@" --plan --memory 40M --recompute block --chunk-rows $((rows * 2)) >fits-not && fail 'twice as many rows fit as well'
refuses 4 'a rank needs .* bytes and may take 41943040 .* would fit: ' "$@" --memory 40M --out run
[ ! -e run ] || fail 'a refused run left its folder'
# auto recomputes where it must, and both give the same bits.
set -- tabft-train --model "$tiny" --data rows.tbf --estimators 1 --epochs 1 --validation-split 0 --threads 1 --lr 1e-3
works "$@" --memory 120M --out auto
[ "$(field auto/run.json recompute)" = auto ] || fail 'auto does not recompute where it must'
works "$@" --plan --memory 120M >auto.plan
works "$@" --plan --recompute block >block.plan
total() { sed -n 's/^total *//p' "$1"; }
[ "$(total auto.plan)" -le 125829120 ] || fail 'auto takes more than it may'
[ "$(total auto.plan)" -gt "$(total block.plan)" ] || fail 'auto keeps no more than block where there is memory'
cmp auto/model.safetensors one/model.safetensors || fail 'recomputation changes the weights'
# More ranks hold less of AdamW's state; an engine is planned for.
works "$@" --plan --ranks 4 >four.plan
grep -q 'fullest of 4 ranks' four.plan || fail 'plans for other ranks'

# 6,000 rows: a matrix of rows x rows would take 144 MB.
awk 'BEGIN { print "a,y"; for (i = 0; i < 6000; i++) print (i * 7919 % 6007) / 100 "," (i * 31 % 97 < 48) }' >long.csv
pack y long.csv long.tbf
works tabft-train --model "$model" --data long.tbf --epochs 1 --estimators 1 --validation-split 0 --threads 1 --out long
peak=$(field long/run.json peak_bytes)
[ "$peak" -lt 144000000 ] || fail "6000 rows take $peak: as much as rows x rows"
