#!/bin/sh
# Case 08: a column has one kind, which follows from all its cells, also where the last ones decide.
set -eu
# shellcheck source=tests/tools/prep/common.sh
. "$(dirname -- "$0")/common.sh"
command -v python3 >/dev/null || exit 77
input=$(case_of 08)/input.csv
blocks='100 500 4096 20000'
every_way "$input"
said 'input.csv:2999:1: column code is text because of "B12"'
tabft-prep info "$work/ways.tbf" >"$work/info"
for line in ': 3000 rows, 4 columns' 'code  47 texts' 'city  5 texts'; do grep -q "$line" "$work/info" || bad "no '$line' in $(cat "$work/info")"; done
tabft-prep cat "$work/ways.tbf" >"$work/cat.csv"
python3 - "$work/cat.csv" "$input" <<'END' || bad 'cells are not those of the input'
import csv, sys
got, want = (list(csv.DictReader(open(name, newline=""))) for name in sys.argv[1:])
assert len(got) == 3000 and sum(r["code"] == "7" for r in got) == 302
assert any(r["city"] == "Lake, East" for r in got) and got[-1]["val"] == "2.5"
for g, w in zip(got, want):
    assert g["code"] == w["code"] and g["city"] == w["city"] and float(g["val"]) == float(w["val"])
END
# From a pipe and from gzip too, which are read twice all the same.
tabft-prep pack --quiet -o - - <"$input" >"$work/pipe.tbf" 2>"$work/err" || bad "from a pipe: $(cat "$work/err")"
tabft-prep cat "$work/pipe.tbf" | cmp -s - "$work/cat.csv" || bad 'a pipe gives another table'
gzip -c "$input" >"$work/input.csv.gz"
pack "$work/input.csv.gz" -o "$work/gz.tbf"
tabft-prep cat "$work/gz.tbf" | cmp -s - "$work/cat.csv" || bad 'gzip gives another table'
exit "$failed"
