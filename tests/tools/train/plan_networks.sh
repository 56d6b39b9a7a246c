#!/bin/sh
# For every architecture and task: a run takes what --plan says, with and without recomputation, and both ways give the same
# weights.
set -eu
# shellcheck source=tests/tools/memory.sh
. "${top_srcdir:?}/tests/tools/memory.sh"
. "$top_srcdir/tests/tools/train/helpers.sh"
cd -- "$work"
reference=$top_srcdir/tests/data/reference
head -n 901 "$top_srcdir/share/examples/parity_train.csv" >rows.csv
pack y rows.csv cls.tbf
target=$(head -n 1 rows.csv | cut -d , -f 1)
tabft-prep pack --quiet --target "$target" --task regression -o reg.tbf rows.csv || fail 'cannot pack rows.csv'
# measure NAME MODEL TASK RECOMPUTE: plans, trains one step, compares.
measure() {
    run=$1_$3_$4
    set -- tabft-train --model "$2" --data "$3.tbf" --epochs 1 --estimators 1 --threads 1 --lr 1e-3 --chunk-rows 900 \
        --validation-split 0 --recompute "$4" --checkpoint-every 1
    works "$@" --plan >"$run.plan"
    works "$@" --out "$run"
    plan=$(awk '/^total/ { print $2 }' "$run.plan") peak=$(field "$run/run.json" peak_bytes)
    printf '%s: planned %s, took %s\n' "$run" "$plan" "$peak"
    bounds "$plan" "$peak" || { cat -- "$run.plan"; fail "$run: planned $plan, took $peak"; }
}
for name in v2 v2_5 v2_5_mlp v2_6 v3 v3_5; do
    for task in cls reg; do
        file=$reference/${name}_$task.model.safetensors
        [ -e "$file" ] || file=$reference/$name.model.safetensors # both tasks
        measure "$name" "$file" "$task" none
        measure "$name" "$file" "$task" block
        cmp "${name}_${task}_none/model.safetensors" "${name}_${task}_block/model.safetensors" ||
            fail "${name}_$task: recomputation gives other weights"
        ! cmp -s "$file" "${name}_${task}_none/model.safetensors" || fail "${name}_$task: nothing was trained"
        a=$(awk '/^total/ { print $2 }' "${name}_${task}_none.plan") b=$(awk '/^total/ { print $2 }' "${name}_${task}_block.plan")
        [ "$b" -lt "$a" ] || fail "${name}_$task: recomputation takes $b, without it $a"
    done
done
