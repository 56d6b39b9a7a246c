#!/bin/sh
# tabft-eval report: the figures of run.json and the log are on the page, of ended and of unfinished runs; the page is well-formed,
# runs nothing and fetches nothing, whatever things are called; what is no run is refused by its place.
set -eu
: "${top_srcdir:?}"
command -v python3 >/dev/null || { echo 'python3 is not installed'; exit 77; }
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
cd -- "$work"
fail() {
    printf 'FAILED: %s\n' "$*" >&2
    [ ! -s said ] || cat said >&2
    exit 1
}
# refuses STATUS TEXT ARGUMENT...: one line with TEXT, and no page.
refuses() {
    expected=$1 text=$2
    shift 2
    status=0
    tabft-eval report "$@" >said 2>&1 || status=$?
    [ "$status" = "$expected" ] || fail "report $*: status $status instead of $expected"
    { [ "$(wc -l <said)" = 1 ] && grep -qF -- "$text" said; } || fail "report $*: not one line with '$text'"
    [ ! -e no.html ] || fail "report $*: a page is left"
}
cat >page.py <<'PY'
import json, sys, xml.etree.ElementTree as E
tag = '{http://www.w3.org/1999/xhtml}'
root = E.parse(sys.argv[1]).getroot()  # well-formed, or an exception
def text(e): return ''.join(e.itertext()).strip()
def table(head):  # the first below the heading
    found = False
    for e in root.iter():
        if e.tag == tag + 'h2': found = text(e) == head
        if found and e.tag == tag + 'table': return [[text(c) for c in r if c.tag in (tag + 'td', tag + 'th')] for r in e.iter(tag + 'tr')]
    raise AssertionError('no table ' + head)
for e in root.iter():
    assert e.tag not in (tag + 'script', tag + 'img', tag + 'iframe', tag + 'link', tag + 'object', tag + 'a'), e.tag
    for k, v in e.attrib.items(): assert not k.startswith('on') and 'http' not in v and 'javascript' not in v, (k, v)
PY
head -n 121 "$top_srcdir/share/examples/parity_train.csv" >train.csv
tabft-prep pack --quiet --target y -o train.tbf train.csv
for lr in 1e-3 1e-4; do
    tabft-train --model "$top_srcdir/tests/data/reference/v2_6_cls.model.safetensors" --data train.tbf --out "run$lr" --epochs 2 \
        --estimators 2 --chunk-rows 50 --threads 1 --lr "$lr" >said 2>&1 || fail 'training'
