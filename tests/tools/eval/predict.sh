#!/bin/sh
# tabft-eval predict and score on the command line: real tables, constant and empty columns (case 09), labels with
# gaps and
# labels never seen (case 10), and what is refused.
set -eu
: "${TABFT_DATA:?}" "${top_srcdir:?}"
# shellcheck source=tests/tools/eval/helpers.sh
. "$top_srcdir/tests/tools/eval/helpers.sh"
tiny=$top_srcdir/share/models/tiny-v2_6-classifier.safetensors
small=$TABFT_DATA/reference/v2_6_cls.model.safetensors
case09=$TABFT_DATA/cases/09-constant-and-all-missing-columns
case10=$TABFT_DATA/cases/10-labels-with-gaps
# pack COLUMN TABLE.csv OUT.tbf [TRAIN.tbf]
pack() {
    quietly tabft-prep pack --target "$1" --task classification ${4:+--schema "$4"} -o "$3" "$2"
}
# predict TRAIN.tbf TEST.tbf OUT.tbf [OPTION]...
predict() {
    train=$1 test=$2 pred=$3
    shift 3
    quietly tabft-eval predict --model "$small" --train "$train" --test "$test" --estimators 3 --seed 7 "$@" -o "$pred"
}
# score FIELD FILE: the value of a field of score --json.
score() {
    tabft-eval score --json "$2" | sed -n "s/^  \"$1\": \(.*[^,]\),*\$/\1/p"
}

# A real table: accuracy was 0.92 when this was written.
awk 'NR == 1 || NR % 3 == 0' "$top_srcdir/share/examples/iris.csv" >test.csv
awk 'NR == 1 || NR % 3 != 0' "$top_srcdir/share/examples/iris.csv" >train.csv
pack target train.csv iris.tbf
pack target test.csv iris-test.tbf iris.tbf
quietly tabft-eval predict --model "$tiny" --train iris.tbf --test iris-test.tbf --estimators 4 -o iris-pred.tbf
tabft-prep cat iris-pred.tbf >iris-pred.csv
[ "$(wc -l <iris-pred.csv)" = 51 ] || bad "iris: $(wc -l <iris-pred.csv) lines instead of 51"
accuracy=$(score accuracy iris-pred.tbf)
awk -v a="$accuracy" 'BEGIN { exit !(a >= 0.88) }' || bad "iris: accuracy $accuracy"
tabft-eval score iris-pred.tbf | grep -q '^accuracy  *0\.9' || bad 'score says no accuracy'
# Accuracy again, from the text alone.
awk -F, 'NR == 1 { for (c = 3; c <= NF; c++) name[c] = $c; next }
    { best = 3; for (c = 4; c <= NF; c++) if ($c > $best) best = c; right += name[best] == $2 }
    END { printf "%.17g\n", right / (NR - 1) }' iris-pred.csv >by-hand
awk -v a="$accuracy" '{ exit !(a - $1 < 1e-12 && $1 - a < 1e-12) }' by-hand ||
    bad "accuracy $accuracy is not $(cat by-hand)"

# Case 09.
for kind in full reduced; do
    pack y "$case09/train_$kind.csv" "train-$kind.tbf"
    pack y "$case09/test_$kind.csv" "test-$kind.tbf" "train-$kind.tbf"
    predict "train-$kind.tbf" "test-$kind.tbf" "pred-$kind.tbf"
    tabft-prep cat "pred-$kind.tbf" >"pred-$kind.csv"
    sort err >"left-out-$kind"
