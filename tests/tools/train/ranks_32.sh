#!/bin/sh
# Chunks and estimators side by side: K chunks a step times E estimators are items for up to K*E ranks. 32 ranks (make
# check-long: on few processors they take their time) give the bits of one: with an item each, with fewer items than ranks
# in the last step, with more items than ranks, under srun --mpi=pmix on four nodes and under mpirun.
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
[ -n "${TABFT_TEST_CLUSTER-}" ] || exec "$top_srcdir/tests/slurm/with-cluster" sh "$0" "$@"
[ -f "$top_builddir/lib/tabft/tabft-engine-mpi.so" ] || { printf 'skipped: built without MPI\n' >&2; exit 77; }
. "$top_srcdir/tests/tools/train/helpers.sh"
# shellcheck source=tests/tools/train/metrics.sh
. "$top_srcdir/tests/tools/train/metrics.sh"
cd -- "$work"
pack y "$cases/11-uneven-estimator-shards/train.csv" train.tbf

slurm_ranks() {
    ranks=$1
    shift
    timeout 1800 srun --mpi=pmix --nodes=4 --ntasks="$ranks" --overcommit "$@"
}
mpirun_ranks() {
    ranks=$1
    shift
    root=
    [ "$(id -u)" != 0 ] || root=--allow-run-as-root
    # shellcheck disable=SC2086 # no word or one
    env -u OMPI_MCA_btl timeout 1800 mpirun $root --oversubscribe -n "$ranks" "$@"
}
# train RUN ESTIMATORS CHUNK_ROWS K [LAUNCHER RANKS]
train() {
    run=$1 estimators=$2 chunk_rows=$3 chunks=$4
    shift 4
    works "$@" tabft-train --model "$model" --data train.tbf --out "$run" --epochs 1 --estimators "$estimators" \
        --chunk-rows "$chunk_rows" --chunks-per-step "$chunks" --lr 1e-3 --seed 5 --threads 1 --comm-timeout 900
}
same() {
    cmp -- "$1/model.safetensors" "$2/model.safetensors" || fail "$2: other weights than $1"
    course "$1" >want
    course "$2" >got
    diff want got || fail "$2: other losses than $1"
    [ "$(field "$2/run.json" world_size)" = "$3" ] || fail "$2: not $3 ranks"
}

# 288 rows train. 4 estimators, chunks of 36, 8 a step: one step of 32 items.
train even 4 36 8
[ "$(grep -c '"kind":"step"' even/metrics.jsonl)" = 1 ] || fail 'not one step'
train even-srun 4 36 8 slurm_ranks 32
same even even-srun 32
train even-mpirun 4 36 8 mpirun_ranks 32
same even even-mpirun 32
# 3 estimators, chunks of 29, 6 a step: steps of 18 and 12 items, so ranks idle, more of them in the last one.
train idle 3 29 6
train idle-srun 3 29 6 slurm_ranks 32
same idle idle-srun 32
says 'are idle'
# 5 estimators, 9 chunks a step: 45 items on 32 and on 31 ranks, which share them unevenly.
train more 5 32 9
for ranks in 31 32; do
    train "more-$ranks" 5 32 9 slurm_ranks "$ranks"
    same more "more-$ranks" "$ranks"
done