done
tabft-eval report -o page.html run1e-3 run1e-4 || fail 'report'
tabft-eval report -o - run1e-3 run1e-4 | cmp - page.html || fail 'another page the second time'
cat page.py - >look.py <<'PY'
results = table('Results')
for i, run in enumerate(('run1e-3', 'run1e-4')):
    record = json.load(open(run + '/run.json'))
    steps = [json.loads(l) for l in open(run + '/metrics.jsonl') if '"kind":"step"' in l]
    row = dict(zip(results[0], results[1 + i]))
    assert row['run'] == run and row['metric'] == 'roc_auc' and row['ended by'] == record['ended_by'], row
    for name, value in (('before', record['base_metric']), ('best', record['best_metric']), ('at epoch', record['best_epoch']),
                        ('epochs', record['epochs_run']), ('steps', record['steps']), ('steps', len(steps)), ('seconds', record['seconds']),
                        ('ranks', 1), ('s a step', sum(sorted(s['seconds'] for s in steps)[k] for k in ((len(steps) - 1) // 2, len(steps) // 2)) / 2)):
        assert abs(float(row[name]) - value) <= 1e-4 * abs(value), (name, row[name], value)
    phases = table('Where the time of a step goes')
    for k, phase in enumerate(phases[0][1:]):
        mean = sum(s['phases'][phase] for s in steps) / len(steps)
        assert abs(float(phases[1 + i][1 + k].split(' s')[0]) - mean) <= 6e-3 * mean, (phase, phases[1 + i][1 + k], mean)
different = table('Options that differ')
assert {r[0]: r[1:] for r in different[1:]} == {'out': ['run1e-3', 'run1e-4'], 'learning_rate': ['0.001', '0.0001']}, different
same = {r[0]: r[1] for r in table('Options that all have')}
assert same['estimators'] == '2' and same['schedule'] == 'cosine' and 'out' not in same, same
assert len(same) + 2 == len(record['options']), 'options are missing'
origin = {r[0]: r[1:] for r in table('What it was computed from, by and on')[1:]}
assert origin['model_sha256'] == [json.load(open(r + '/run.json'))['model_sha256'] for r in ('run1e-3', 'run1e-4')]
# A line a run in each of three charts, with a point a step; in the second a point for each validation.
charts = [e for e in root.iter(tag + 'svg') if e.get('role') == 'img']
lines = [[p.get('points').split() for p in c.iter(tag + 'polyline')] for c in charts]
assert [[len(l) for l in chart] for chart in lines] == [[record['steps']] * 2, [3, 3], [record['steps']] * 2], lines
# Higher is up, later is to the right; the losses of a run in order.
for line, run in zip(lines[0], ('run1e-3', 'run1e-4')):
    losses = [json.loads(l)['loss'] for l in open(run + '/metrics.jsonl') if '"kind":"step"' in l]
    at = [tuple(map(float, p.split(','))) for p in line]
    assert at == sorted(at), at
    for a in range(len(at)):
        for b in range(a):
            assert (losses[a] - losses[b]) * (at[a][1] - at[b][1]) <= 0 or abs(at[a][1] - at[b][1]) < 0.2, (run, a, b)
PY
python3 look.py page.html || fail 'the page is not what the runs say'

# A run that goes on: no run.json yet, losses that are no numbers, a last line that is half there; with more steps than are drawn.
mkdir on
cp run1e-3/run.json run1e-3/metrics.jsonl on # of an older run, which it replaces
{
    echo '{"kind":"validation","step":0,"epoch":0,"mse":2.5,"mae":1.0,"r2":null,"train_loss":null,"best":true,"seconds":1}'
    awk 'BEGIN { for (i = 1; i <= 1234; i++) printf "{\"kind\":\"step\",\"step\":%d,\"epoch\":1,\"loss\":%s,\"seconds\":0.5}\n", i, i == 7 ? "null" : 1 / i }'
    printf '{"kind":"step","step":1235,"epo'
} >on/metrics.jsonl.partial
tabft-eval report -o on.html on run1e-3 || fail 'a run that goes on'
cat page.py - >look.py <<'PY'
row = dict(zip(*table('Results')[:2]))
assert row['run'] == 'on' and row['steps'] == '1234' and row['metric'] == 'mse' and row['s a step'] == '0.5' and 'not ended' in row['ended by'], row
points = [p for c in root.iter(tag + 'svg') for p in c.iter(tag + 'polyline')][0].get('points').split()
assert 300 < len(points) <= 500, len(points)
PY
python3 look.py on.html || fail 'the page of a run that goes on'
# Nothing to draw, one point, one value, values that are far apart or no numbers: a page all the same.
n=0
for values in '' 0.5 '0.5 0.5' '1e308 -1e308' '1e-320 2e-320' 'null null' '1e17 100000000000000016' '-0.0 0.0'; do
    n=$((n + 1))
    mkdir "odd$n"
    step=0
    for value in $values; do
        step=$((step + 1))
        printf '{"kind":"step","step":%d,"epoch":1,"loss":%s,"seconds":%s}\n' "$step" "$value" "$value"
    done >"odd$n/metrics.jsonl.partial"
    timeout 60 tabft-eval report -o odd.html --force "odd$n" || fail "values '$values'"
    python3 page.py odd.html || fail "values '$values': no page"
    ! grep -qE '(nan|inf)[ ",<]' odd.html || fail "values '$values': drawn at no place"
done

# What things are called is text.
python3 - <<'PY'
import json, os
names = ['<script>alert(1)<script>', '"&\'', '\x1b[31mred', 'a\nb', '--force', '\u202ertl', b'\xff\xfe'.decode('utf-8', 'surrogateescape'),
         b'\xc3'.decode('utf-8', 'surrogateescape'), b'\xed\xa0\x80'.decode('utf-8', 'surrogateescape'), '\ufffe\uffff', '\x85\x7f', ']]>', '${x}']
record = json.load(open('run1e-3/run.json'))
record['options']['<b>key'] = '<i>value</i>'
record['train']['labels'] = ['</bdi></td>']
record['metric'] = '"><svg onload=x>'
for n in names:
    os.mkdir('./' + n)
    json.dump(record, open('./' + n + '/run.json', 'w'))
    open('./' + n + '/metrics.jsonl', 'w').write('{"kind":"validation","step":0,"epoch":0,"\\"><svg onload=x>":1}\n')
open('names', 'wb').write(b'\0'.join(os.fsencode(n) for n in names))
PY
xargs -0 tabft-eval report -o names.html -- <names || fail 'odd names'
cat page.py - >look.py <<'PY'
rows = table('Results')
shown = [r[0] for r in rows[1:]]
bad = '\ufffd'
assert shown == ['<script>alert(1)<script>', '"&\'', bad + '[31mred', 'a' + bad + 'b', '--force', '\u202ertl', bad * 2, bad, bad * 3, bad * 2,
                 bad * 2, ']]>', '${x}'], shown
assert rows[1][2] == '"><svg onload=x>', rows[1]
PY
python3 look.py names.html || fail 'odd names are not what they are'

# What is no run.
mkdir empty cut none later
refuses 2 'needs folders of runs and -o' -o no.html
refuses 2 'needs folders of runs and -o' run1e-3
refuses 3 'empty: has neither run.json nor metrics.jsonl.partial; name the folder of a run' -o no.html run1e-3 empty
# A validation table is named where there is one.
mkdir valid
python3 - <<'PY'
import json
record = json.load(open('run1e-3/run.json'))
record['valid'] = {'path': 'v.tbf', 'digest': '12ab', 'rows': 9, 'columns': 3}
json.dump(record, open('valid/run.json', 'w'))
PY
cp run1e-3/metrics.jsonl valid
tabft-eval report -o valid.html valid || fail 'a run with a validation table'
cat page.py - >look.py <<'PY'
assert [r[1] for r in table('Validation table')[1:]] == ['v.tbf', '12ab', '9', '3'], table('Validation table')
PY
python3 look.py valid.html || fail 'the validation table'
refuses 3 'nowhere: has neither' -o no.html nowhere
refuses 3 'train.tbf' -o no.html train.tbf
head -c 300 run1e-3/run.json >cut/run.json
refuses 3 'cut/run.json:' -o no.html cut
echo '{"schema": 1}' >none/run.json
refuses 3 'none/run.json: no objects "train" and "options" in it' -o no.html none
sed 's/"schema": 1/"schema": 2/' run1e-3/run.json >later/run.json
refuses 3 'later/run.json: written by a later version (schema 2)' -o no.html later
cp run1e-3/run.json cut/run.json
refuses 3 'cut/metrics.jsonl: cannot open' -o no.html cut
sed '2s/,.*//' run1e-3/metrics.jsonl >cut/metrics.jsonl
refuses 3 'cut/metrics.jsonl:2:' -o no.html cut
echo '{"a":1}' >cut/metrics.jsonl
refuses 3 'cut/metrics.jsonl:1: has no "kind"' -o no.html cut
cp page.html before.html
refuses 2 'page.html: exists already' -o page.html run1e-3
cmp page.html before.html || fail 'a page that was there was touched'
tabft-eval report --force -o page.html run1e-3 || fail '--force'
! cmp -s page.html before.html || fail '--force leaves the page as it was'
