#!/bin/sh
# tabft-eval parity on runs of tabft-train: 0 where two runs are one, 1 after one bit of one weight is flipped, with the
# published tolerance and with bounds from a file; 2 and 3 where there is nothing to judge.
set -eu
: "${TABFT_DATA:?}" "${top_srcdir:?}"
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
cd -- "$work"
small=$TABFT_DATA/reference/v2_6_cls.model.safetensors
failed=0
bad() {
    echo "$*"
    failed=1
}
# parity STATUS OPTION... BASE OTHER: that status; the report, if any, in report.json.
parity() {
    want=$1
    shift
    status=0
    tabft-eval parity "$@" >report.json 2>err || status=$?
    [ "$status" = "$want" ] || bad "parity $*: status $status instead of $want: $(cat report.json err)"
    if [ "$want" -le 1 ]; then silent=err; else silent=report.json; fi
    [ ! -s "$silent" ] || bad "parity $*: prints $(cat "$silent")"
}
# has TEXT: the report has a line with it.
has() {
    grep -qF -- "$1" report.json || bad "the report has no $1: $(cat report.json)"
}
# train RUN OPTION...
train() {
    run=$1
    shift
    tabft-train --model "$small" --data train.tbf --out "$run" --epochs 2 --chunk-rows 60 --estimators 2 --seed 3 \
        --lr 1e-4 --schedule constant --validation-split 0 "$@" >out 2>&1 || { cat out; exit 1; }
}
awk 'NR == 1 || NR % 3 == 0' "$top_srcdir/share/examples/iris.csv" >test.csv
awk 'NR == 1 || NR % 3 != 0' "$top_srcdir/share/examples/iris.csv" >train.csv
tabft-prep pack --target target --task classification -o train.tbf train.csv 2>/dev/null
tabft-prep pack --target target --task classification --schema train.tbf -o test.tbf test.csv 2>/dev/null
train a --threads 1
train b --threads 2

parity 0 --tolerance exact --test test.tbf a b
has '"status": "held"'
has '"bit_identical": true'
has '"train_rows": 100'
has '"test_rows": 50'
has '"weight_max_abs_difference": 0.0'
has '"prediction_agreement": 1.0'
has '"reasons": []'
for field in status gpu_name world_size train_rows test_rows epochs n_estimators unsharded_accuracy sharded_accuracy \
    prediction_agreement probability_max_abs_difference probability_mean_abs_difference weight_max_abs_difference; do
    echo "$field"
done >fields
sed -n 's/^  "\([a-z_]*\)".*/\1/p' report.json | head -n 13 | cmp - fields ||
    bad 'the published fields are not first and in order'
[ "$(grep -c "$(sha256sum a/model.safetensors | cut -c 1-64)" report.json)" = 2 ] ||
    bad 'the digests are not those of the weights'

# One bit: the lowest of the last float.
cp -R a flipped
file=flipped/model.safetensors
size=$(wc -c <"$file")
byte=$(od -An -tu1 -j "$((size - 4))" -N 1 "$file" | tr -d ' ')
# shellcheck disable=SC2059 # the format is the byte
printf "\\$(printf '%03o' "$((byte ^ 1))")" | dd of="$file" bs=1 seek="$((size - 4))" conv=notrunc 2>/dev/null
parity 1 --test test.tbf a flipped
has '"status": "not held"'
has '"bit_identical": false'
has 'damaged or replaced'
parity 1 --tolerance published --test test.tbf a flipped
# A run that did end with those weights: not the same bits, but near enough.
rm -f flipped/model.safetensors.sha256
digest=$(sha256sum "$file" | cut -c 1-64)
sed "s/\"model_sha256\": *\"[0-9a-f]*\"/\"model_sha256\": \"$digest\"/" a/run.json >flipped/run.json
parity 1 --tolerance exact --test test.tbf a flipped
has 'not bit-identical'
has '"tensors_different": 1'
parity 0 --tolerance published --test test.tbf a flipped
echo '{"prediction_agreement": 1, "probability_max_abs_difference": 1, "probability_mean_abs_difference": 1,
    "weight_max_abs_difference": 1e-30}' >bounds.json
parity 1 --tolerance bounds.json --test test.tbf a flipped
has 'weights differ by'
sed 's/1e-30/1/' bounds.json >wide.json
parity 0 --tolerance wide.json --test test.tbf a flipped

