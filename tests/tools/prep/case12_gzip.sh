#!/bin/sh
# Case 12: all members of a gzipped input are read; a cut or damaged one, or bytes behind the last, fail and leave nothing.
set -eu
# shellcheck source=tests/tools/prep/common.sh
. "$(dirname -- "$0")/common.sh"
folder=$(case_of 12)
pack "$folder/two_members.csv.gz" -o "$work/two.tbf"
tabft-prep cat "$work/two.tbf" >"$work/two.csv"
awk -F, 'NR > 1 { rows++; sum += $1 } $1 == 500 && $2 != 31 { exit 1 } END { exit !(rows == 1000 && sum == 499500) }' "$work/two.csv" ||
    bad 'not the 1000 records of the two members'
refused 3 'gzip member 2 is damaged' "$folder/two_members_bad_crc.csv.gz"
refused 3 'gzip member 2 ends after 3068 bytes' "$folder/two_members_cut.csv.gz"
for size in 1 9 20 1000 1549 1550 3090; do
    head -c "$size" "$folder/two_members.csv.gz" >"$work/cut.csv.gz"
    refused 3 'cut.csv.gz' "$work/cut.csv.gz"
done
{ cat "$folder/two_members.csv.gz"; echo more; } >"$work/more.csv.gz"
refused 3 'gzip member 3 is damaged' "$work/more.csv.gz"
exit "$failed"
