#!/bin/sh
# What README says is to be done with a GPU, done where there is none: a build with CUDA, its tests, and tests/gpu/run, which then
# tells of every result that there is no GPU (make check-long: nvcc takes minutes for it).
set -eu
: "${top_srcdir:?}"
unset MAKEFLAGS MFLAGS MAKELEVEL TABFT_PLUGIN_PATH
# shellcheck source=tests/cuda/nvcc.sh
. "$top_srcdir/tests/cuda/nvcc.sh"
source=$(cd -- "$top_srcdir" && pwd)
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
mkdir -- "$work/build"
cd -- "$work/build"
log=$work/log
{ "$source/configure" --with-cuda NVCC="$nvcc" CUDA_ARCHS=90a && make -j "$(nproc)" && make -j "$(nproc)" gpu-tests; } >"$log" 2>&1 ||
    { tail -n 50 -- "$log"; exit 1; }
! bin/tabft-train --version | grep -q '^  GPU 0: ' || { echo 'there is a GPU: tests/gpu/run is for it'; exit 77; }
bin/tabft-train --version | grep -q '^  device cuda: CUDA [0-9.]* for sm_90a, ' ||
    { bin/tabft-train --version; echo 'the plugin does not say for what it was built'; exit 1; }
for program in test_ops test_attention_bf16 test_networks test_networks_long; do
    [ -x "tests/gpu/$program" ] || { echo "no tests/gpu/$program"; exit 1; }
done
status=0
"$source/tests/gpu/run" . "$work/out" >"$log" 2>&1 || status=$?
results=$work/out/results.jsonl
fail() {
    cat -- "$results"
    echo "$1"
    exit 1
}
[ "$status" = 1 ] || fail "tests/gpu/run ends with $status without a GPU"
[ "$(wc -l <"$results")" -ge 30 ] || fail 'there are few results'
[ "$(grep -c '"held":false' "$results")" = 1 ] || fail 'more than the plugin fails'
grep -q '^{"test":"plugin","held":false,.*"why":".*no GPU can be used' "$results" || fail 'the plugin is not told to fail for want of a GPU'
! grep -v '^{"test":"plugin",\|"held":null,"why":".*there is no GPU' "$results" || fail 'other reasons than that there is no GPU'
