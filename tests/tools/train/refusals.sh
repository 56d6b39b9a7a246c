#!/bin/sh
# What cannot be meant or cannot work is refused in one line, before anything is made, and leaves no folder.
set -eu
. "${top_srcdir:?}/tests/tools/train/helpers.sh"
cd -- "$work"
pack y "$cases/11-uneven-estimator-shards/train.csv" train.tbf
set -- tabft-train --model "$model" --data train.tbf --epochs 1 --estimators 1 --threads 1 --lr 1e-3 --validation-split 0

# Options.
refuses 2 '--out is missing' "$@"
refuses 2 '--epochs: "0" is not a whole number' "$@" --out run --epochs 0
refuses 2 '--query-fraction: "1" is not a number above 0 and below 1' "$@" --out run --query-fraction 1
refuses 2 '--schedule: "fast" is none of' "$@" --out run --schedule fast
TABFT_PLUGIN_PATH='' refuses 2 "no device 'cuda'" "$@" --out run --device cuda
refuses 2 '--precision: "half" is none of' "$@" --out run --precision half
refuses 2 'is no option' "$@" --out run surplus
refuses 2 'leaves no room' "$@" --out run --seed 4294967295 --epochs 2
# Inputs.
refuses 3 'train.csv' "$@" --out run --data "$cases/11-uneven-estimator-shards/train.csv"
refuses 3 'train.tbf' "$@" --out run --model train.tbf
refuses 3 'none.tbf' "$@" --out run --data none.tbf
regressor=$(dirname -- "$model")/v2_5_reg.model.safetensors
refuses 3 'v2_5_reg.model.safetensors: is a regressor, but train.tbf has a target of classes; name a classifier' "$@" --out run --model "$regressor"
refuses 3 'v2_5_reg.model.safetensors: is a regressor, but train.tbf has a target of classes; name a classifier' "$@" --out run --model "$regressor" --plan
# More classes than the head has outputs, or than the checkpoint was made for, with both numbers.
awk 'BEGIN { print "x,y"; for (i = 0; i < 120; i++) print i * i % 31 "," i % 12 }' >twelve.csv
pack y twelve.csv twelve.tbf
echo '{"emsize": 32, "nlayers": 1, "nhead": 2, "max_num_classes": 20}' |
    tabft-model init --arch tabpfn_v2_6 --config - wide.safetensors
echo '{"embed_dim": 32, "nlayers": 1, "max_num_classes": 11}' |
    tabft-model init --arch tabpfn_v3_5 --config - eleven.safetensors
for what in '--out run' --plan; do
    # shellcheck disable=SC2086 # words on purpose
    refuses 3 'twelve.tbf: has 12 classes, but the head of .* has 10 outputs' "$@" $what --data twelve.tbf
    # shellcheck disable=SC2086
    refuses 3 'twelve.tbf: has 12 classes, but the head of eleven.safetensors has 11 outputs' "$@" $what \
        --data twelve.tbf --model eleven.safetensors
    # shellcheck disable=SC2086
    refuses 3 'twelve.tbf: has 12 classes, but wide.safetensors was made for at most 10' "$@" $what \
        --data twelve.tbf --model wide.safetensors
done
printf 'x,y\n1,0\n2,1\ninf,0\n4,1\n5,0\n6,1\n7,0\n8,1\n' >inf.csv
pack y inf.csv inf.tbf
refuses 3 'column "x" is infinite in record 3' "$@" --out run --data inf.tbf
# But where the checkpoint passes infinities on to the network, it learns from them: its header with that field.
old=$(od -A n -t u8 -N 8 -- "$model" | tr -d ' ')
head -c $((old + 8)) -- "$model" | tail -c "$old" | sed 's/"__metadata__":{/&"inference_config":"{\\"PASSTHROUGH_INF\\": true,\
\\"PREPROCESS_TRANSFORMS\\": [{\\"name\\": \\"none\\"}]}",/' | tr '\n' ' ' >header
new=$(wc -c <header)
for shift in 0 8 16 24 32 40 48 56; do
    # shellcheck disable=SC2059 # a byte by its number
    printf "\\$(printf %03o $((new >> shift & 255)))"
done >passes.safetensors
cat header >>passes.safetensors
tail -c +$((old + 9)) -- "$model" >>passes.safetensors
"$@" --out run-inf --data inf.tbf --model passes.safetensors --epochs 1 --validation-split 0 >out 2>&1 ||
    fail "infinities that the checkpoint passes on are refused: $(cat out)"
