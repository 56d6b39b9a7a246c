#!/bin/sh
# Texts, booleans and gaps in training: a text column is what its ranks are, and the gaps of one with more than 30 texts take a
# rank of their own, as TabPFN gives them, in training as in prediction; the order of a dictionary does not matter.
set -eu
. "${top_srcdir:?}/tests/tools/train/helpers.sh"
cd -- "$work"
# 35 texts, 18 of them before TabPFN's text for a gap (__MISSING__), which small letters follow; a category of 2 texts with gaps; a
# boolean. codes.csv has the same as numbers: ranks, those behind the gap's moved up by one.
awk 'BEGIN {
    srand(7)
    print "x,t,c,b,y" >"texts.csv"
    print "x,t,c,b,y" >"codes.csv"
    split("red green", colour, " "); rank["green"] = 0; rank["red"] = 1
    for (i = 0; i < 140; i++) {
        k = i * 13 % 36; x = sprintf("%.6f", rand() * 4 - 2); c = colour[1 + (i % 3 > 0)]; y = (x > 0) + (k % 2)
        text = k == 35 ? "" : sprintf("%c%c", k < 18 ? 65 + k : 97 + k - 18, 120)
        code = k == 35 ? "" : k < 18 ? k : k + 1
        gap = i % 11 == 0
        printf "%s,%s,%s,%s,%s\n", x, text, gap ? "" : c, i % 5 < 2 ? "true" : "false", y >"texts.csv"
        printf "%s,%s,%s,%s,%s\n", x, code, gap ? "" : rank[c], i % 5 < 2 ? 1 : 0, y >"codes.csv"
    }
}'
tabft-prep pack --quiet --target y --classes -o texts.tbf texts.csv
tabft-prep pack --quiet --target y --classes -o codes.tbf codes.csv
regressor=$(dirname -- "$model")/v2_6_reg.model.safetensors
tabft-prep pack --quiet --target y --task regression -o texts-reg.tbf texts.csv
tabft-prep pack --quiet --target y --task regression -o codes-reg.tbf codes.csv
set -- tabft-train --epochs 2 --estimators 4 --lr 1e-3 --threads 1 --validation-split 0
for kind in texts codes; do
    works "$@" --model "$model" --data $kind.tbf --out $kind
    works "$@" --model "$regressor" --data $kind-reg.tbf --out $kind-reg
    works tabft-eval predict --model "$model" --train $kind.tbf --test $kind.tbf --estimators 4 -o pred.tbf --force
    tabft-prep cat pred.tbf | cut -d , -f 3- >$kind.pred
done
cmp texts/model.safetensors codes/model.safetensors || fail 'texts train otherwise than their ranks'
cmp texts-reg/model.safetensors codes-reg/model.safetensors || fail 'texts train a regressor otherwise than their ranks'
cmp texts.pred codes.pred || fail 'texts predict otherwise than their ranks'

works "$@" --model "$regressor" --data texts-reg.tbf --stream --out streamed
cmp texts-reg/model.safetensors streamed/model.safetensors || fail 'texts read from disk train otherwise'

# With validation rows, and a validation table whose dictionary is another one, with a text that the training table lacks.
head -n 100 texts.csv >train.csv
{ head -n 1 texts.csv; tail -n 41 texts.csv | sed 's/red/violet/'; } >valid.csv
for part in train valid; do tabft-prep pack --quiet --target y --classes -o $part.tbf $part.csv; done
works tabft-train --epochs 1 --estimators 2 --lr 1e-3 --threads 1 --model "$model" --data train.tbf --valid valid.tbf --out with-valid
works tabft-train --epochs 1 --estimators 2 --lr 1e-3 --threads 1 --model "$model" --data texts.tbf --validation-split 0.2 --out with-split
# Validation scores what tabft-eval predicts: the base model on the validation table.
works tabft-eval predict --model "$model" --train train.tbf --test valid.tbf --estimators 2 -o valid-pred.tbf
eval_loss=$(tabft-eval score --json valid-pred.tbf | sed -n 's/.*"log_loss": \([^,]*\),*/\1/p')
train_loss=$(head -n 1 with-valid/metrics.jsonl | sed 's/.*"log_loss":\([^,]*\),.*/\1/')
awk -v a="$eval_loss" -v b="$train_loss" 'BEGIN { d = a - b; exit !(d * d < 1e-12) }' ||
    fail "validation has log loss $train_loss, a prediction $eval_loss"
