#!/bin/sh
# A whole run on a GPU, by the emulation (tests/cuda), which does everything as late as it may and lets the host touch nothing of
# the GPU's memory: the losses of the CPU but for rounding, checkpoints that are gone on with, plans and refusals.
set -eu
# shellcheck source=tests/tools/train/helpers.sh
. "${top_srcdir:?}/tests/tools/train/helpers.sh"
# shellcheck source=tests/tools/train/metrics.sh
. "$top_srcdir/tests/tools/train/metrics.sh"
# shellcheck source=tests/slurm/launchers.sh
. "$top_srcdir/tests/slurm/launchers.sh"
[ -e "$top_builddir/tests/cuda/plugins/tabft-device-cuda.so" ] || { echo 'no C++ compiler, so no emulation'; exit 77; }
TABFT_PLUGIN_PATH=$(cd -- "$top_builddir/tests/cuda/plugins" && pwd) CUDA_EMULATION_LATE=1 CUDA_EMULATION_PROTECT=1
export TABFT_PLUGIN_PATH CUDA_EMULATION_LATE CUDA_EMULATION_PROTECT
unset CUDA_VISIBLE_DEVICES
cd -- "$work"
head -n 25 "$cases/11-uneven-estimator-shards/train.csv" >train.csv
pack y train.csv train.tbf
set -- tabft-train --model "$model" --data train.tbf --epochs 3 --estimators 1 --lr 1e-3 --seed 17 --threads 1 --validation-split 0

