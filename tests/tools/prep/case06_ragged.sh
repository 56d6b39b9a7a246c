#!/bin/sh
# Case 06: records of another length and quotes that never close are refused with their line, whatever the block size; no
# value lands under another column's name; nothing is left behind.
set -eu
# shellcheck source=tests/tools/prep/common.sh
. "$(dirname -- "$0")/common.sh"
folder=$(case_of 06)
for block in 1 2 3 50 120 121 500 1048576; do
    for threads in 1 2; do
        set -- --block-bytes "$block" --threads "$threads"
        refused 3 'long_row_late.csv:122:13: 4 fields, expected 3' "$@" "$folder/long_row_late.csv"
        refused 3 'short_row.csv:3:1: 2 fields, expected 3' "$@" "$folder/short_row.csv"
        refused 3 'trailing_rows.csv:2:12: 4 fields, expected 3' "$@" "$folder/trailing_rows.csv"
        refused 3 'trailing_all.csv:1:13: a column has no name, so cells from line 2' "$@" "$folder/trailing_all.csv"
        refused 3 'trailing_header.csv:1:13: a column has no name, so cells from line 2' "$@" "$folder/trailing_header.csv"
        refused 3 'unclosed_quote.csv:2:4: the quote that opens here is never closed' "$@" "$folder/unclosed_quote.csv"
    done
done
pack --fill-short "$folder/short_row.csv" -o "$work/short.tbf"
said 'warning: 1 short records filled with missing cells'
printf 'a,b\n1,x"y"\n' >"$work/stray.csv"
refused 3 'stray.csv:2:4: a quote inside an unquoted cell' "$work/stray.csv"
printf 'a,b\n1,"x"y\n' >"$work/behind.csv"
refused 3 'behind.csv:2:6: text after a closing quote' "$work/behind.csv"
printf 'a,b\r1,2\r' >"$work/cr.csv"
refused 3 'cr.csv:1:4: a carriage return without line feed' "$work/cr.csv"
printf 'a,b,a\n1,2,3\n' >"$work/twice.csv"
refused 3 'two columns are called a' "$work/twice.csv"
printf 'a,b\n1,2\n' >"$work/one.csv"
printf 'a,c\n1,2\n' >"$work/two.csv"
refused 3 'two.csv: column 2 is called c, and b in' "$work/one.csv" "$work/two.csv"
# A quote that swallows the file is named where it opens, once the record is longer than any may be.
{ printf 'a,b\n1,"x\n'; head -c 40000000 /dev/zero | tr '\0' 'y'; } >"$work/long.csv"
refused 3 'long.csv:2:1: a record longer than 16777216 bytes begins here' "$work/long.csv"
# An existing file is refused and stays.
cp -- "$work/one.csv" "$work/kept.tbf"
status=0
tabft-prep pack -o "$work/kept.tbf" "$work/one.csv" 2>"$work/err" || status=$?
[ "$status" = 2 ] || bad "an existing output: status $status"
said 'kept.tbf: exists already'
cmp -s "$work/one.csv" "$work/kept.tbf" || bad 'an existing output was changed'
exit "$failed"
