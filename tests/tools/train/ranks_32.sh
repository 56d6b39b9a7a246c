#!/bin/sh
# Chunks and estimators side by side: K chunks a step times E estimators are items for up to K*E ranks. 32 ranks (make
# check-long: on few processors they take their time) give the bits of one: with an item each, with fewer items than ranks
# in the last step, with more items than ranks, under srun --mpi=pmix on four nodes and under mpirun.
set -eu
# shellcheck source=tests/slurm/launchers.sh
. "${top_srcdir:?}/tests/slurm/launchers.sh"
in_cluster "$@"
. "$top_srcdir/tests/tools/train/helpers.sh"
# shellcheck source=tests/tools/train/metrics.sh
. "$top_srcdir/tests/tools/train/metrics.sh"
cd -- "$work"
pack y "$cases/11-uneven-estimator-shards/train.csv" train.tbf

# train RUN ESTIMATORS CHUNK_ROWS K [LAUNCHER RANKS]
train() {
    run=$1 estimators=$2 chunk_rows=$3 chunks=$4
    shift 4
    works "$@" tabft-train --model "$model" --data train.tbf --out "$run" --epochs 1 --estimators "$estimators" \
        --chunk-rows "$chunk_rows" --chunks-per-step "$chunks" --lr 1e-3 --seed 5 --threads 1 --comm-timeout 900
}
same() {
    same_run "$1" "$2"
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