done
[ ! -s left-out-reduced ] || bad "case 09: $(cat left-out-reduced)"
cmp left-out-full - <<'EOF' || bad "case 09: $(cat left-out-full)"
tabft-eval: column blank is left out: all missing
tabft-eval: column fixed is left out: constant
tabft-eval: column flag is left out: constant
EOF
cmp pred-full.csv pred-reduced.csv || bad 'case 09: constant and empty columns change predictions'
[ "$(wc -l <pred-full.csv)" = 31 ] || bad 'case 09: not a prediction for each of 30 rows'
grep -qi nan pred-full.csv && bad 'case 09: NaN'
predict train-full.tbf test-full.tbf pred-threads.tbf --threads 3
predict train-full.tbf test-full.tbf pred-one.tbf --threads 1
cmp pred-threads.tbf pred-one.tbf || bad 'the number of threads changes the file'
pack y "$case09/train_all_constant.csv" constant.tbf
refuse 3 constant.tbf tabft-eval predict --model "$small" --train constant.tbf --test constant.tbf -o constant-pred.tbf
[ ! -e constant-pred.tbf ] || bad 'a refused prediction leaves a file'

# Case 10.
pack grade "$case10/train_gap.csv" gap.tbf
pack grade "$case10/test_gap.csv" gap-test.tbf
predict gap.tbf gap-test.tbf gap-pred.tbf
tabft-prep cat gap-pred.tbf >gap-pred.csv
[ "$(head -n 1 gap-pred.csv)" = 'row,label,0,2,3,7,9' ] || bad "case 10: columns are $(head -n 1 gap-pred.csv)"
[ "$(cut -d , -f 1,2 gap-pred.csv | tr '\n' ' ')" = 'row,label 0,0 1,2 2,3 3,7 4,9 5,5 ' ] ||
    bad "case 10: $(cut -d , -f 1,2 gap-pred.csv)"
awk -F, 'NR > 1 { s = $3 + $4 + $5 + $6 + $7; if (s < 1 - 1e-6 || s > 1 + 1e-6) exit 1 }' gap-pred.csv ||
    bad 'case 10: sums are not 1'
[ "$(score rows_with_unseen_label gap-pred.tbf)" = 1 ] || bad 'case 10: the unseen label is not counted'
tabft-eval score --json gap-pred.tbf | tr -d ' \n' | grep -qF '"unseen_labels":["5"]' ||
    bad 'case 10: the unseen label is not named'
# Wrong over all six: a whole number of sixths, at most five.
awk -v a="$(score accuracy gap-pred.tbf)" 'BEGIN { d = 6 * a - int(6 * a + 0.5); exit !(a < 0.9 && d * d < 1e-18) }' ||
    bad "case 10: accuracy $(score accuracy gap-pred.tbf)"
awk -v l="$(score log_loss gap-pred.tbf)" 'BEGIN { exit !(l > 0 && l < 40) }' ||
    bad "case 10: log loss $(score log_loss gap-pred.tbf)"
tabft-eval score gap-pred.tbf | grep -q '1 row with a label .*(5): wrong in accuracy' ||
    bad 'case 10: the text does not say how'
pack grade "$case10/train_order.csv" order.tbf
predict order.tbf order.tbf order-pred.tbf
[ "$(tabft-prep cat order-pred.tbf | head -n 1)" = 'row,label,2,9,10' ] ||
    bad 'case 10: 2,9,10 are not in the order of numbers'
pack grade "$case10/train_text.csv" text.tbf
predict text.tbf text.tbf text-pred.tbf
[ "$(tabft-prep cat text-pred.tbf | head -n 1 | tr , '\n' | tail -n +3 | sort -u | wc -l)" = 6 ] ||
    bad 'case 10: not six text labels'
pack grade "$case10/train_12_classes.csv" twelve.tbf
refuse 3 'is for regression; take a classifier' \
    tabft-eval predict --model "${small%_cls.*}_reg.model.safetensors" --train twelve.tbf --test twelve.tbf -o r-pred.tbf
refuse 3 "has 12 labels, the model's head 10" \
    tabft-eval predict --model "$small" --train twelve.tbf --test twelve.tbf -o twelve-pred.tbf
echo '{"emsize": 32, "nlayers": 1, "nhead": 2, "max_num_classes": 20}' |
    tabft-model init --arch tabpfn_v2_6 --config - wide.safetensors
