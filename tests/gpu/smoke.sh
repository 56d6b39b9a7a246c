#!/bin/sh
# tests/gpu/run does what it says, on the emulation with tables of a few rows; it is meant for GPUs. Then with pieces that fail,
# that hang, and with too little time: every result is told of all the same.
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
[ -e "$top_builddir/tests/cuda/plugins/tabft-device-cuda.so" ] || { echo 'no C++ compiler, so no emulation'; exit 77; }
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
built=$(cd -- "$top_builddir" && pwd)
TABFT_PLUGIN_PATH=$built/tests/cuda/plugins
export TABFT_PLUGIN_PATH
# A build folder with a tabft-eval that opens plugins, and tests that are scripts.
mkdir -p -- "$work/build/bin" "$work/build/tests/gpu"
for tool in tabft-train tabft-prep tabft-model; do ln -s -- "$built/bin/$tool" "$work/build/bin/$tool"; done
ln -s -- "$built/tests/cuda/tabft-eval" "$work/build/bin/tabft-eval"
# program NAME LINE
program() {
    printf '#!/bin/sh\n%s\n' "$2" >"$work/build/tests/gpu/$1"
    chmod +x -- "$work/build/tests/gpu/$1"
}
# runs NAME STATUS [VARIABLE=VALUE]...: the script, which ends with this status; its results are what NAME.jsonl is.
runs() {
    name=$1 expected=$2 status=0
    shift 2
    env TABFT_PYTHON=/bin/false TABFT_GPU_PARITY_ROWS=15 TABFT_GPU_SIZES=16:4 TABFT_GPU_ARCHS=tabpfn_v2_6 TABFT_GPU_ESTIMATORS=2 \
        TABFT_GPU_CONFIG='{"emsize": 32, "nlayers": 1, "nhead": 2}' "$@" \
        "$top_srcdir/tests/gpu/run" "$work/build" "$work/$name" >"$work/$name.said" || status=$?
    cp -- "$work/$name/results.jsonl" "$work/$name.jsonl"
    [ "$status" = "$expected" ] || fail "$name ends with $status"
    cut -d , -f 1 "$work/$name.jsonl" | sort >"$work/$name.names"
    [ "$(uniq "$work/$name.names" | wc -l)" = 30 ] || fail "$name tells of other results"
    [ "$(wc -l <"$work/$name.names")" = 30 ] || fail "$name tells of one result twice"
    ! grep -vE '^\{"test":"[a-z0-9_]*","held":(true|false|null)[,}].*\}?$' "$work/$name.jsonl" || fail "$name has other lines"
}
fail() {
    cat -- "$work/$name/log.txt" "$work/$name.jsonl"
    echo "$1"
    exit 1
}
# is NAME TEST HELD [FIELDS]: what it says of a test; FIELDS is a regular expression.
is() { grep -qE "^\{\"test\":\"$2\",\"held\":$3${4-}" "$work/$1.jsonl" || fail "$1: $2 is not told to be $3${4-}"; }

program test_ops 'echo held'
program test_attention_bf16 'exit 0'
program test_networks 'exit 0'
program test_networks_long 'exit 0'
runs good 0 TABFT_GPU_SECONDS=3600 TABFT_GPU_SECONDS_EACH=1200
number='[0-9.e+-]+'
for test in plugin test_ops test_networks_long train_cpu train_bf16 same_bits_float32 same_bits_bf16 loss_float32 loss_tf32 predictions; do
    is good "$test" true
done
is good parity true ',"report":\{.*"bit_identical": *true'
is good seconds_tabpfn_v2_6_16 true ",\"rows\":16,\"columns\":4,\"estimators\":2,\"seconds\":$number,\"steps\":\[$number,$number,$number\]"
is good seconds_tabpfn_v2_6_16 true ".*,\"phases\":\{\"preprocess\":.*,\"gpu_bytes\":$number,\"gpu_bytes_used\":null,\"tflop\":$number,\"gigabytes\":$number"
is good seconds_tabpfn_v2_6_16 true ".*,\"tflop_per_second\":$number,\"gigabytes_per_second\":$number,\"of_bf16_peak\":null"
is good aim_peak_tabpfn_v2_6_16 null ',"why":"the bf16 peak of this GPU is not known: CUDA emulation"'
is good memory_tabpfn_v2_6_16 true ".*,\"gpu_bytes_of_one\":$number,\"gpu_bytes_of_all\":$number,.*\"ratio\":$number"
is good ranks_2 null ',"why":"one GPU'
is good aim_pytorch_tabpfn_v2_6_16 null ',"why":"no tabpfn 9.2.0 with a GPU in /bin/false'

program test_ops 'echo "a \"wrong\" number"; exit 1'
program test_attention_bf16 'kill -SEGV $$'
program test_networks 'sleep 60'
rm -f -- "$work/build/tests/gpu/test_networks_long"
runs bad 1 TABFT_GPU_SECONDS_EACH=4
is bad test_ops false ',"seconds":[0-9]*,"why":"status 1: a \\"wrong\\" number"'
is bad test_attention_bf16 false ',"seconds":[0-9]*,"why":"status 139'
is bad test_networks false ',"seconds":[0-9]*,"why":"took more than 4 s'
is bad test_networks_long null ',"why":"not built'
is bad train_cpu '(true|false)'

runs late 0 TABFT_GPU_SECONDS=0
is late train_cpu null ',"why":"no time is left of 0 s'
runs none 1 CUDA_VISIBLE_DEVICES=
is none plugin false ',"why":".*no GPU can be used'
is none train_cpu null ',"why":"there is no GPU'

# Told to end while a test hangs: what is known so far and the rest.
program test_ops 'sleep 600'
env TABFT_GPU_SIZES=16:4 TABFT_GPU_ARCHS=tabpfn_v2_6 "$top_srcdir/tests/gpu/run" "$work/build" "$work/ended" >/dev/null 2>&1 &
child=$!
name=ended turn=0
until grep -q 'test_ops:' "$work/ended/log.txt" 2>/dev/null; do
    turn=$((turn + 1))
    [ "$turn" -lt 1200 ] || fail 'the first test was not come to'
    sleep 0.1
done
kill -TERM "$child"
if wait "$child"; then fail 'the script ends as if all had held'; fi
cp -- "$work/ended/results.jsonl" "$work/ended.jsonl"
is ended plugin true
is ended test_ops null ',"why":"the script was told to end"'
is ended racecheck null
