#!/bin/sh
# The job scripts under a real Slurm: the whole chain ends in parity, its array's parts are the table, a job whose forerunner
# failed is removed, and wrong use is refused.
set -eu
: "${top_srcdir:?}"
[ -n "${TABFT_TEST_CLUSTER-}" ] || exec "$top_srcdir/tests/slurm/with-cluster" "$0" "$@"
jobs=$top_srcdir/jobs
model=$top_srcdir/share/models/tiny-v2_6-classifier.safetensors
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
cd -- "$work"
failed=0
bad() {
    echo "pipeline: $*"
    failed=1
}
# drained: waits until no job is left in the queue.
drained() {
    seconds=0
    while [ -n "$(squeue -h)" ]; do
        seconds=$((seconds + 1))
        [ "$seconds" -le 900 ] || { squeue; bad 'jobs are left in the queue after 900 s'; return 1; }
        sleep 1
    done
}
awk 'NR == 1 || NR % 5 != 0' "$top_srcdir/share/examples/iris.csv" >train.csv
awk 'NR == 1 || NR % 5 == 0' "$top_srcdir/share/examples/iris.csv" >test.csv

# The chain.
"$jobs/pipeline.sh" --model "$model" --target target --out chain --parts 3 --ranks 3 --estimators 4 --seed 3 --parity \
    train.csv test.csv -- --epochs 1 --validation-split 0 >ids || bad "pipeline.sh: status $?"
[ "$(sed 's/ [0-9][0-9]*$//' ids | paste -s -d ' ')" = 'prep merge test-prep train eval train-1 parity' ] ||
    { bad 'not the seven lines "NAME JOBID"'; cat ids; }
drained || true
tail -n 5 chain/*.out
grep -q '"bit_identical": *true' chain/parity.out || bad 'the parity report does not say bit_identical'
cmp chain/run/model.safetensors chain/run-1/model.safetensors || bad 'one rank and three give other weights'
# Parts, merged, are the table as packed at once.
tabft-prep pack --target target -o once.tbf train.csv
tabft-prep cat once.tbf >once.csv
tabft-prep cat chain/train.tbf >merged.csv || true
cmp once.csv merged.csv || bad 'the merged parts are not the table'

# An array with a start and a step, and one lost part made again.
sbatch --wait --array=10-30:10 --output=step-%a.out "$jobs/prep-array.sbatch" stepped --target target train.csv >sbatch.out ||
    { bad 'an array with a step failed'; cat step-*.out; }
rm -f stepped/part-1-of-3.tbf
PARTS=3 sbatch --wait --array=1 --output=again.out "$jobs/prep-array.sbatch" stepped --target target train.csv >sbatch.out ||
    { bad 'a lost part cannot be made again'; cat again.out; }
sbatch --wait --output=merge.out "$jobs/merge.sbatch" stepped.tbf stepped 3 >sbatch.out || { bad 'no merge'; cat merge.out; }
tabft-prep cat stepped.tbf >stepped.csv || true
cmp once.csv stepped.csv || bad 'the parts of an array with a step are not the table'
if sbatch --wait --array=0,1,3 --output=gap.out "$jobs/prep-array.sbatch" gaps --target target train.csv >sbatch.out; then
    bad 'an array with gaps is not refused'
fi

grep -q '"accuracy"' chain/eval.out || bad 'eval.sbatch prints no scores'
[ "$(tabft-prep cat chain/predictions.tbf | wc -l)" = "$(wc -l <test.csv)" ] || bad 'not a prediction for each row'

# A table that cannot be packed: nothing is left waiting, nothing is trained.
printf 'a,target\n1,x\n2\n' >ragged.csv
"$jobs/pipeline.sh" --model "$model" --target target --out broken --parts 2 --ranks 2 ragged.csv test.csv >ids || bad "status $?"
drained || true
for file in broken/train.tbf broken/run; do [ ! -e "$file" ] || bad "a broken table was trained on: $file"; done

# Wrong use.
for wrong in '' '--ranks 0' '--parts x' '--no-such-option' '--model' '--model m --target y --out o only-one.csv'; do
    got=0
    # The words are arguments, meant to be split.
    # shellcheck disable=SC2086
    "$jobs/pipeline.sh" $wrong >out 2>err || got=$?
    if [ "$got" != 2 ] || [ "$(wc -l <err)" != 1 ] || [ -s out ]; then bad "pipeline.sh $wrong: status $got"; fi
done
"$jobs/pipeline.sh" --help | grep -q '^Usage: pipeline.sh' || bad '--help'
exit "$failed"