refuse 3 '12 classes, the checkpoint was made for at most 10' \
    tabft-eval predict --model wide.safetensors --train twelve.tbf --test twelve.tbf -o twelve-pred.tbf

# Text columns: the probabilities that TabPFN 9.2.0 gives.
for part in train test; do
    pack y "$TABFT_DATA/reference/predict_mixed_v2_6_cls.$part.csv" "mixed-$part.tbf"
done
# TabPFN's first row with other ways to average (tests/data/reference/make_options.py).
predict mixed-train.tbf mixed-test.tbf mixed-ways.tbf --estimators 4 --seed 3 --softmax-temperature 0.5 \
    --average-before-softmax --balance-probabilities
tabft-prep cat mixed-ways.tbf | awk -F, 'function off(a, b) { return a > b + 2e-5 || a < b - 2e-5 }
    NR == 2 && (off($3, 0.12418539) || off($4, 0.19820446) || off($5, 0.67761016)) { bad = 1 }
    END { exit bad || NR != 41 }' || bad 'averages before the softmax, balanced, are not as TabPFN has them'
predict mixed-train.tbf mixed-test.tbf mixed-pred.tbf --estimators 4 --seed 3
tabft-prep cat mixed-pred.tbf | cut -d , -f 3- | paste -d , - "$TABFT_DATA/reference/predict_mixed_v2_6_cls.proba.csv" |
    awk -F, 'NR > 1 { for (c = 1; c <= 3; c++) { d = $c - $(c + 3); if (d * d > worst) worst = d * d } rows++ }
        END { exit !(rows == 40 && worst < 5e-6 ^ 2) }' || bad 'predictions from text columns are not those of TabPFN'

# Labels that mean something to a shell, a terminal, CSV, HTML, or this tool stay what they are, and are shown masked.
# shellcheck disable=SC2016 # nothing is to be expanded
printf 'a,b,y\n1,2,"<script>"\n2,3,"$(touch pwned)"\n3,5,"e\033[31mscape"\n4,2,"new\nline"\n5,1,"quote""s"\n' >hostile.csv
printf '6,4,row\n7,7,label\n' >>hostile.csv
pack y hostile.csv hostile.tbf
head -n 2 hostile.csv | sed 's/<script>/\x1b[32mgreen/' >seen.csv
pack y seen.csv seen.tbf
predict hostile.tbf hostile.tbf hostile-pred.tbf
tabft-prep cat hostile-pred.tbf | head -n 2 | tr -d '\n' >header
# shellcheck disable=SC2016 # nothing is to be expanded
grep -qF "$(printf 'row,label,$(touch pwned),<script>,e\033[31mscape,label,"newline","quote""s",row')" header ||
    bad "hostile labels: $(cat -v header)"
tabft-eval score --json hostile-pred.tbf >hostile.json
for text in '"e\u001b[31mscape"' '"new\u000aline"'; do
    grep -qF -- "$text" hostile.json || bad "hostile labels in JSON: $(cat -v hostile.json)"
done
predict hostile.tbf seen.tbf seen-pred.tbf
tabft-eval score seen-pred.tbf >text
grep -qF '(?[32mgreen): wrong' text || bad "an unseen label is not shown masked: $(cat -v text)"
[ ! -e pwned ] || bad 'a label was run'

# A test table without a target is predicted, and cannot be scored.
cut -d , -f 1,2 "$case10/test_gap.csv" >bare.csv
quietly tabft-prep pack -o bare.tbf bare.csv
predict gap.tbf bare.tbf bare-pred.tbf
tabft-prep cat bare-pred.tbf | cut -d , -f 3- >bare-pred.csv
cut -d , -f 3- gap-pred.csv | cmp - bare-pred.csv || bad 'predictions depend on whether labels are there'
refuse 3 'no row has a label' tabft-eval score bare-pred.tbf

