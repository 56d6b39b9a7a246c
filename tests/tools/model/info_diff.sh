#!/bin/sh
# tabft-model info says what the tiny model is; diff finds one flipped bit, a missing tensor, and nothing where
# nothing is.
set -eu
: "${TABFT_DATA:?}" "${top_srcdir:?}"
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
tiny=$top_srcdir/share/models/tiny-v2_6-classifier.safetensors
failed=0
bad() {
    echo "$*"
    failed=1
}
tabft-model info "$tiny" >"$work/text"
for line in 'bytes: 844912' 'parameters: 209418' 'architecture: tabpfn_v2_6' 'head: {"classes": 10}' \
    'inference_config: null'; do
    grep -qxF -- "$line" "$work/text" || bad "info has no line '$line': $(cat "$work/text")"
done
tabft-model info --json "$tiny" >"$work/json"
for field in '"parameters": 209418' '"classes": 10' '"emsize": 64' '"F32": 209418'; do
    grep -qF -- "$field" "$work/json" || bad "info --json has no $field"
done

status=0
tabft-model diff "$tiny" "$tiny" >"$work/text" || status=$?
{ [ "$status" = 0 ] && grep -q '^bit-identical: ' "$work/text"; } ||
    bad "diff with itself: $status, $(cat "$work/text")"

# The last byte but one of the last float is 0x80 or another; xor of its lowest bit through octal.
size=$(wc -c <"$tiny")
byte=$(od -An -tu1 -j "$((size - 2))" -N 1 "$tiny" | tr -d ' ')
{
    head -c "$((size - 2))" "$tiny"
    # shellcheck disable=SC2059 # the format is the byte
    printf "\\$(printf '%03o' "$((byte ^ 1))")"
    tail -c 1 "$tiny"
} >"$work/flipped.safetensors"
status=0
tabft-model diff --json "$tiny" "$work/flipped.safetensors" >"$work/json" || status=$?
[ "$status" = 1 ] || bad "diff of a flipped bit: status $status"
[ "$(grep -c '"name":' "$work/json")" = 1 ] ||
    bad "diff of a flipped bit names more than one tensor: $(cat "$work/json")"
for field in '"bit_identical": false' '"values_different": 1,' '"same_tensors": true' '"kind": "values"'; do
    grep -qF -- "$field" "$work/json" || bad "diff --json has no $field: $(cat "$work/json")"
done
status=0
good=$TABFT_DATA/cases/12-truncated-and-multipart-files/good.safetensors
tabft-model diff "$tiny" "$good" >"$work/text" || status=$?
{ [ "$status" = 1 ] && [ "$(grep -cx -e 'enc.b: only in b' -e 'metadata: different' "$work/text")" = 2 ]; } ||
    bad "diff of other files: $status, $(head -n 3 "$work/text")"

# A difference that could not be printed is a failure, not a difference.
if [ -e /dev/full ]; then
    status=0
    tabft-model diff "$tiny" "$good" >/dev/full 2>"$work/err" || status=$?
    { [ "$status" = 4 ] && grep -q 'No space left' "$work/err"; } || bad "diff on a full disk: $status, $(cat "$work/err")"
fi

# Wrong use.
for arguments in info "info $tiny $tiny" "diff $tiny" "verify --depth $tiny" 'init --arch tabpfn_v2_6' "init $work/x" \
    "init --arch tabpfn_v2_6 --seed -1 $work/x" "init --arch tabpfn_v2_6 --seed $work/x"; do
    status=0
    # shellcheck disable=SC2086 # words on purpose
    tabft-model $arguments >"$work/text" 2>"$work/err" || status=$?
    { [ "$status" = 2 ] && [ "$(wc -l <"$work/err")" = 1 ]; } ||
        bad "tabft-model $arguments: status $status, $(cat "$work/err")"
done
exit "$failed"
