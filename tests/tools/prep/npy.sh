#!/bin/sh
# NPY matrices of all types that are read come back as their numbers; others are refused by name, and so are headers that are
# not what numpy writes.
set -eu
# shellcheck source=tests/tools/prep/common.sh
. "$(dirname -- "$0")/common.sh"
command -v python3 >/dev/null || exit 77
python3 - "$work" <<'END'
import os, struct, sys
os.chdir(sys.argv[1])

def npy(name, descr, shape, data, version=1, fortran=False, header=None):
    text = header or "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (descr, fortran, shape)
    head = text.encode()
    size = "<H" if version == 1 else "<I"
    pad = -(8 + struct.calcsize(size) + len(head) + 1) % 64
    head += b" " * pad + b"\n"
    open(name, "wb").write(b"\x93NUMPY" + bytes([version, 0]) + struct.pack(size, len(head)) + head + data)

def expect(name, rows):
    with open(name, "w") as f:
        f.write(",".join("x%d" % i for i in range(len(rows[0]))) + "\n")
        for r in rows:
            f.write(",".join(r) + "\n")

nan = float("nan")
npy("f8.npy", "<f8", "(2, 3)", struct.pack("<6d", 0.1, -0.0, nan, 5e-324, 1e23, 2))
expect("f8.csv", [["0.1", "-0.0", ""], ["5e-324", "1e+23", "2.0"]])
npy("f4.npy", "<f4", "(2,)", struct.pack("<2f", 0.5, 3.25), version=2)
expect("f4.csv", [["0.5"], ["3.25"]])
for width, code in (1, "b"), (2, "h"), (4, "i"), (8, "q"):
    low, high = -(1 << 8 * width - 1), (1 << 8 * width - 1) - 1
    npy("i%d.npy" % width, ("|" if width == 1 else "<") + "i%d" % width, "(2, 2)", struct.pack("<4" + code, low, high, 0, -1), version=3)
    expect("i%d.csv" % width, [[str(low), str(high)], ["0", "-1"]])
    npy("u%d.npy" % width, ("|" if width == 1 else "<") + "u%d" % width, "(1, 2)", struct.pack("<2" + code.upper(), high, 7))
    expect("u%d.csv" % width, [[str(high), "7"]])
npy("bool.npy", "|b1", "(2, 2)", bytes([0, 1, 1, 0]))
expect("bool.csv", [["false", "true"], ["true", "false"]])
many = list(range(40000))
npy("many.npy", "<i4", "(20000, 2)", struct.pack("<40000i", *many))
expect("many.csv", [[str(a), str(a + 1)] for a in many[::2]])

one = struct.pack("<d", 1)
npy("object.npy", "|O", "(1,)", one)
npy("big.npy", ">f8", "(1,)", one)
npy("half.npy", "<f2", "(1,)", one[:2])
npy("complex.npy", "<c8", "(1,)", one)
npy("fortran.npy", "<f8", "(2, 2)", one * 4, fortran=True)
npy("cube.npy", "<f8", "(1, 1, 1)", one)
npy("short.npy", "<f8", "(2,)", one)
npy("long.npy", "<f8", "(1,)", one * 2)
npy("wide.npy", "<f8", "(9223372036854775807, 3)", one)
npy("huge.npy", "<u8", "(1,)", b"\xff" * 8)
npy("call.npy", "", "", one, header="__import__('os').system('touch called')")
npy("key.npy", "", "", one, header="{'descr': '<f8', 'fortran_order': False, 'shape': (1,), 'more': 1}")
npy("twice.npy", "", "", one, header="{'descr': '<f8', 'shape': (1,), }")
open("version.npy", "wb").write(b"\x93NUMPY\x04\0" + b"\0" * 60)
open("cut.npy", "wb").write(open("f8.npy", "rb").read()[:40])
END
cd -- "$work"
for type in f8 f4 i1 i2 i4 i8 u1 u2 u4 u8 bool many; do
    blocks='1 100 4097'
    every_way "$type.npy"
    cat_is ways.tbf "$type.csv"
done
gzip -k f8.npy
pack f8.npy.gz -o gz.tbf
cat_is gz.tbf f8.csv
pack many.npy many.npy -o two.tbf
tabft-prep info two.tbf | grep -q ': 40000 rows, 2 columns' || bad 'two files do not make one table'
pack --target x1 bool.npy -o target.tbf
tabft-prep info target.tbf | grep -qx '2 labels: false true' || bad 'a boolean target'
refused 3 'object.npy: holds Python objects' object.npy
for file in big half complex; do refused 3 "$file.npy: type" "$file.npy"; done
refused 3 'lies in Fortran order' fortran.npy
refused 3 '3 dimensions' cube.npy
for file in short long; do refused 3 'do not make' "$file.npy"; done
refused 3 'beyond 2^63-1' huge.npy
for file in call key twice wide; do refused 3 'the NPY header is not as numpy writes it' "$file.npy"; done
[ ! -e called ] || bad 'a header was evaluated'
refused 3 'NPY version 4.0' version.npy
refused 3 'an NPY header of' cut.npy
refused 3 'text and NPY files' f8.npy many.csv
refused 3 'holds other numbers' f8.npy bool.npy
exit "$failed"
