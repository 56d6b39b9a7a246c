#!/bin/sh
# Ranks with GPUs, on the emulations of CUDA and NCCL: under mpirun the same sums whatever their number, in memory of the
# host and of GPUs; launches that cannot work are refused. The engine's id comes by PMIx. tests/slurm/ranks.sh has srun.
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
command -v mpirun >/dev/null || { printf 'skipped: no mpirun (Debian: openmpi-bin)\n' >&2; exit 77; }
# shellcheck source=tests/slurm/launchers.sh
. "$top_srcdir/tests/slurm/launchers.sh"
# shellcheck source=tests/slurm/sums.sh
. "$top_srcdir/tests/slurm/sums.sh"
TABFT_PLUGIN_PATH=$top_builddir/tests/cuda/plugins CUDA_EMULATION_DEVICES=4
export TABFT_PLUGIN_PATH CUDA_EMULATION_DEVICES

# 3,000,000 parameters take several rounds of the block that the host's memory goes through.
shapes='5x3000000 4x150000 7x65537 2x5000 1x1'
# shellcheck disable=SC2086 # a list
sums_alone 0 2 $shapes
[ "$(wc -l <"$work/one")" = 5 ] || fail "one rank printed $(wc -l <"$work/one") lines"
for count in 1 2 3 4; do
    # shellcheck disable=SC2086
    same_as_one "$count ranks, memory of GPUs" mpirun_ranks "$count" env RANK_GPUS=1 "$program" sum 0 1 $shapes
done
for count in 1 3; do
    # shellcheck disable=SC2086
    same_as_one "$count ranks, memory of the host" mpirun_ranks "$count" env RANK_ENGINE=nccl "$program" sum 0 1 $shapes
done
# Pieces of 1,000 bytes stand for those of 2^31.
grep -v '^5x' "$work/one" >"$work/smaller"
mv -f -- "$work/smaller" "$work/one"
same_as_one 'small pieces' mpirun_ranks 3 env RANK_GPUS=1 "$program" sum 1000 1 4x150000 7x65537 2x5000 1x1

"$program" describe >"$work/described"
grep -q "^  engine nccl: NCCL 2.99.99, $TABFT_PLUGIN_PATH/tabft-engine-nccl.so\$" "$work/described" ||
    { cat -- "$work/described"; fail 'the engine is not described'; }

refused 2 'engine self carries one rank, the launcher started 2; use --engine nccl or one rank' \
    mpirun_ranks 2 env RANK_GPUS=1 RANK_ENGINE=self "$program" sum 0 1 1x1
refused 2 "no engine 'nccl'.*--with-nccl" mpirun_ranks 2 env RANK_GPUS=1 TABFT_PLUGIN_PATH= "$program" sum 0 1 1x1
if [ -f "$top_builddir/lib/tabft/tabft-engine-mpi.so" ]; then
    refused 2 'engine mpi carries no memory of GPUs between 2 ranks; use --engine nccl' \
        mpirun_ranks 2 env RANK_GPUS=1 RANK_ENGINE=mpi TABFT_PLUGIN_PATH="$top_builddir/lib/tabft" "$program" sum 0 1 1x1
fi
# Two ranks with one GPU: by their number, and because they see the same one alone.
shared='have one GPU, GPU-[0-9a-f-]*-00000000000N of [^ ]*; start as many ranks a node as it has GPUs'
refused 2 "ranks 0 and 1 $(printf %s "$shared" | tr N 0)" mpirun_ranks 2 env RANK_GPUS=1 CUDA_EMULATION_DEVICES=1 "$program" sum 0 1 1x1
refused 2 "ranks 0 and 2 $(printf %s "$shared" | tr N 0)" mpirun_ranks 3 env RANK_GPUS=1 CUDA_EMULATION_DEVICES=2 "$program" sum 0 1 1x1
refused 2 "ranks 0 and 1 $(printf %s "$shared" | tr N 2)" mpirun_ranks 2 env RANK_GPUS=1 CUDA_VISIBLE_DEVICES=2 "$program" sum 0 1 1x1
[ "$(grep -c 'have one GPU' "$work/refused")" = 1 ] || { cat -- "$work/refused"; fail 'more than one rank says so'; }
# A GPU that others have filled.
refused 4 'engine nccl: GPU [01]: cudaMalloc.*: out of memory' \
    mpirun_ranks 2 env RANK_GPUS=1 CUDA_EMULATION_MEMORY=4194303 "$program" sum 0 1 1x1
refused 4 'engine nccl: no GPU can be used' mpirun_ranks 2 env RANK_GPUS=1 CUDA_EMULATION_DEVICES=0 "$program" sum 0 1 1x1
