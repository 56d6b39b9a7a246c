#!/bin/sh
# tabft-model knows every architecture and head, as TabPFN writes them and as v2 and v2.5 were published, and can draw
# each anew.
set -eu
: "${TABFT_DATA:?}"
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
failed=0
bad() {
    echo "$*"
    failed=1
}
# knows FILE ARCHITECTURE HEAD
knows() {
    file=$TABFT_DATA/reference/$1.model.safetensors
    tabft-model info "$file" >"$work/info"
    grep -qxF -- "head: {$3}" "$work/info" || bad "$1: info says $(grep '^head' "$work/info")"
    tabft-model verify "$file" >"$work/verified"
    grep -q -- "ok, [0-9]* tensors, $2," "$work/verified" || bad "$1: verify says $(cat "$work/verified")"
    tabft-model diff "$file" "$file" >"$work/diff" || bad "$1: differs from itself: $(cat "$work/diff")"
}
for name in v2 v2_5 v2_5_mlp v2_6 v3; do
    knows "${name}_cls" "tabpfn_${name%_mlp}" '"classes": 10'
    knows "${name}_reg" "tabpfn_${name%_mlp}" '"buckets": 50'
done
knows v3_5 tabpfn_v3_5 '"classes": 10, "buckets": 50'
knows v2_base_cls tabpfn_v2 '"classes": 10'
knows v2_5_base_reg tabpfn_v2_5 '"buckets": 50'
status=0
tabft-model diff "$TABFT_DATA/reference/v2_reg.model.safetensors" "$TABFT_DATA/reference/v2_cls.model.safetensors" \
    >"$work/diff" || status=$?
{ [ "$status" = 1 ] && grep -qx 'criterion.borders: only in a' "$work/diff"; } ||
    bad "diff: $status, $(cat "$work/diff")"

for name in tabpfn_v2 tabpfn_v2_5 tabpfn_v2_6; do
    tabft-model init --arch "$name" "$work/$name.safetensors"
    tabft-model verify "$work/$name.safetensors" | grep -q " $name," || bad "init --arch $name: verify does not know it"
done
# v3's published size takes 200 MB, v3.5's four times as much: small ones here.
for name in tabpfn_v3 tabpfn_v3_5; do
    echo '{"nlayers": 2, "embed_dim": 32}' | tabft-model init --arch "$name" --config - "$work/$name.safetensors"
    tabft-model verify "$work/$name.safetensors" | grep -q " $name," || bad "init --arch $name: verify does not know it"
done
exit "$failed"