# Runs that were told or given something else.
train other-rate --lr 2e-4
parity 1 --tolerance wide.json --test test.tbf a other-rate
has 'option learning_rate differs'
train other-seed --seed 4
parity 1 --tolerance published --test test.tbf a other-seed
has 'option seed differs'

# The training table moved: named, it is found; another one is refused.
mkdir elsewhere
mv train.tbf elsewhere/train.tbf
parity 3 --test test.tbf a b
parity 0 --test test.tbf --train elsewhere/train.tbf a b
parity 3 --test test.tbf --train test.tbf a b
grep -q 'not the table' err || bad "another table: $(cat err)"
parity 2 a b
parity 2 --test test.tbf a
parity 3 --test test.tbf --train elsewhere/train.tbf --tolerance nearly a b
parity 3 --test none.tbf --train elsewhere/train.tbf a b
parity 3 --test test.tbf --train elsewhere/train.tbf a "$work"

# Regression: no accuracy and no probabilities; differences are in standard deviations of the training targets.
small=${small%_cls.*}_reg.model.safetensors
awk 'BEGIN { print "a,b,y"; for (i = 0; i < 160; i++) print i % 13 "," i * 7 % 17 "," (i % 13) * 2 + i * 7 % 17 / 10 + i % 5 }' >numbers.csv
head -n 121 numbers.csv >train.csv
{ head -n 1 numbers.csv; tail -n 40 numbers.csv; } >test.csv
rm test.tbf
tabft-prep pack --target y --task regression -o train.tbf train.csv 2>/dev/null
tabft-prep pack --target y --task regression --schema train.tbf -o test.tbf test.csv 2>/dev/null
train n --threads 1
train m --threads 2
parity 0 --tolerance exact --test test.tbf n m
has '"status": "held"'
has '"bit_identical": true'
has '"unsharded_accuracy": null'
has '"probability_max_abs_difference": null'
has '"prediction_max_abs_difference": 0.0'
has '"prediction_agreement": 1.0'
sed -n 's/^  "\([a-z_]*\)".*/\1/p' report.json | head -n 13 | cmp - fields ||
    bad 'regression: the published fields are not first and in order'
rmse=$(sed -n 's/^  "unsharded_rmse": \(.*\),/\1/p' report.json)
tabft-eval predict --model n/model.safetensors --train train.tbf --test test.tbf --estimators 2 --seed 3 -o n.tbf 2>/dev/null
tabft-eval score --json n.tbf | grep -qF "\"rmse\": $rmse," || bad "regression: rmse $rmse is not the score's"
# Other weights: the difference of predictions by hand.
train far --lr 1e-2
tabft-eval predict --model far/model.safetensors --train train.tbf --test test.tbf --estimators 2 --seed 3 -o far.tbf 2>/dev/null
parity 1 --tolerance published --test test.tbf n far
has 'option learning_rate differs'
has 'predictions (in standard deviations of the targets) differ by'
tabft-prep cat n.tbf >n.csv
tabft-prep cat far.tbf | cut -d , -f 3 | paste -d , n.csv - >both.csv
awk -F, 'FILENAME == "train.csv" { if (FNR > 1) { n++; s += $3; ss += $3 * $3 } next }
    FNR > 1 { d = $4 - $3; if (d < 0) d = -d; if (d > worst) worst = d }
    END { printf "%.9g\n", worst / sqrt(ss / n - s * s / n / n) }' train.csv both.csv >by-hand
sed -n 's/^  "prediction_max_abs_difference": \(.*\),/\1/p' report.json | paste -d ' ' - by-hand |
    awk '{ d = $1 / $2 - 1; exit !(d < 1e-6 && d > -1e-6) }' || bad "regression: $(grep prediction_max report.json), by hand $(cat by-hand)"
[ "$(grep -c '"unsharded_prediction"' report.json)" = 5 ] || bad "regression: worst cells: $(cat report.json)"
# It fails closed.
sed 's/^\([^,]*,[^,]*\),.*/\1,/' test.csv | sed '1s/.*/a,b,y/' >no-targets.csv
tabft-prep pack --target y --task regression --schema train.tbf -o no-targets.tbf no-targets.csv 2>/dev/null
parity 3 --test no-targets.tbf n m
exit "$failed"
