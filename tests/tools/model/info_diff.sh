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
    'tasks: ["classification"]' \
    'trained_parameters: {"classification": 209418}' 'limits: {"classes": 10, "features": 2000, "rows": 50000}' \
    "limits_from: TabPFN's preset for the architecture" 'license: not recorded in the file' \
    'inference_config: not recorded in the file'; do
    grep -qxF -- "$line" "$work/text" || bad "info has no line '$line': $(cat "$work/text")"
done
tabft-model info --json "$tiny" >"$work/json"
for field in '"parameters": 209418' '"classes": 10' '"emsize": 64' '"F32": 209418' '"license": null'; do
    grep -qF -- "$field" "$work/json" || bad "info --json has no $field"
done

# A regressor has no limit of classes; v2's tables are smaller; both tasks have their trained parameters.
reference=$TABFT_DATA/reference
# says FILE LINE...: info has these lines
says() {
    file=$1
    shift
    tabft-model info "$file" >"$work/text"
    for line; do
        grep -qxF -- "$line" "$work/text" || bad "info of $file has no line '$line': $(cat "$work/text")"
    done
}
says "$reference/v2_reg.model.safetensors" 'tasks: ["regression"]' 'head: {"buckets": 50}' \
    'limits: {"features": 500, "rows": 10000}' 'network: tabpfn_v2'
says "$reference/v3_5.model.safetensors" 'tasks: ["classification", "regression"]' \
    'trained_parameters: {"classification": 178402, "regression": 177044}' 'head: {"classes": 10, "buckets": 50}'
# Limits and terms that are in the file. The header's length is its first eight bytes, least first.
header=$(tr -d '\n' <<'EOF'
{"__metadata__":{"architecture_name":"\"tabpfn_v2\"","config":"{\"max_num_classes\":4}",
"license":"Example terms 1.1","license_url":"\"https://example.org/terms\"",
"inference_config":"{\"MAX_NUMBER_OF_CLASSES\":160,\"MAX_NUMBER_OF_FEATURES\":777,\"MAX_NUMBER_OF_SAMPLES\":null}"}}
EOF
)
# shellcheck disable=SC2059 # the format is the length
{
    printf "\\$(printf '%03o' $((${#header} % 256)))\\$(printf '%03o' $((${#header} / 256)))\\0\\0\\0\\0\\0\\0"
    printf '%s' "$header"
} >"$work/terms.safetensors"
says "$work/terms.safetensors" 'head: {"classes": 4}' 'limits: {"classes": 160, "features": 777, "rows": null}' \
    'limits_from: inference_config' 'license: Example terms 1.1' 'license_url: https://example.org/terms'
# A limit that cannot be one is refused.
sed 's/:160/:1.5/' "$work/terms.safetensors" >"$work/wrong.safetensors"
status=0
tabft-model info "$work/wrong.safetensors" >"$work/text" 2>"$work/err" || status=$?
{ [ "$status" = 3 ] && grep -q 'MAX_NUMBER_OF_CLASSES is no whole number above 0' "$work/err"; } ||
    bad "a limit of 1.5: $status, $(cat "$work/err")"
# A file that is no network's is described all the same.
says "$TABFT_DATA/cases/12-truncated-and-multipart-files/good.safetensors" 'tensors: 2' 'tasks: []' \
    'no_network_because: metadata has no config; is this a TabPFN checkpoint?'

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
