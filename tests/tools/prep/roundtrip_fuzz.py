"""Random tables through tabft-prep and back; see roundtrip_fuzz.sh. Usage: roundtrip_fuzz.py TABLES [FIRST_SEED]"""
import csv
import io
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile

WORDS = ["a", "B12", "north", "x,y", 'say "hi"', "two\nlines", "cr\r\nlf", "\u00e9t\u00e9", " lead", "trail ", "NA", "007", "1e400", "-", "\U0001f600"]
MISSING = {"", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "-nan", "-NaN", "null", "NULL", "None"}


def number(r):
    kind = r.randrange(8)
    if kind == 0:
        return struct.unpack("<d", struct.pack("<Q", r.getrandbits(64)))[0]
    if kind == 1:
        return round(r.gauss(0, 100), r.randrange(12))
    if kind == 2:
        return float(r.randrange(-1000, 1000)) / 8
    return r.gauss(0, 1) * 10.0 ** r.randrange(-30, 30)


def float_text(r):
    v = number(r)
    if not math.isfinite(v):
        return "nan"
    return r.choice([repr(v), "%.17g" % v, "%.20e" % v, "%r" % v])


def column(r, n):
    kind = r.choice(["float", "integer", "text", "boolean", "mixed", "empty", "big"])
    make = {
        "float": lambda: float_text(r), "integer": lambda: str(r.randrange(-10 ** r.randrange(1, 19), 10 ** 18)),
        "text": lambda: r.choice(WORDS), "boolean": lambda: r.choice(["true", "false"]),
        "mixed": lambda: r.choice([float_text(r), r.choice(WORDS), str(r.randrange(100))]), "empty": lambda: "",
        "big": lambda: str(r.randrange(10 ** 25)),
    }[kind]
    gaps = r.choice([0, 0, 0.1, 0.9])
    return [r.choice(["", "NA"] if kind != "text" else [""]) if r.random() < gaps else make() for _ in range(n)]


def run(*command, data=None):
    done = subprocess.run(command, input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise AssertionError("%s: %d %s" % (" ".join(command), done.returncode, done.stderr.decode()))
    return done.stdout


def same_cell(kind, got, want):
    if kind == "text":
        return got == want
    if got == "" or want.strip(" \t") in MISSING:
        return got == "" and want.strip(" \t") in MISSING
    if kind == "float":
        return struct.pack("<d", float(got)) == struct.pack("<d", float(want))
    if kind == "integer":
        return int(got) == int(want)
    return got == want


def columns_of(path):
    info = json.loads(run("tabft-prep", "info", "--json", path))
    return info["columns"], info["rows"]


def one(seed, folder):
    r = random.Random(seed)
    n, width = r.choice([0, 1, 2, 7, 50, 200]), r.randrange(1, 9)
    names = ["c%d%s" % (i, r.choice(["", ",", '"', "\n", " "])) for i in range(width)]
    cells = [column(r, n) for _ in range(width)]
    text = io.StringIO()
    out = csv.writer(text, lineterminator=r.choice(["\n", "\r\n"]), quoting=r.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    out.writerow(names)
    for row in zip(*cells):
        out.writerow(row)
    data = text.getvalue().encode()
    if r.random() < 0.3 and n > 0 and not data.endswith(b'"\n'):
        data = data.rstrip(b"\r\n") if cells[-1][-1] != "" and not cells[-1][-1].endswith(("\r", "\n")) else data
    a, b, again = (os.path.join(folder, name) for name in ("a.tbf", "b.tbf", "again.tbf"))
    run("tabft-prep", "pack", "--quiet", "--force", "-o", a, "-", data=data)
    run("tabft-prep", "pack", "--quiet", "--force", "--threads", str(r.randrange(1, 4)), "--block-bytes", str(r.randrange(1, 300)), "-o", b, "-", data=data)
    assert open(a, "rb").read() == open(b, "rb").read(), "blocks show"
    described, rows = columns_of(a)
    assert rows == n and [c["name"] for c in described] == names, (rows, described)
    back = run("tabft-prep", "cat", a)
    got = list(csv.reader(io.StringIO(back.decode(), newline="")))
    want = list(csv.reader(io.StringIO(data.decode(), newline="")))
    assert len(got) == len(want) and got[0] == want[0]
    for g, w in zip(got[1:], want[1:]):
        for i in range(width):
            assert same_cell(described[i]["kind"], g[i], w[i]), (described[i], g[i], w[i])
    run("tabft-prep", "pack", "--quiet", "--force", "-o", again, "-", data=back)
    assert columns_of(again)[0] == described, (columns_of(again)[0], described)
    assert run("tabft-prep", "cat", again) == back
    assert run("tabft-prep", "verify", again).endswith(b": ok\n")


def main():
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + int(sys.argv[1])):
            try:
                one(seed, folder)
            except AssertionError as e:
                sys.exit("table of seed %d: %s" % (seed, e))


main()