# Columns are found by name, and one that the training table lacks is left out by name.
awk -F , -v OFS=, '{ print $3, NR == 1 ? "more" : NR, $2, $1 }' "$case10/test_gap.csv" >turned.csv
pack grade turned.csv turned.tbf
predict gap.tbf turned.tbf turned-pred.tbf 2>err
grep -q 'column more is left out: not in the training table' err || bad "nothing is said of a column too many: $(cat err)"
tabft-prep cat turned-pred.tbf | cmp - gap-pred.csv || bad 'the order of columns shows in predictions'

# Refusals.
cut -d , -f 1,3 "$case10/test_gap.csv" >narrow.csv
pack grade narrow.csv narrow.tbf
sed '3s/^[^,]*/inf/' "$case10/test_gap.csv" >infinite.csv
pack grade infinite.csv infinite.tbf
refuse 3 'infinite.tbf: query row 1 (from 0), column "f1": infinite' \
    tabft-eval predict --model "$small" --train gap.tbf --test infinite.tbf -o infinite-pred.tbf
refuse 3 f2 tabft-eval predict --model "$small" --train gap.tbf --test narrow.tbf -o narrow-pred.tbf
refuse 2 gap-pred.tbf tabft-eval predict --model "$small" --train gap.tbf --test gap-test.tbf -o gap-pred.tbf
tabft-prep cat gap-pred.tbf | cmp - gap-pred.csv || bad 'an existing file was changed'
predict gap.tbf gap-test.tbf gap-pred.tbf --force
tabft-prep cat gap-pred.tbf | cmp - gap-pred.csv || bad 'the same prediction is another'
refuse 3 gap.tbf tabft-eval score gap.tbf
refuse 3 none.tbf tabft-eval score none.tbf
refuse 3 none.safetensors tabft-eval predict --model none.safetensors --train gap.tbf --test gap-test.tbf -o p.tbf
refuse 2 --estimators tabft-eval predict --model "$small" --train gap.tbf --test gap-test.tbf --estimators 0 -o p.tbf
for temperature in 0 -1 inf x 0.5x ''; do
    refuse 2 --softmax-temperature tabft-eval predict --model "$small" --train gap.tbf --test gap-test.tbf \
        --softmax-temperature "$temperature" -o p.tbf
done
# Eight estimators where nobody says how many.
quietly tabft-eval predict --model "$small" --train gap.tbf --test gap-test.tbf --seed 7 -o default-pred.tbf
predict gap.tbf gap-test.tbf eight-pred.tbf --estimators 8
for table in default eight; do tabft-prep cat "$table-pred.tbf" >"$table-pred.csv"; done
cmp default-pred.csv eight-pred.csv || bad 'the default is not eight estimators'
refuse 2 --seed tabft-eval predict --model "$small" --train gap.tbf --test gap-test.tbf --seed 4294967296 -o p.tbf
# Memory is planned before anything is computed; what the plan says is needed is enough.
refuse 4 'give the job more memory' \
    tabft-eval predict --model "$small" --train gap.tbf --test gap-test.tbf --memory 1K -o p.tbf
grep -q 'predicting 6 rows from 70 takes [0-9.]* MiB' err || bad "the plan is not told: $(cat err)"
predict gap.tbf gap-test.tbf gap-pred.tbf --force --memory 1G
for size in 0 -1 4Gb M 1.5G 99999999T; do
    refuse 2 "--memory $size" \
        tabft-eval predict --model "$small" --train gap.tbf --test gap-test.tbf --memory "$size" -o p.tbf
done
refuse 2 '-o are needed' tabft-eval predict --model "$small" --train gap.tbf --test gap-test.tbf
refuse 2 stray tabft-eval predict --model "$small" --train gap.tbf --test gap-test.tbf -o p.tbf stray
refuse 2 'needs a value' tabft-eval predict --model "$small" --train gap.tbf --test gap-test.tbf -o
refuse 2 'one table' tabft-eval score
for file in p.tbf narrow-pred.tbf twelve-pred.tbf; do
    [ ! -e "$file" ] || bad "a refused prediction leaves $file"
done
[ "$(find . -name '.*.tmp' | wc -l)" = 0 ] || bad 'temporary files are left'
exit "$failed"
