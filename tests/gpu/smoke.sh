#!/bin/sh
# tests/gpu/run does what it says, on the emulation with tables of a few rows; it is meant for GPUs.
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
[ -e "$top_builddir/tests/cuda/plugins/tabft-device-cuda.so" ] || { echo 'no C++ compiler, so no emulation'; exit 77; }
out=$(mktemp -d)
trap 'rm -rf -- "$out"' EXIT
TABFT_PLUGIN_PATH=$(cd -- "$top_builddir/tests/cuda/plugins" && pwd)
export TABFT_PLUGIN_PATH
TABFT_GPU_PARITY_ROWS=15 TABFT_GPU_SIZES=16:4 TABFT_GPU_ARCHS=tabpfn_v2_6 TABFT_GPU_ESTIMATORS=1 \
    TABFT_GPU_CONFIG='{"emsize": 32, "nlayers": 1, "nhead": 2}' "$top_srcdir/tests/gpu/run" "$top_builddir" "$out" || {
    cat -- "$out"/*.log
    exit 1
}
[ "$(grep -c '"held":true' "$out/results.jsonl")" = 16 ] || { cat -- "$out/results.jsonl"; exit 1; }
number='[0-9.e+-][0-9.e+-]*'
grep -q "\"seconds_tabpfn_v2_6_16\",\"held\":true,.*\"seconds\":$number,\"gpu_bytes\":$number,\"tflop\":$number,\"gigabytes\":$number" \
    "$out/results.jsonl"
grep -q "\"tflop_per_second\":$number,\"gigabytes_per_second\":$number,\"of_bf16_peak\":null}" "$out/results.jsonl"