# close FILE FILE: as many numbers, none further apart than 2e-6; and not the same ones, or it was no other arithmetic.
close() {
    paste -d ' ' "$1" "$2" | awk '
        { d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d; if (NF != 2) bad = 1 }
        END { exit bad || NR < 6 || most == 0 || most > 2e-6 }' || { paste "$1" "$2"; fail "losses of $1 and $2 are not close"; }
}
numbers() { sed -n 's/.*"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl" | tr ' ' '\n'; }
works "$@" --out cpu --device cpu
works "$@" --out gpu --device cuda --precision float32
says '^tabft-train: device: sm_00 float32 on CUDA emulation, GPU-00000000'
numbers cpu >cpu.numbers
numbers gpu >gpu.numbers
close cpu.numbers gpu.numbers
# Where each step's time went; on CPUs one thing follows another, so it cannot be more than the step's.
for run in cpu gpu; do
    sed 's/.*"seconds":\([^,]*\),"phases":{\([^}]*\)}.*/\1 \2/; s/"[a-z]*":/ /g; s/,/ /g' "$run/metrics.jsonl" >phases
    awk -v run="$run" '
        NF != 6 || !($2 > 0 && $3 > 0 && $4 > 0 && $5 > 0 && $6 > 0) { bad = 1 }
        run == "cpu" && $2 + $3 + $4 + $5 + $6 > $1 { bad = 1 }
        END { exit bad || NR != 3 }' phases || { cat phases; fail "$run: that is not where a step's time goes"; }
done
[ "$(field gpu/run.json gpu_name)" = 'CUDA emulation' ] || fail 'run.json does not name the GPU'
[ "$(field gpu/run.json isa)" = 'sm_00 float32 on CUDA emulation' ] || fail 'run.json does not say what was computed with'

# Killed when a checkpoint is there and gone on with: the same bits. On another device or with another precision it is another run.
env --default-signal "$@" --out run --device cuda --precision float32 --checkpoint-every 1 2>said &
child=$!
waits_for run/metrics.jsonl.partial 2
kill -KILL "$child"
wait "$child" || :
if [ ! -e run/run.json ]; then
    refuses 2 'another instruction set: then sm_00 float32 on CUDA emulation, now' "$@" --out run --device cpu --resume
    refuses 2 'another device or --precision: .* now sm_00 bf16 on CUDA emulation; use these' \
        "$@" --out run --device cuda --precision bf16 --resume
    CUDA_EMULATION_OTHER=0 refuses 2 'another device or --precision: .* now sm_00 float32 on CUDA emulation of another kind' \
        "$@" --out run --device cuda --precision float32 --resume
fi
works "$@" --out run --device cuda --precision float32 --resume
cmp -- gpu/model.safetensors run/model.safetensors || fail 'other weights after a resume'

# Predictions: close to the CPU's, by the model of a run. They take a tabft-eval that opens plugins.
PATH=$TABFT_PLUGIN_PATH/..:$PATH
head -n 7 "$cases/11-uneven-estimator-shards/test.csv" >test.csv
pack y test.csv test.tbf
set -- tabft-eval predict --model gpu/model.safetensors --train train.tbf --test test.tbf --estimators 1 --threads 1
works "$@" --device cpu -o cpu.tbf
works "$@" --device cuda --precision float32 -o gpu.tbf
works "$@" --device cuda --precision float32 --block-rows 4 -o blocks.tbf
for device in cpu gpu blocks; do
    tabft-prep cat "$device.tbf" | tail -n +2 | cut -d , -f 3- | tr ',' '\n' >"$device.numbers"
done
close cpu.numbers gpu.numbers
close cpu.numbers blocks.numbers
works "$@" --device cuda --plan >plan
grep -q '^gpu  *[0-9]' plan || fail 'the plan of a prediction says nothing of the GPU'
status=0
CUDA_EMULATION_TAKEN=4230000000 "$@" --device cuda -o none.tbf 2>said || status=$?
[ "$status" = 4 ] || fail "a prediction that does not fit the GPU ends with $status"
grep -q '^tabft-eval: .* of the GPU in blocks .*, 40[0-9][0-9]\.[0-9] MiB of which CUDA and others have taken' said ||
    { cat said; fail 'a prediction does not say what the GPU lacks'; }
[ ! -e none.tbf ] || fail 'a refused prediction left its file'
set -- tabft-train --model "$model" --data train.tbf --epochs 3 --estimators 1 --lr 1e-3 --seed 17 --threads 1 --validation-split 0

# "auto" takes the GPU, and bf16; without one it takes the CPU and says why, where there is the plugin.
CUDA_VISIBLE_DEVICES='' works "$@" --out auto
says '^tabft-train: device: cpu (no GPU can be used'
cmp -- cpu/model.safetensors auto/model.safetensors || fail 'other weights on the CPU by --device auto'
CUDA_EMULATION_MEMORY=50000000 refuses 4 'of its GPU beside 33554432 that are taken, 16445568 are left' "$@" --out none
refuses 4 'of its GPU beside 33554432 that are taken, 16445568 are left' "$@" --gpu-memory 50000000 --out none
CUDA_VISIBLE_DEVICES='' refuses 4 'no GPU can be used' "$@" --out none --device cuda
TABFT_PLUGIN_PATH='' refuses 2 "no device 'cuda'" "$@" --out none --device cuda
CUDA_EMULATION_OLD=1 refuses 4 'compute capability 0.0, for which the plugin cannot be used: no kernel image .* CUDA_ARCHS' "$@" --out none
for name in NVIDIA_TF32_OVERRIDE CUBLAS_EMULATE_SINGLE_PRECISION; do
    refuses 2 "$name is set in the environment" env "$name=0" "$@" --out none
done
refuses 2 'CPUs compute in float32 alone' "$@" --out none --device cpu --precision tf32
[ ! -e none ] || fail 'a refused run left its folder'

# A GPU whose memory others have taken in part: what is left for the run is what counts, to the byte.
bytes() { sed -n "s/^tabft-train: $1  *\([0-9]*\)\$/\1/p" said; }
CUDA_EMULATION_TAKEN=1000000000 works "$@" --out taken
[ "$(bytes gpu_cuda)" = $((1000000000 + (32 << 20))) ] || { cat said; fail 'the run does not say what is taken of its GPU'; }
[ "$(bytes gpu_available)" = $((4 << 30)) ] || { cat said; fail 'the run does not say what its GPU has'; }
need=$(($(bytes gpu_total) - $(bytes gpu_cuda)))
left=$(((4 << 30) - (32 << 20) - need))
CUDA_EMULATION_TAKEN=$left works "$@" --out just
CUDA_EMULATION_TAKEN=$((left + 1)) refuses 4 \
    "a rank needs $need bytes of its GPU beside [0-9]* that are taken, $((need - 1)) are left" "$@" --recompute none --out none

# A plan needs no GPU. It says what the GPU takes and what the host does, and what would fit.
CUDA_VISIBLE_DEVICES='' works "$@" --plan --device cuda >plan
grep -q '^gpu_total  *[0-9]' plan || fail 'the plan says nothing of the GPU'
grep -q '^gpu_workspace  *33[0-9]\{6\}$' plan || fail 'the plan says nothing of what cuBLAS works in'
grep -q "^gpu_cuda  *$((640 << 20))\$" plan || fail 'the plan says nothing of what CUDA takes'
works "$@" --plan --device cuda --ranks 2 >plan
grep -q "^gpu_cuda  *$((1152 << 20))\$" plan || fail 'the plan says nothing of what NCCL takes'
grep -q '^staging  *[0-9]' plan || fail 'the plan says nothing of copies'
status=0
"$@" --plan --device cuda --gpu-memory 10M >plan || status=$?
[ "$status" = 4 ] || fail "a plan that does not fit ends with $status"
grep -q '^would fit: .* on its GPU' plan || { cat plan; fail 'the plan does not say what the GPU needs'; }

# Several ranks, each with its GPU, carried by NCCL's emulation: the bits of one. Two ranks with one GPU are refused.
command -v mpirun >/dev/null || { echo 'all held but for several ranks: no mpirun'; exit 0; }
set -- "$@" --estimators 3 --epochs 1 --device cuda --precision float32
# What cuBLAS is asked for, and may choose its way of adding by, are the same products: an item's do not depend on who computes
# it, and what else is there.
products() { cat -- "$1".[0-9]* | LC_ALL=C sort >"$1.products"; rm -f -- "$1".[0-9]*; }
CUDA_EMULATION_PRODUCTS=$work/one-product works "$@" --out one
products one-product
[ "$(wc -l <one-product.products)" -ge 200 ] || fail "$(wc -l <one-product.products) products"
for ranks in 2 3 4; do
    CUDA_EMULATION_PRODUCTS=$work/products works mpirun_ranks "$ranks" env CUDA_EMULATION_DEVICES="$ranks" "$@" --out "ranks-$ranks"
    cmp -- one/model.safetensors "ranks-$ranks/model.safetensors" || fail "other weights on $ranks ranks"
    products products
    diff one-product.products products.products >differ || { head -n 20 differ; fail "other products on $ranks ranks"; }
done
# In a block that is cut otherwise there are more of the same.
CUDA_EMULATION_PRODUCTS=$work/products works "$@" --out again --recompute block
cmp -- one/model.safetensors again/model.safetensors || fail 'other weights with --recompute block'
products products
uniq one-product.products >want
uniq products.products | diff want - >differ || { head -n 20 differ; fail 'other products with --recompute block'; }
works tabft-eval parity --tolerance exact --test train.tbf one ranks-4 >parity.json
grep -q '"bit_identical": *true' parity.json || { cat parity.json; fail 'parity of equal runs on GPUs'; }
grep -q '"gpu_libraries": *"CUDA ' parity.json || { cat parity.json; fail 'the report does not name CUDA'; }
grep -q '"libraries": *"[^"]*PMIx [^"]*; NCCL 2.99.99"' parity.json || { cat parity.json; fail 'the report does not name NCCL'; }
status=0
mpirun_ranks 2 "$@" --out shared >said 2>&1 || status=$?
[ "$status" = 2 ] || fail "two ranks with one GPU end with $status"
grep -q 'ranks 0 and 1 have one GPU, GPU-.*as many ranks a node as it has GPUs' said || { cat said; fail 'two ranks with one GPU are not told what to do'; }
# A GPU that fails in the middle of a step: its rank says so, and that it was the GPU's.
status=0
mpirun_ranks 2 env CUDA_EMULATION_DEVICES=2 CUDA_EMULATION_FAILS=1:200 "$@" --out failing >said 2>&1 || status=$?
[ "$status" = 4 ] || { cat said; fail "a run whose GPU fails ends with $status"; }
grep -q '^tabft-train: rank 1 (.*: GPU 1: .*: an illegal memory access was encountered' said || { cat said; fail 'a GPU that fails is not told'; }
[ ! -e failing/run.json ] || fail 'a run whose GPU fails is recorded as done'
# Two kinds of GPU would make of an item what depends on who computes it.
status=0
mpirun_ranks 2 env CUDA_EMULATION_DEVICES=2 CUDA_EMULATION_OTHER=1 "$@" --out mixed >said 2>&1 || status=$?
[ "$status" = 2 ] || fail "ranks with two kinds of GPU end with $status"
grep -q "the kind of GPU differs: 'sm_00 float32 on CUDA emulation' on rank 0 .* 'sm_00 float32 on CUDA emulation of another kind" said ||
    { cat said; fail 'two kinds of GPU are not told'; }
