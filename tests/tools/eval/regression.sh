#!/bin/sh
# tabft-eval on targets of regression: TabPFN's own predictions from CSV files with texts, gaps and booleans; quantiles, scores by
# hand; targets that are scaled and shifted; what is refused.
set -eu
: "${TABFT_DATA:?}" "${top_srcdir:?}"
# shellcheck source=tests/tools/eval/helpers.sh
. "$top_srcdir/tests/tools/eval/helpers.sh"
reference=$TABFT_DATA/reference
# pack TABLE.csv OUT.tbf [TRAIN.tbf]
pack() {
    quietly tabft-prep pack --target y --task regression ${3:+--schema "$3"} -o "$2" "$1"
}
# predict MODEL TRAIN.tbf TEST.tbf OUT.csv [OPTION]...
predict() {
    model=$reference/$1.model.safetensors train=$2 test=$3 pred=$4
    shift 4
    quietly tabft-eval predict --model "$model" --train "$train" --test "$test" --estimators 4 --seed 3 --threads 1 "$@" -o pred.tbf --force
    tabft-prep cat pred.tbf >"$pred"
}

for name in v2_6_reg v3_reg; do
    pack "$reference/predict_mixed_$name.train.csv" train.tbf
    pack "$reference/predict_mixed_$name.test.csv" test.tbf train.tbf
    predict $name train.tbf test.tbf $name.csv --quantiles 0.1,0.5,0.9
    cut -d , -f 3 $name.csv | paste -d , - "$reference/predict_mixed_$name.mean.csv" | awk -F, -v name=$name '
        NR > 1 { d = $1 - $2; if (d < 0) d = -d; if (d > worst) worst = d; rows++ }
        END { printf "%s: %d rows, within %.1e of TabPFN\n", name, rows, worst; exit !(rows == 40 && worst < 2e-6) }' ||
        bad "$name: not the predictions of TabPFN"
    rm train.tbf test.tbf
done

# The columns, and quantiles in order.
[ "$(head -n 1 v2_6_reg.csv)" = row,target,mean,quantile_0.1,quantile_0.5,quantile_0.9 ] || bad "columns: $(head -n 1 v2_6_reg.csv)"
awk -F, 'NR > 1 && !($4 < $5 && $5 < $6) { exit 1 }' v2_6_reg.csv || bad 'quantiles are not in order'
pack "$reference/predict_mixed_v2_6_reg.train.csv" train.tbf
pack "$reference/predict_mixed_v2_6_reg.test.csv" test.tbf train.tbf
predict v2_6_reg train.tbf test.tbf plain.csv
cut -d , -f 1-3 v2_6_reg.csv | cmp - plain.csv || bad 'quantiles change the means'
predict v2_6_reg train.tbf test.tbf threads.csv --threads 2
cmp plain.csv threads.csv || bad 'the number of threads changes predictions'

# Scores, from the text alone.
tabft-eval score --json pred.tbf >score.json
awk -F, 'FNR == 1 { next }
    { n++; s += $2; ss += $2 * $2; d = $3 - $2; e += d * d; a += d < 0 ? -d : d }
    END { printf "%.12g %.12g %.12g\n", sqrt(e / n), a / n, 1 - e / (ss - s * s / n) }' plain.csv >by-hand
tr -d '\n' <score.json | sed 's/.*"rmse": \([^,]*\), *"mae": \([^,]*\), *"r2": \([^,]*\),.*/\1 \2 \3/' >scored
paste -d ' ' by-hand scored | awk '{ for (i = 1; i <= 3; i++) { d = $i - $(i + 3); if (d > 1e-9 || d < -1e-9) exit 1 } }' ||
    bad "scores $(cat scored), by hand $(cat by-hand)"
grep -q '"rows_with_target": 40' score.json || bad "$(cat score.json)"
tabft-eval score pred.tbf | grep -q '^rmse  *0' || bad "$(tabft-eval score pred.tbf)"

# The target a million times as large, or 1e9 further on (the grid of its last bits is 1.2e-7 there): the same predictions.
for part in train test; do
    awk -F, -v OFS=, 'NR > 1 { $NF = sprintf("%.17g", $NF * 1e6) } 1' "$reference/predict_mixed_v2_6_reg.$part.csv" >large-$part.csv
    awk -F, -v OFS=, 'NR > 1 { $NF = sprintf("%.17g", $NF + 1e9) } 1' "$reference/predict_mixed_v2_6_reg.$part.csv" >far-$part.csv
done
for what in large far; do
    pack $what-train.csv $what-train.tbf
    pack $what-test.csv $what-test.tbf $what-train.tbf
    predict v2_6_reg $what-train.tbf $what-test.tbf $what.csv
done
paste -d , plain.csv large.csv far.csv | awk -F, 'NR > 1 {
        d = $3 - $6 / 1e6; if (d < 0) d = -d; if (d > large) large = d
        d = $3 - ($9 - 1e9); if (d < 0) d = -d; if (d > far) far = d }
    END { printf "scaled within %.1e, shifted within %.1e\n", large, far; exit !(large < 1e-6 && far < 2e-6) }' ||
    bad 'predictions change where the target is scaled or shifted'

# A test table without a target, or with a gap in it.
cut -d , -f 1-6 "$reference/predict_mixed_v2_6_reg.test.csv" >bare.csv
quietly tabft-prep pack -o bare.tbf bare.csv
predict v2_6_reg train.tbf bare.tbf bare-pred.csv
cut -d , -f 3 plain.csv >want
cut -d , -f 3 bare-pred.csv | cmp - want || bad 'predictions depend on whether targets are there'
refuse 3 'no row has a target' tabft-eval score pred.tbf
# All training targets equal: their value.
awk -F, -v OFS=, 'NR > 1 { $NF = 2.5 } 1' "$reference/predict_mixed_v2_6_reg.train.csv" >equal.csv
pack equal.csv equal.tbf
predict v2_6_reg equal.tbf bare.tbf equal-pred.csv
[ "$(tail -n +2 equal-pred.csv | cut -d , -f 3 | sort -u)" = 2.5 ] || bad "equal targets: $(head -n 3 equal-pred.csv)"

set -- tabft-eval predict --train train.tbf --test test.tbf -o refused.tbf
refuse 3 "is for classification; take a regressor's" "$@" --model "$reference/v2_6_cls.model.safetensors"
for list in 0 1 x 0.5,0.5 '0.1,' ',' 0.1:0.2; do
    refuse 2 '--quantiles: ' "$@" --model "$reference/v2_6_reg.model.safetensors" --quantiles "$list"
done
quietly tabft-prep pack --target flag --task classification -o flags.tbf "$reference/predict_mixed_v2_6_reg.train.csv"
refuse 2 'quantiles: flags.tbf has a target of classes' tabft-eval predict --model "$reference/v2_6_cls.model.safetensors" \
    --train flags.tbf --test flags.tbf --quantiles 0.5 -o refused.tbf
refuse 3 'its target is not the column y' tabft-eval predict --model "$reference/v2_6_reg.model.safetensors" --train train.tbf \
    --test flags.tbf -o refused.tbf
[ ! -e refused.tbf ] || bad 'a refused prediction leaves a file'

# Files of predictions that are none.
printf 'row,target,mean\n0,1,2\n2,1,2\n' >gap.csv
quietly tabft-prep pack -o gap.tbf gap.csv
refuse 3 'gap.tbf: ' tabft-eval score gap.tbf
exit $failed
