#!/bin/sh
# Case 12: a whole file passes; a cut, grown or zero-filled one is refused with its name, the bytes found and needed,
# or the
# checksum that says so; nothing is read as a tensor that is none.
set -eu
: "${TABFT_DATA:?}" "${top_srcdir:?}"
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
case12=$TABFT_DATA/cases/12-truncated-and-multipart-files
failed=0
bad() {
    echo "$*"
    failed=1
}
# refuse TEXT FILE...: info, verify and diff end with 3, nothing on stdout and one line that names the file and has
# TEXT.
refuse() {
    text=$1 file=$2
    for verb in info verify diff; do
        set -- "$verb" "$file"
        [ "$verb" != diff ] || set -- "$@" "$case12/good.safetensors"
        status=0
        tabft-model "$@" >"$work/out" 2>"$work/err" || status=$?
        [ "$status" = 3 ] || bad "$*: status $status"
        [ ! -s "$work/out" ] || bad "$*: prints on stdout"
        [ "$(wc -l <"$work/err")" = 1 ] || bad "$*: not one line"
        { grep -qF -- "$file" "$work/err" && grep -qF -- "$text" "$work/err"; } || bad "$*: $(cat "$work/err")"
    done
}
refuse '172 bytes found, 192 needed' "$case12/cut_in_data.safetensors"
refuse '40 bytes found, at least 128 needed' "$case12/cut_in_header.safetensors"
refuse '5 bytes found, at least 10 needed' "$case12/cut_at_5_bytes.safetensors"
refuse '0 bytes found, at least 10 needed' "$case12/zero_bytes.safetensors"
refuse '204 bytes found, 192 needed' "$case12/trailing_garbage.safetensors"
refuse 'nowhere.safetensors' "$work/nowhere.safetensors"
refuse "$work" "$work"

tabft-model verify "$case12/good.safetensors" >"$work/out"
grep -q 'ok, 2 tensors, no architecture recorded' "$work/out" || bad "good: $(cat "$work/out")"
tabft-model verify "$case12/zero_filled_tail.safetensors" >"$work/out"
grep -q 'not recorded beside it' "$work/out" || bad "a foreign file passes without a word: $(cat "$work/out")"

# The same tail of zeros where a checksum lies beside the file, in both places.
cp -- "$case12/good.safetensors" "$work/model.safetensors"
(cd -- "$work" && sha256sum model.safetensors >model.safetensors.sha256)
tabft-model verify "$work/model.safetensors" | grep -q 'PATH.sha256' || bad 'the checksum beside the file is not used'
cp -- "$case12/zero_filled_tail.safetensors" "$work/model.safetensors"
status=0
tabft-model verify "$work/model.safetensors" >"$work/out" 2>"$work/err" || status=$?
{ [ "$status" = 3 ] && grep -q 'damaged or replaced' "$work/err"; } ||
    bad "zero-filled tail: status $status, $(cat "$work/err")"
digest=$(cut -c 1-64 "$work/model.safetensors.sha256")
rm -- "$work/model.safetensors.sha256"
printf '{"schema": 1, "model_sha256": "%s"}\n' "$digest" >"$work/run.json"
status=0
tabft-model verify "$work/model.safetensors" >"$work/out" 2>"$work/err" || status=$?
{ [ "$status" = 3 ] && grep -q 'run.json says' "$work/err"; } || bad "run.json: status $status, $(cat "$work/err")"

# A network: names and shapes are checked as well.
tiny=$top_srcdir/share/models/tiny-v2_6-classifier.safetensors
tabft-model verify --json "$tiny" >"$work/out"
grep -q '"architecture": "tabpfn_v2_6"' "$work/out" || bad "tiny: $(cat "$work/out")"
LC_ALL=C sed 's/row_token_values_TE/row_token_values_ET/' "$tiny" >"$work/renamed.safetensors"
status=0
tabft-model verify "$work/renamed.safetensors" >"$work/out" 2>"$work/err" || status=$?
{ [ "$status" = 3 ] && grep -q 'row_token_values' "$work/err"; } ||
    bad "renamed tensor: status $status, $(cat "$work/err")"
# 0xffffffff is a NaN: the last four bytes of the file.
size=$(wc -c <"$tiny")
{ head -c "$((size - 4))" "$tiny" && printf '\377\377\377\377'; } >"$work/nan.safetensors"
status=0
tabft-model verify "$work/nan.safetensors" >"$work/out" 2>"$work/err" || status=$?
{ [ "$status" = 3 ] && grep -q 'is not finite' "$work/err"; } || bad "NaN: status $status, $(cat "$work/err")"
exit "$failed"
