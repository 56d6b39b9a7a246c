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
exit "$failed"
