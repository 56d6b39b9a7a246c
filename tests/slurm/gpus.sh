#!/bin/sh
# GPUs as Slurm gives them to ranks, on the emulation of tests/cuda, under a real Slurm of four nodes with four GPUs each: by node
# beside another job's, and by task; a job that goes on with other GPUs has the bits of one GPU that was never stopped. Ranks
# without a GPU of their own are refused.
set -eu
# shellcheck source=tests/slurm/launchers.sh
. "${top_srcdir:?}/tests/slurm/launchers.sh"
[ -e "${top_builddir:?}/tests/cuda/plugins/tabft-device-cuda.so" ] || { echo 'no C++ compiler, so no emulation'; exit 77; }
in_cluster "$@"
# shellcheck source=tests/tools/train/helpers.sh
. "$top_srcdir/tests/tools/train/helpers.sh"
# shellcheck source=tests/tools/train/metrics.sh
. "$top_srcdir/tests/tools/train/metrics.sh"
cd -- "$work"
TABFT_PLUGIN_PATH=$(cd -- "$top_builddir/tests/cuda/plugins" && pwd) CUDA_EMULATION_DEVICES=4
export TABFT_PLUGIN_PATH CUDA_EMULATION_DEVICES
unset CUDA_VISIBLE_DEVICES
job=$top_srcdir/jobs/train.sbatch
head -n 17 "$cases/11-uneven-estimator-shards/train.csv" >train.csv
pack y train.csv train.tbf
set -- --model "$model" --data train.tbf --epochs 3 --estimators 4 --lr 1e-3 --seed 5 --device cuda --precision float32 --validation-split 0
works tabft-train "$@" --out whole --threads 1

# submit OPTION...: train.sbatch with these options of sbatch and the test's arguments, into the folder "run", to its end; $status.
submit() {
    status=0
    # shellcheck disable=SC2086 # words
    sbatch --wait --quiet --cpus-per-task=1 --output=job.out "$@" "$job" $arguments --out run || status=$?
}
arguments=$*

# By node, where another job has one of the first node's GPUs: that is left to it.
sbatch --quiet --nodelist=n1 --ntasks=1 --gpus=1 --output=/dev/null --wrap 'sleep 600'
busy() { [ -n "$(squeue -h -t RUNNING -w n1 -o %i)" ]; }
until_true 60 'the other job does not start' busy
submit --nodelist=n1,n2 --nodes=2 --ntasks=4 --ntasks-per-node=2 --gpus-per-node=2
scancel --user="$(id -un)"
[ "$status" = 0 ] || { cat job.out; fail "by node: status $status"; }
grep -q 'device: .* GPU-[-0]*1$' job.out || { cat job.out; fail "by node: rank 0 has the other job's GPU"; }
same_run whole run 'by node'

# More ranks than the job has GPUs of a node.
for way in '--nodes=1 --ntasks=2 --gpus-per-node=1' '--nodes=1 --ntasks=5 --gpus-per-node=4'; do
    rm -rf run
    # shellcheck disable=SC2086 # words
    submit $way
    [ "$status" = 2 ] || { cat job.out; fail "$way: status $status"; }
    grep -q 'ranks [0-9] and [0-9] have one GPU, GPU-.*; start as many ranks a node as it has GPUs' job.out ||
        { cat job.out; fail "$way: does not say so"; }
    [ ! -e run ] || fail "$way: left its folder"
done

# By task: a job that is cancelled, and gone on with on other GPUs that are bound otherwise.
id=$(sbatch --parsable --cpus-per-task=1 --nodes=1 --ntasks=2 --gpus-per-node=2 --output=job.out "$job" "$@" --checkpoint-every 1 --out run)
# A step may take longer than Slurm waits for the end of what it cancels: the first one's checkpoint is there already.
waits_for run/metrics.jsonl.partial 2
scancel "$id"
gone() { [ -z "$(squeue -h -j "$id" 2>/dev/null)" ]; }
until_true 60 'a cancelled job stays' gone
submit --ntasks=3 --gpus-per-task=1
[ "$status" = 0 ] || { cat job.out; fail "gone on with: status $status"; }
grep -q 'resumes after step' job.out || { cat job.out; fail 'gone on with: starts anew'; }
same_run whole run 'gone on with'
