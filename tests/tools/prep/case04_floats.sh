#!/bin/sh
# Case 04: every bit of 20 hard decimals, whatever the locale, with blanks around them, and with a decimal comma where it
# is asked for. They come back from cat as what Python's float() makes of the input.
set -eu
# shellcheck source=tests/tools/prep/common.sh
. "$(dirname -- "$0")/common.sh"
command -v python3 >/dev/null || exit 77
folder=$(case_of 04)
blocks='1 3 17 64'
every_way "$folder/input.csv"
cat >"$work/bits" <<'END'
4087300009c07322 4081400009f62307 407be3be76c8b439 407b00284dfce315 408166ac083126e9 406e57ced916872b 2676e6bf2e548982
19057bd86c825070 05570e3ad994ed36 22fe0434d2af2f13 3ba9ac6671a7a5d2 3fb999999999999a 8000000000000000 0000000000000001
0010000000000000 7fefffffffffffff 437b69b4ba630f35 44b52d02c7e14af6 4340000000000000 416db87910000000
END
check_bits() {
    tabft-prep cat "$1" >"$work/values.csv"
    python3 - "$work/values.csv" "$work/bits" <<'END' || bad "$1: other bits"
import csv, struct, sys
got = [struct.pack(">d", float(r["value"])).hex() for r in csv.DictReader(open(sys.argv[1]))]
want = open(sys.argv[2]).read().split()
assert got == want, [(g, w) for g, w in zip(got, want) if g != w]
END
}
check_bits "$work/ways.tbf"
locales=$(locale -a 2>/dev/null | grep -iE '^(de_DE|fr_FR|nl_NL)\.?(utf-?8)?$' | head -n 1)
for locale in C C.UTF-8 ${locales:-de_DE.UTF-8}; do
    LC_ALL=$locale pack "$folder/input.csv" -o "$work/locale.tbf"
    cmp -s "$work/locale.tbf" "$work/ways.tbf" || bad "LC_ALL=$locale gives other bytes"
done
pack "$folder/input_padded.tsv" -o "$work/padded.tbf"
check_bits "$work/padded.tbf"
printf 'row,value\n1,3.25\n2,-0.5\n3,1000.0\n' >"$work/comma.csv"
pack --delimiter ';' --decimal , "$folder/input_decimal_comma.csv" -o "$work/comma.tbf"
cat_is "$work/comma.tbf" "$work/comma.csv"
# Without --decimal they are texts, with a warning; without --delimiter the line is named.
pack --delimiter ';' "$folder/input_decimal_comma.csv" -o "$work/text.tbf"
said 'input_decimal_comma.csv:2:3: column value is text because of "3,25"'
refused 3 'input_decimal_comma.csv:2:' "$folder/input_decimal_comma.csv"
# float32 where every value is one, else whole numbers over a power of ten where every value is one, else float64.
{ echo x; seq 1 70000 | sed 's/$/.5/'; } >"$work/f32.csv"
{ cat "$work/f32.csv"; echo 0.1; } >"$work/d32.csv"
{ cat "$work/d32.csv"; echo 1e-10; } >"$work/f64.csv"
{ cat "$work/d32.csv"; echo -0.0; } >"$work/zero.csv"
{ echo x; seq 1 300 | sed 's/^/-/; s/$/.7/'; echo '""'; echo 0.0; } >"$work/d16.csv"
for kind in f32 d32 d16 f64 zero; do
    pack "$work/$kind.csv" -o "$work/$kind.tbf"
    cat_is "$work/$kind.tbf" "$work/$kind.csv"
done
for kind in f32 d32 d16 f64 zero; do
    tabft-prep info "$work/$kind.tbf" | grep -q "^float    $(echo $kind | sed s/zero/d32/)" || bad "$kind.csv is stored otherwise"
done
tabft-prep info --json "$work/d16.tbf" | grep -q '"storage": *"d16", *"decimals": *1' || bad 'info --json does not tell the decimals'
# The bits of a part do not depend on how many places its own values have.
printf 'x\n0.5\n2\n' >"$work/a.csv"
printf 'x\n0.25\n-0\n-0.0\n' >"$work/b.csv"
printf 'x\n0.001\n-7.10\n' >"$work/c.csv"
for k in a b c; do pack "$work/$k.csv" -o "$work/$k.tbf"; done
pack "$work/a.csv" "$work/b.csv" "$work/c.csv" -o "$work/abc.tbf"
tabft-prep merge --quiet --force -o "$work/merged.tbf" "$work/a.tbf" "$work/b.tbf" "$work/c.tbf"
cmp -s "$work/abc.tbf" "$work/merged.tbf" || bad 'decimals merged are others than those of one pack'
printf 'x\n1e400\n1\n' >"$work/huge.csv"
pack "$work/huge.csv" -o "$work/huge.tbf"
said 'huge.csv:2:1: column x is text because of "1e400"'
printf 'x\n-inf\nInfinity\n1.5\n' >"$work/inf.csv"
pack "$work/inf.csv" -o "$work/inf.tbf"
said 'column x: 2 cells are infinite'
exit "$failed"
