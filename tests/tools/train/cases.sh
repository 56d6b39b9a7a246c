#!/bin/sh
# Tables that broke other tools: cases 07 (no or one record), 09 (constant and empty columns) and 10 (labels with gaps).
set -eu
. "${top_srcdir:?}/tests/tools/train/helpers.sh"
cd -- "$work"
# train TABLE RUN OPTION...
train() {
    table=$1 run=$2
    shift 2
    tabft-train --model "$model" --data "$table" --out "$run" --epochs 1 --estimators 2 --lr 1e-3 --threads 1 "$@"
}

# 07: refused before anything is made, with the least number of records, and the one class.
for name in header_only header_no_newline; do
    pack target "$cases/07-empty-and-header-only/$name.csv" $name.tbf
    refuses 3 '0 records; training needs at least 6' train $name.tbf run
    [ ! -e run ] || fail 'a refused run left its folder'
done
pack target "$cases/07-empty-and-header-only/one_record_no_newline.csv" record.tbf
refuses 3 '1 record and only one class ("1"); training needs at least 6 records' train record.tbf run
refuses 3 'at least 4 records and 2 classes' train record.tbf run --validation-split 0

# 09: columns that tell nothing are left out by name, and the run is the one without them.
for name in train_full train_reduced test_full test_reduced; do
    [ "$name" = test_full ] && continue
    pack y "$cases/09-constant-and-all-missing-columns/$name.csv" $name.tbf
done
tabft-prep pack --quiet --target y --classes --text blank -o test_full.tbf "$cases/09-constant-and-all-missing-columns/test_full.csv"
works train train_full.tbf full
says 'column "fixed" is left out: constant'
says 'column "flag" is left out: constant'
says 'column "blank" is left out: all missing'
works train train_reduced.tbf reduced
cmp full/model.safetensors reduced/model.safetensors || fail 'left-out columns change the weights'
for name in fixed flag blank; do grep -q "\"name\": \"$name\"" full/run.json || fail "$name is not in the run's record"; done
works tabft-eval predict --model full/model.safetensors --train train_full.tbf --test test_full.tbf --estimators 2 -o full.tbf
works tabft-eval predict --model reduced/model.safetensors --train train_reduced.tbf --test test_reduced.tbf --estimators 2 -o reduced.tbf
tabft-prep cat full.tbf >full.csv
tabft-prep cat reduced.tbf >reduced.csv
cmp full.csv reduced.csv || fail 'left-out columns change predictions'
pack y "$cases/09-constant-and-all-missing-columns/train_all_constant.csv" constant.tbf
refuses 3 'nothing to learn from' train constant.tbf run
# Chunks of a few rows, in which many columns are constant.
works train train_full.tbf small --chunk-rows 10 --validation-split 0

# 10: labels keep their texts and order; more classes than outputs are refused with both numbers.
for name in train_gap train_order train_text train_12_classes; do
    pack "$(sed -n '1s/.*,\([a-z]*\).*/\1/p' "$cases/10-labels-with-gaps/$name.csv")" "$cases/10-labels-with-gaps/$name.csv" $name.tbf
done
labels() { tr -d '\n ' <"$1/run.json" | sed 's/.*"labels":\[\([^]]*\)\].*/\1/'; }
works train train_gap.tbf gap --validation-split 0
[ "$(labels gap)" = '"0","2","3","7","9"' ] || fail "labels $(labels gap)"
works train train_order.tbf order --validation-split 0
[ "$(labels order)" = '"2","9","10"' ] || fail "labels $(labels order)"
works train train_text.tbf text --validation-split 0
[ "$(labels text | tr ',' '\n' | grep -c '"')" = 6 ] || fail "labels $(labels text)"
refuses 3 'has 12 classes, but the head of .* has 10 outputs' train train_12_classes.tbf run
[ ! -e run ] || fail 'a refused run left its folder'
