#!/bin/sh
# nvcc compiles every kernel for the GPUs of A100, H100 and B200, and none uses more registers or memory than
# tests/cuda/kernel_limits says. What it makes is linked as the plugin is, which the tools then find and open; where there
# is no GPU they say so.
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
# shellcheck source=tests/cuda/nvcc.sh
. "$top_srcdir/tests/cuda/nvcc.sh"
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
gpus='sm_80 sm_90 sm_100'

# compile FILE: as the plugin is compiled: once to what all these GPUs have in common, and that for each.
compile() {
    name=$(basename -- "$1" .cu)
    mkdir -- "$work/$name.kept"
    case $name in
    attention_wgmma) set -- "$1" -DTABFT_CUDA_90A -gencode arch=compute_90a,code=sm_90a ;;
    *) set -- "$1" -gencode "arch=compute_80,code=[$(echo "$gpus" | tr ' ' ,)]" ;;
    esac
    "$nvcc" -std=c++17 -O3 -I "$top_srcdir/lib" -Werror all-warnings -Xptxas -v --keep --keep-dir "$work/$name.kept" \
        -Xcompiler -fPIC,-fvisibility=hidden -DTABFT_CUDA_ARCHS='"tests"' "$2" "$3" ${4+"$4"} -c -o "$work/$name.o" "$1" >"$work/$name.log" 2>&1 ||
        : >"$work/$name.failed"
}
# The longest first, beside all others.
compile "$top_srcdir/lib/tensor/cuda/attention.cu" &
for file in "$top_srcdir"/lib/tensor/cuda/*.cu; do
    case $file in */attention.cu) ;; *) compile "$file" ;; esac
done
wait
for failed in "$work"/*.failed; do
    [ ! -e "$failed" ] || { cat -- "${failed%.failed}.log"; echo "nvcc does not compile $(basename -- "$failed" .failed).cu"; exit 1; }
done

# Sums have one order: nothing is added to memory by whoever comes first.
[ "$(cat -- "$work"/*.kept/*.ptx | grep -c '^\.entry\|\.visible \.entry')" -ge 40 ] || { ls "$work"/*.kept; echo 'few kernels in the PTX'; exit 1; }
if grep -nE '^[[:space:]]*(@!?%p[0-9]+[[:space:]]+)?(atom|red|multimem)\.' "$work"/*.kept/*.ptx; then
    echo 'a kernel has atomic operations'
    exit 1
fi

# A warpgroup's products go on beside it, unless the compiler finds that they cannot and has each waited for.
[ "$(grep -c 'wgmma\.mma_async' "$work"/attention_wgmma.kept/*.ptx)" -ge 20 ] || { echo 'few products of warpgroups in the PTX'; exit 1; }
if grep -n 'C75[0-9][0-9])' "$work/attention_wgmma.log"; then
    echo 'products of warpgroups are not what they are written as'
    exit 1
fi

# A kernel a line: name, GPU, registers, spilled bytes, shared bytes.
awk '
    /Compiling entry function/ { split($0, quoted, "\047"); name = quoted[2]; gpu = quoted[4] }
    /bytes spill stores/ { for (i = 1; i <= NF; i++) if ($i == "spill" && $(i + 1) ~ /^stores/) spilled = $(i - 2) }
    /Used [0-9]+ registers/ {
        shared = 0
        for (i = 1; i <= NF; i++) {
            if ($i == "Used") registers = $(i + 1)
            if ($i == "bytes" && $(i + 1) ~ /^smem/) shared = $(i - 1)
        }
        print name, gpu, registers, spilled, shared
    }' "$work"/*.log >"$work/kernels"
for gpu in $gpus; do
    [ "$(grep -c " $gpu " "$work/kernels")" -ge 40 ] || { cat -- "$work"/*.log; echo "few kernels for $gpu in what ptxas says"; exit 1; }
done
awk '
    FNR == NR { if (!/^#/ && NF == 4) limit[$1] = $2 " " $3 " " $4; next }
    {
        kernel = "*"
        for (k in limit) {
            name = k
            sub(/ILi.*/, "", name)
            if (k != "*" && index($1, length(name) k) > 0 && (kernel == "*" || length(k) > length(kernel))) kernel = k
        }
        split(limit[kernel], most, " ")
        seen[kernel] = 1
        if ($3 <= most[1] && $4 <= most[2] && $5 <= most[3]) next
        print $1 " on " $2 ": " $3 " registers, " $4 " bytes spilled, " $5 " shared; the limits are " limit[kernel]
        bad = 1
    }
    END {
        for (k in limit) if (!(k in seen)) { print "tests/cuda/kernel_limits: there is no kernel " k; bad = 1 }
        exit bad
    }' "$top_srcdir/tests/cuda/kernel_limits" "$work/kernels"
echo "$(wc -l <"$work/kernels") kernels are within their limits"

"${CC:-cc}" -std=gnu17 -O2 -I "$top_srcdir/lib" -fPIC -fvisibility=hidden -c -o "$work/failure.o" "$top_srcdir/lib/base/failure.c"
"$nvcc" -shared -cudart static -Xlinker --exclude-libs=ALL -o "$work/tabft-device-cuda.so" "$work"/*.o -lcublas -lcublasLt
TABFT_PLUGIN_PATH=$work
export TABFT_PLUGIN_PATH
tabft-train --version >"$work/version"
grep -q "^  device cuda: CUDA [0-9.]* for tests, driver .*, cuBLAS [1-9][0-9.]*, $work/tabft-device-cuda.so\$" "$work/version" ||
    { cat -- "$work/version"; echo 'the plugin is not opened'; exit 1; }
! grep -q '^  GPU 0: ' "$work/version" || { echo 'there is a GPU: tests/gpu/run is for it'; exit 0; }
model=$top_srcdir/share/models/tiny-v2_6-classifier.safetensors
tabft-prep pack --quiet --target y --classes -o "$work/train.tbf" "$top_srcdir/share/examples/parity_train.csv"
status=0
tabft-train --device cuda --model "$model" --data "$work/train.tbf" --out "$work/run" 2>"$work/said" || status=$?
if [ "$status" != 4 ] || [ -e "$work/run" ] || [ "$(wc -l <"$work/said")" != 1 ] ||
    ! grep -q '^tabft-train: no GPU can be used (.*); see nvidia-smi' "$work/said"; then
    cat -- "$work/said"
    echo "status $status without a GPU"
    exit 1
fi
