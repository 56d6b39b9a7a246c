#!/bin/sh
# Case 01: records with line feeds, CR LF and quotes inside quotes are the same 40 for every block size and number of
# threads, with LF and with CR LF at their ends; the bytes of the remarks are kept.
set -eu
# shellcheck source=tests/tools/prep/common.sh
. "$(dirname -- "$0")/common.sh"
command -v python3 >/dev/null || exit 77
input=$(case_of 01)/input.csv
cp -- "$input" "$work/input.csv"
blocks=$(seq 1 64)
blocks="$blocks 100 1370 5000"
every_way "$work/input.csv"
mv "$work/ways.tbf" "$work/lf.tbf"
# The same with CR LF at record ends, and only there.
python3 - "$input" "$work/crlf/input.csv" <<'END'
import csv, os, sys
os.makedirs(os.path.dirname(sys.argv[2]))
rows = list(csv.reader(open(sys.argv[1], newline="")))
csv.writer(open(sys.argv[2], "w", newline="")).writerows(rows)
END
blocks='1 2 3 7 16 31 64'
every_way "$work/crlf/input.csv"
for table in lf ways; do
    tabft-prep cat "$work/$table.tbf" >"$work/$table.csv"
    python3 - "$work/$table.csv" <<'END' || bad "$table: the records are not those of the case"
import csv, hashlib, sys
rows = list(csv.reader(open(sys.argv[1], newline="")))[1:]
assert len(rows) == 40, len(rows)
assert sum(int(r[0]) for r in rows) == 820 and sum(float(r[2]) for r in rows) == 195.0
remarks = [r[1].encode() for r in rows]
lengths = "8,12,13,16,49,8,12,13,16,54,8,12,13,16,59,8,12,13,16,64,8,12,13,16,69,8,12,13,16,74,8,12,13,16,79,8,12,13,16,84"
assert ",".join(str(len(r)) for r in remarks) == lengths
digest = hashlib.sha256(b"\x1e".join(remarks)).hexdigest()
assert digest == "7735c6d052768e7688ae86022877dd999478a09e067c0b6df6ee9952c9e398ff", digest
END
done
cmp -s "$work/lf.csv" "$work/ways.csv" || bad 'CR LF at record ends gives other cells'
exit "$failed"
