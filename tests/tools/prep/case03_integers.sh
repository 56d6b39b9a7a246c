#!/bin/sh
# Case 03: 64-bit integers stay exact beside a gap, and those beyond 64 bits stay exact as text.
set -eu
# shellcheck source=tests/tools/prep/common.sh
. "$(dirname -- "$0")/common.sh"
folder=$(case_of 03)
blocks='1 2 20 40'
every_way "$folder/input.csv"
said 'column subject_key: 5 of 6 integers are beyond what a float64 holds'
said 'column subject_key: 1 of 7 cells are missing (empty 1)'
tabft-prep cat "$work/ways.tbf" | cut -d, -f1 >"$work/keys"
cat >"$work/expected" <<'END'
subject_key
9007199254740993

9007199254740992
1690000000000000007
-9223372036854775807
9223372036854775807
1690000000000000009
END
cmp -s "$work/keys" "$work/expected" || bad "keys: $(cat "$work/keys")"
tabft-prep info "$work/ways.tbf" | grep -q '^integer  i64           1 missing  subject_key' || bad 'subject_key is no integer column'
pack "$folder/input_too_big.csv" -o "$work/big.tbf"
said 'input_too_big.csv:2:1: column subject_key is text, which keeps it exact'
tabft-prep cat "$work/big.tbf" >"$work/big.csv"
cut -d, -f1 "$folder/input_too_big.csv" | tr -d '\r' >"$work/big.expected"
cut -d, -f1 "$work/big.csv" | cmp -s - "$work/big.expected" || bad "too big: $(cat "$work/big.csv")"
printf 'a\n9223372036854775807\n-9223372036854775808\n' >"$work/ends.csv"
pack "$work/ends.csv" -o "$work/ends.tbf"
cat_is "$work/ends.tbf" "$work/ends.csv"
exit "$failed"
