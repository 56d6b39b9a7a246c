#!/bin/sh
# R31: what columns, labels, files and folders are called is text and no more: newlines, escapes, markup, quotes, commands, a
# dash in front, 255 bytes, bytes that are no UTF-8. They come back as they were, JSON stays JSON, a terminal gets no control
# byte, and nothing is run. (What becomes of names in predictions is in tests/tools/eval/predict.sh.)
set -eu
# shellcheck source=tests/faults/writers.sh
. "${top_srcdir:?}/tests/faults/writers.sh"
command -v python3 >/dev/null || { echo 'python3 is not installed'; exit 77; }
cat >names.py <<'PY'
import csv, json, os, subprocess, sys
names = ['a\nb', 'a\r\nb', '\x1b[31mred', '<script>alert(1)</script>', '"', "'", '$(touch pwned)', '`touch pwned`', '; touch pwned',
         '-rf', '--force', '../up', '%s%n', '\\', 'é' * 120, '\u202eabc', '\x7f', 'x' * 255, ' lead', 'trail ', '{"a": 1}', '&amp;', 'NUL\u2400']
def run(*command, **more):
    return subprocess.run(command, capture_output=True, timeout=120, **more)
def sane(result, what):
    # JSON has no escape for DEL and needs none.
    for text, most in ((result.stderr, 126), (result.stdout, 127 if '--json' in result.args else 126)):
        bad = [b for b in text if (b < 32 and b != 10) or most < b < 128]
        assert not bad, (what, text)
    assert result.stderr.count(b'\n') <= 1 or result.returncode == 0, (what, result.stderr)
    return result
def must(*command):
    result = sane(run(*command), command[1])
    assert result.returncode == 0, (command, result.stderr)
    return result.stdout
# As columns and as labels, all at once.
with open('odd.csv', 'w', newline='', encoding='utf-8') as f:
    w = csv.writer(f)
    w.writerow(names + ['y'])
    for i, label in enumerate(names):
        w.writerow([f'{i}.5'] * len(names) + [label])
must('tabft-prep', 'pack', '--target', 'y', '--classes', '-o', 'odd.tbf', 'odd.csv')
info = json.loads(must('tabft-prep', 'info', '--json', 'odd.tbf'))
said = json.dumps(info, ensure_ascii=False)
def strings(v):
    if isinstance(v, dict): return [s for x in v.values() for s in strings(x)]
    if isinstance(v, list): return [s for x in v for s in strings(x)]
    return [v] if isinstance(v, str) else []
found = set(strings(info))
for name in names:
    assert name in found, ('not in info --json', name)
must('tabft-prep', 'info', 'odd.tbf')
out = run('tabft-prep', 'cat', 'odd.tbf').stdout.decode()
rows = list(csv.reader(out.splitlines(keepends=True)))
assert rows[0] == names + ['y'], rows[0]
assert [r[-1] for r in rows[1:]] == names
# As something that is wrong: names in messages.
for name in names:
    r = sane(run('tabft-prep', 'pack', '--target', name, '-o', 'no.tbf', 'table.csv'), 'pack')
    assert r.returncode in (2, 3), (name, r.stderr)
# As files and in folders.
for name in names + [b'\xff\xfe'.decode('utf-8', 'surrogateescape')]:
    if '/' in name or len(os.fsencode(name)) > 200: continue
    os.mkdir(os.path.join('.', 'd' + name))
    path = os.path.join('.', 'd' + name, name)
    with open('table.csv', 'rb') as a, open(path + '.csv', 'wb') as b: b.write(a.read())
    must('tabft-prep', 'pack', '--target', 'y', '-o', path, path + '.csv')
    must('tabft-prep', 'verify', path)
    json.loads(must('tabft-prep', 'info', '--json', path))
    with open(path, 'r+b') as f: f.truncate(100)
    r = sane(run('tabft-prep', 'verify', path), 'verify')
    assert r.returncode == 3, (name, r.stderr)
    if name.startswith('-'): # as a word of its own, after --
        r = sane(run('tabft-prep', 'verify', '--', name, cwd='d' + name), 'verify')
        assert r.returncode == 3, (name, r.stderr)
assert not os.path.exists('pwned') and not any('pwned' in f for _, d, fs in os.walk('.') for f in fs + d if f == 'pwned'), 'a command was run'
print(len(names), 'names')
PY
PYTHONUTF8=1 python3 names.py
