#!/bin/sh
# Case 07: tables of no and of one record.
set -eu
# shellcheck source=tests/tools/prep/common.sh
. "$(dirname -- "$0")/common.sh"
folder=$(case_of 07)
refused 3 'no header' "$folder/zero_bytes.csv"
refused 3 'no header' "$folder/blank_lines.csv"
for input in header_only header_no_newline; do
    pack "$folder/$input.csv" -o "$work/$input.tbf"
    said 'warning: the table has no rows'
    tabft-prep info "$work/$input.tbf" | grep -q ': 0 rows, 3 columns,' || bad "$input: $(tabft-prep info "$work/$input.tbf")"
    tabft-prep verify "$work/$input.tbf" >/dev/null || bad "$input: verify fails"
done
tabft-prep cat "$work/header_only.tbf" >"$work/cat.csv"
cmp -s "$work/cat.csv" "$folder/header_only.csv" || bad 'a header alone does not come back'
blocks='1 2 3 19 64'
every_way "$folder/one_record_no_newline.csv"
{ cat "$folder/one_record_no_newline.csv"; echo; } >"$work/expected.csv"
cat_is "$work/ways.tbf" "$work/expected.csv"
every_way "$folder/one_column_blank_line.csv"
said 'warning: 1 blank lines skipped'
tabft-prep info "$work/ways.tbf" | grep -q ': 2 rows, 1 columns,' || bad 'a blank line in a table of one column is not skipped'
# A missing cell in a table of one column comes back.
printf 'a\n1\n""\n3\n' >"$work/gap.csv"
pack "$work/gap.csv" -o "$work/gap.tbf"
cat_is "$work/gap.tbf" "$work/gap.csv"
exit "$failed"