printf 'x,y\n1,0\n2,1\n3,\n4,1\n5,0\n6,1\n7,0\n8,1\n' >gap.csv
pack y gap.csv gap.tbf
refuses 3 'the target "y" is missing in 1 records, first in record 3' "$@" --out run --data gap.tbf
tabft-prep pack --quiet --target f0 --task regression -o number.tbf "$cases/11-uneven-estimator-shards/train.csv"
refuses 3 'is a classifier, but number.tbf has a target for regression; name a regressor' "$@" --out run --data number.tbf
# Options of the other task.
refuses 2 'number.tbf has a target for regression; use mse' "$@" --out run --data number.tbf --metric roc_auc
refuses 2 'train.tbf has a target of classes; use roc_auc or log_loss' "$@" --out run --metric mse
refuses 2 'train.tbf: has a target of classes; the options' "$@" --out run --crps-loss-weight 0.5
refuses 2 'all of --\*-loss-weight are 0' "$@" --out run --model "$regressor" --data number.tbf --crps-loss-weight 0 --mse-loss-weight 0
# Targets of regression.
numbers() { tabft-prep pack --quiet --target y --task regression -o "$2" "$1" || fail "cannot pack $1"; }
printf 'x,y\n1,1.5\n2,inf\n3,2.5\n4,1\n' >inf-target.csv
numbers inf-target.csv inf-target.tbf
refuses 3 'the target "y" is infinite in record 2' "$@" --out run --model "$regressor" --data inf-target.tbf
printf 'x,y\n1,1.5\n2,\n3,2.5\n4,1\n' >gap-target.csv
numbers gap-target.csv gap-target.tbf
refuses 3 'the target "y" is missing in 1 records, first in record 2' "$@" --out run --model "$regressor" --data gap-target.tbf
printf 'x,y\n1,1.5\n2,1.5\n3,1.5\n4,1.5\n' >equal.csv
numbers equal.csv equal.tbf
refuses 3 'the target "y" is the same in all records' "$@" --out run --model "$regressor" --data equal.tbf
printf 'x,y\n1,1e-10\n2,3e-10\n3,2e-10\n4,5e-10\n' >tiny.csv
numbers tiny.csv tiny.tbf
refuses 3 'the target "y" has a standard deviation of 1.47902e-10' "$@" --out run --model "$regressor" --data tiny.tbf
printf 'x,y\n1,1e300\n2,3e300\n3,2\n4,-5e300\n' >huge.csv
numbers huge.csv huge.tbf
refuses 3 'the target "y" has no finite standard deviation' "$@" --out run --model "$regressor" --data huge.tbf
printf 'x,y\n1,1.5\n2,2.5\n' >short.csv
numbers short.csv short.tbf
refuses 3 'has 2 records; training needs at least 3' "$@" --out run --model "$regressor" --data short.tbf
refuses 3 'train.tbf: its target is of classes, that of number.tbf is not' "$@" --out run --model "$regressor" --data number.tbf --valid train.tbf
tabft-prep pack --quiet -o none.tbf "$cases/11-uneven-estimator-shards/train.csv"
refuses 3 'has no target' "$@" --out run --data none.tbf
printf 'x,y\n1,0\n2,0\n3,0\n4,0\n5,0\n6,0\n7,0\n8,1\n' >rare.csv
pack y rare.csv rare.tbf
refuses 3 'cannot be held out for validation: a label has a single row' "$@" --out run --data rare.tbf --validation-split 0.2
refuses 3 'leaves no context beside' "$@" --out run --chunk-rows 2
# A validation table.
printf 'f0,f1,f2,f3,f4,f5,f6,y\n1,1,1,1,1,1,1,0\n1,1,1,1,1,1,1,7\n' >other.csv
pack y other.csv other.tbf
refuses 3 'record 2 has the label "7"' "$@" --out run --valid other.tbf
printf 'f0,f1,f2,f3,f4,f5,f6,y\n1,1,1,1,1,1,1,0\n' >half.csv
pack y half.csv half.tbf
refuses 3 'have none of class "1", so ROC AUC is undefined' "$@" --out run --valid half.tbf
[ ! -e run ] || fail 'a refused run left its folder'
works "$@" --out with-table --valid half.tbf --metric log_loss --patience 1

# Folders.
works "$@" --out run
refuses 2 'run: is used already' "$@" --out run
works "$@" --out run --force --seed 1
(cd run && sha256sum -c --quiet model.safetensors.sha256) || fail 'the checksum file is wrong after --force'
[ "$(field run/run.json model_sha256)" = "$(cut -d ' ' -f 1 run/model.safetensors.sha256)" ] || fail 'run.json and the model differ'
[ "$(find run -type f | wc -l)" = 4 ] || fail "a run leaves $(ls run)"
mkdir empty
works "$@" --out empty
refuses 2 'train.tbf: is no folder' "$@" --out train.tbf
refuses 4 'cannot make the folder' "$@" --out nowhere/run
ln -s /nonexistent dangling
refuses 2 'dangling: cannot be the run' "$@" --out dangling

# A loss that is not finite: no weights, and the steps before stay to be looked at.
refuses 3 'estimator 0, chunk .*, epoch [2-9], step' "$@" --out wild --epochs 9 --lr 99 --clip 0 --schedule constant
[ "$(ls wild)" = metrics.jsonl.partial ] || fail "after a failed run: $(ls wild)"
refuses 2 'wild: is used already' "$@" --out wild
works "$@" --out wild --force
[ ! -e wild/metrics.jsonl.partial ] || fail 'the rest of the failed run stays after --force'
