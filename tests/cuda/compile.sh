#!/bin/sh
# nvcc compiles every kernel for the GPUs of A100, H100 and B200, and none uses more registers or memory than
# tests/cuda/kernel_limits says.
set -eu
: "${top_srcdir:?}"
nvcc=${NVCC:-nvcc}
command -v "$nvcc" >/dev/null || nvcc=/usr/local/cuda/bin/nvcc
command -v "$nvcc" >/dev/null || { echo 'skipped: no nvcc (NVCC names it)'; exit 77; }
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

# compile GPU: all files; then a kernel a line: name, GPU, registers, spilled bytes, shared bytes.
compile() {
    for file in "$top_srcdir"/lib/tensor/cuda/*.cu; do
        "$nvcc" -std=c++17 -O3 -I "$top_srcdir/lib" -Werror all-warnings -Xptxas -v -arch="$1" \
            -c -o "$work/$1.o" "$file" || return 1
    done >"$work/$1.log" 2>&1
    awk -v gpu="$1" '
        /Compiling entry function/ { split($0, quoted, "\047"); name = quoted[2] }
        /bytes spill stores/ { for (i = 1; i <= NF; i++) if ($i == "spill" && $(i + 1) ~ /^stores/) spilled = $(i - 2) }
        /Used [0-9]+ registers/ {
            shared = 0
            for (i = 1; i <= NF; i++) {
                if ($i == "Used") registers = $(i + 1)
                if ($i == "bytes" && $(i + 1) ~ /^smem/) shared = $(i - 1)
            }
            print name, gpu, registers, spilled, shared
        }' "$work/$1.log" >"$work/$1.kernels"
}
# One compiler a GPU, all at a time.
for gpu in sm_80 sm_90 sm_100; do
    compile "$gpu" || : >"$work/$gpu.failed" &
done
wait
for gpu in sm_80 sm_90 sm_100; do
    [ ! -e "$work/$gpu.failed" ] || { cat -- "$work/$gpu.log"; exit 1; }
    [ "$(wc -l <"$work/$gpu.kernels")" -ge 40 ] || { cat -- "$work/$gpu.log"; echo "few kernels for $gpu in what ptxas says"; exit 1; }
done
awk '
    FNR == NR { if (!/^#/ && NF == 4) limit[$1] = $2 " " $3 " " $4; next }
    {
        kernel = "*"
        for (k in limit) if (k != "*" && index($1, length(k) k) > 0) kernel = k
        split(limit[kernel], most, " ")
        seen[kernel] = 1
        if ($3 <= most[1] && $4 <= most[2] && $5 <= most[3]) next
        print $1 " on " $2 ": " $3 " registers, " $4 " bytes spilled, " $5 " shared; the limits are " limit[kernel]
        bad = 1
    }
    END {
        for (k in limit) if (!(k in seen)) { print "tests/cuda/kernel_limits: there is no kernel " k; bad = 1 }
        exit bad
    }' "$top_srcdir/tests/cuda/kernel_limits" "$work"/sm_*.kernels
echo "$(cat -- "$work"/sm_*.kernels | wc -l) kernels are within their limits"
