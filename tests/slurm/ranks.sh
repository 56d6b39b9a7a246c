#!/bin/sh
# Several ranks under srun --mpi=pmix on four nodes and under mpirun: the same sums whatever their number, launches that
# cannot work are refused, a rank with another value is refused, ranks that wait leave the processors alone.
set -eu
# shellcheck source=tests/slurm/launchers.sh
. "${top_srcdir:?}/tests/slurm/launchers.sh"
in_cluster "$@"
# shellcheck source=tests/slurm/sums.sh
. "$top_srcdir/tests/slurm/sums.sh"

# The same bits. 5 and 7 items do not divide evenly; 2 items leave ranks idle; 400,003 parameters are no multiple of
# anything.
shapes='5x400003 4x150000 7x65537 2x5000 1x1'
# shellcheck disable=SC2086 # a list
sums_alone 0 1 $shapes
[ "$(wc -l <"$work/one")" = 5 ] || fail "one rank printed $(wc -l <"$work/one") lines"
for ranks in 1 2 3 4 5 8; do
    threads=$((1 + ranks % 2))
    # shellcheck disable=SC2086
    same_as_one "srun with $ranks ranks" slurm_ranks "$ranks" "$program" sum 0 "$threads" $shapes
done
for ranks in 2 5; do
    # shellcheck disable=SC2086
    same_as_one "mpirun with $ranks ranks" mpirun_ranks "$ranks" "$program" sum 0 2 $shapes
done
# With GPUs, on the emulation of tests/cuda: eight ranks on four nodes, two GPUs each; NCCL's id comes by Slurm's PMIx.
for ranks in 3 8; do
    # shellcheck disable=SC2086
    same_as_one "srun with $ranks ranks with GPUs" slurm_ranks "$ranks" env RANK_GPUS=1 CUDA_EMULATION_DEVICES=2 \
        TABFT_PLUGIN_PATH="$top_builddir/tests/cuda/plugins" "$program" sum 0 1 $shapes
done
# Pieces of 1,000 bytes stand for those of 2^31.
# shellcheck disable=SC2086
same_as_one 'small pieces' slurm_ranks 3 "$program" sum 1000 1 $shapes

# One rank joins without an engine, with and without PMIx.
slurm_ranks 1 env TABFT_PLUGIN_PATH=/nonexistent "$program" sum 0 1 1x1 >"$work/sum"
srun --ntasks=1 "$program" sum 0 1 1x1 >"$work/sum"

# Launches that cannot mean what they say.
refused 2 'separate processes that cannot see each other; add --mpi=pmix' \
    timeout 600 srun --ntasks=3 "$program" sum 0 1 1x1
refused 2 'PMI-2.*use srun --mpi=pmix' timeout 600 srun --mpi=pmi2 --ntasks=3 "$program" sum 0 1 1x1
refused 2 "without PMIx started 3 processes" env PMI_SIZE=3 PMI_RANK=0 "$program" sum 0 1 1x1
refused 2 'engine self carries one rank, the launcher started 2' \
    slurm_ranks 2 env RANK_ENGINE=self "$program" sum 0 1 1x1
refused 2 "no engine 'mpi'" slurm_ranks 2 env TABFT_PLUGIN_PATH= "$program" sum 0 1 1x1
refused 2 "no such name" slurm_ranks 2 env RANK_ENGINE=../mpi "$program" sum 0 1 1x1
# The batch script itself is one process, however many tasks its job has.
sbatch --wait --quiet --ntasks=3 --output="$work/batch" --wrap "exec '$program' sum 0 1 1x1"
[ "$(wc -l <"$work/batch")" = 1 ] || { cat -- "$work/batch"; fail 'the batch script is not one rank'; }

# One rank is given something else: all learn both values. So they do of another engine, before anything is opened.
refused 2 "the data digest differs: 'sha256:1111' on rank 0 (n1), 'sha256:2222' on rank 2 (n3)" \
    slurm_ranks 4 "$program" differ 2
# shellcheck disable=SC2016 # for the inner shell
refused 2 'all ranks must be one build' slurm_ranks 3 \
    sh -c 'RANK_ENGINE=mpi; [ "$PMIX_RANK" != 1 ] || RANK_ENGINE=other; export RANK_ENGINE; exec "$@"' sh \
    "$program" differ -1

# Five ranks on few cores: the four that wait 2 s use little of them. Time to wake up counts as well, so on a machine with much
# else to do the share only shrinks.
used=$(slurm_ranks 5 "$program" idle 2)
awk -v used="$used" 'BEGIN { exit !(used != "" && used < 0.25) }' || fail "a rank that waits uses $used of a processor"
printf 'a rank that waits uses %s of a processor\n' "$used"
