#!/bin/sh
# Case 02: a byte-order mark, quoted names and CR LF do not show; other encodings are refused by name.
set -eu
# shellcheck source=tests/tools/prep/common.sh
. "$(dirname -- "$0")/common.sh"
folder=$(case_of 02)
printf 'plot,yield,site name\n1,2.5,north\n2,-0.125,"south ""B"""\n' >"$work/expected.csv"
for input in input input_bom_unquoted; do
    pack --target plot "$folder/$input.csv" -o "$work/$input.tbf"
    cat_is "$work/$input.tbf" "$work/expected.csv"
    tabft-prep info "$work/$input.tbf" | grep -q 'plot  (target, classification)' || bad "$input: plot cannot be the target"
    # The same under the same name but for the digest of the input: the packed columns are equal.
    tabft-prep info --json "$work/$input.tbf" | sed 's/.*"columns"://; s/,"provenance".*//' >"$work/$input.columns"
done
cmp -s "$work/input.columns" "$work/input_bom_unquoted.columns" || bad 'the two files give other columns'
refused 3 'UTF-16LE' "$folder/input_utf16le.csv"
refused 3 'no header' "$folder/input_bom_only.csv"
printf '\376\377\0a\0,\0b\0\n' >"$work/be.csv"
refused 3 'UTF-16BE' "$work/be.csv"
printf 'a,b\n1,caf\351\n' >"$work/latin.csv"
refused 3 'latin.csv:2:3: bytes that are not UTF-8' "$work/latin.csv"
printf 'a,b\n1,x\0y\n' >"$work/nul.csv"
refused 3 'nul.csv:2:3: a NUL byte' "$work/nul.csv"
# A name may hold a line feed and other odd bytes.
printf '"two\nwords",y\n1,2\n' >"$work/odd.csv"
pack "$work/odd.csv" -o "$work/odd.tbf"
cat_is "$work/odd.tbf" "$work/odd.csv"
exit "$failed"
