#!/bin/sh
# A prediction as a job array under a real Slurm: the bytes of one process, a lost part named by its task and made again.
set -eu
: "${top_srcdir:?}"
[ -n "${TABFT_TEST_CLUSTER-}" ] || exec "$top_srcdir/tests/slurm/with-cluster" "$0" "$@"
jobs=$top_srcdir/jobs
tiny=$top_srcdir/share/models/tiny-v2_6-classifier.safetensors
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
cd -- "$work"
failed=0
bad() {
    echo "$*"
    failed=1
}
awk 'NR == 1 || NR % 3 != 0' "$top_srcdir/share/examples/iris.csv" >train.csv
awk 'NR == 1 || NR % 3 == 0' "$top_srcdir/share/examples/iris.csv" >test.csv
for part in train test; do
    tabft-prep pack --quiet --target target --task classification -o "$part.tbf" "$part.csv"
done
set -- --model "$tiny" --train train.tbf --test test.tbf --estimators 2
tabft-eval predict "$@" -o whole.tbf

sbatch --wait --array=10-30:10 --output=part-%a.out "$jobs/predict-array.sbatch" parts "$@" >sbatch.out ||
    { bad 'the array failed'; cat part-*.out; }
rm -f parts/task-20.tbf
if sbatch --wait --output=lost.out "$jobs/predict-merge.sbatch" lost.tbf parts >sbatch.out; then bad 'a lost part is not missed'; fi
grep -q 'part 1 of 3 (task 20 of the job array) is missing; .*--part 1/3' lost.out || bad "the lost part: $(cat lost.out)"
[ ! -e lost.tbf ] || bad 'a merge without all parts leaves a file'
PART=1/3 sbatch --wait --array=20 --output=again.out "$jobs/predict-array.sbatch" parts "$@" >sbatch.out ||
    { bad 'a lost part cannot be made again'; cat again.out; }
# The part that was made alone does not know of the array.
sbatch --wait --output=merge.out "$jobs/predict-merge.sbatch" merged.tbf parts >sbatch.out || { bad 'no merge'; cat merge.out; }
cmp whole.tbf merged.tbf || bad 'the parts give another file than one process'
grep -q '"accuracy"' merge.out || bad "no scores: $(cat merge.out)"
if sbatch --wait --array=0,1,3 --output=gap.out "$jobs/predict-array.sbatch" gaps "$@" >sbatch.out; then
    bad 'an array with gaps is not refused'
fi
exit "$failed"
