#!/bin/sh
# Regressors: a target that is scaled or shifted gives the same losses and predictions; validation says what tabft-eval says; early
# stopping by the mean squared error; the terms of the loss; the memory plan.
set -eu
. "${top_srcdir:?}/tests/tools/train/helpers.sh"
cd -- "$work"
model=$(dirname -- "$model")/v2_5_reg.model.safetensors # its estimators have power transforms of the target
numbers() { tabft-prep pack --quiet --target y --task regression ${3+--schema "$3"} -o "$2" "$1" || fail "cannot pack $1"; }
# y is skewed, as targets are; in sixteenths, so that 1e9 more has them exactly; likewise times 1e6.
awk 'BEGIN {
    srand(5)
    for (n = 0; n < 3; n++) { name = n == 0 ? "plain" : n == 1 ? "large" : "far"; print "a,b,c,y" >name ".csv"; print "a,b,c,y" >name "-test.csv" }
    for (i = 0; i < 260; i++) {
        a = rand() * 4 - 2; b = rand() * 4 - 2; c = i % 3
        y = int(16 * (exp(a + 0.5 * b) + c + 0.3 * rand())) / 16
        x = sprintf("%.6f,%.6f,%d", a, b, c)
        tail = i < 200 ? ".csv" : "-test.csv"
        printf "%s,%.17g\n", x, y >("plain" tail)
        printf "%s,%.17g\n", x, y * 1e6 >("large" tail)
        printf "%s,%.17g\n", x, y + 1e9 >("far" tail)
    }
}'
losses() { sed -n 's/.*"kind":"step".*"loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
validations() { sed -n "s/.*\"kind\":\"validation\".*\"$2\":\([^,]*\),.*/\1/p" "$1/metrics.jsonl"; }
set -- tabft-train --model "$model" --epochs 3 --estimators 4 --chunk-rows 100 --lr 1e-3 --seed 9 --threads 1
for name in plain large far; do
    numbers $name.csv $name.tbf
    numbers $name-test.csv $name-test.tbf $name.tbf
    works "$@" --data $name.tbf --validation-split 0 --out $name
    works tabft-eval predict --model $name/model.safetensors --train $name.tbf --test $name-test.tbf --estimators 4 --seed 9 -o $name-pred.tbf
    losses $name >$name.losses
    tabft-prep cat $name-pred.tbf | cut -d , -f 3 | tail -n +2 >$name.pred
done
[ "$(wc -l <plain.losses)" = 6 ] || fail "not 6 steps: $(cat plain/metrics.jsonl)"
paste plain.losses large.losses far.losses | awk '{
        for (i = 2; i <= 3; i++) { d = $i / $1 - 1; if (d < 0) d = -d; if (d > worst) worst = d } }
    END { printf "losses of a scaled or shifted target: within %.1e\n", worst; exit !(NR == 6 && worst < 2e-7) }' ||
    fail 'losses change where the target is scaled or shifted'
paste plain.pred large.pred far.pred | awk '{
        d = $2 / 1e6 - $1; if (d < 0) d = -d; if (d > large) large = d
        d = $3 - 1e9 - $1; if (d < 0) d = -d; if (d > far) far = d }
    END { printf "predictions: scaled within %.1e, shifted within %.1e\n", large, far; exit !(NR == 60 && large < 2e-6 && far < 2e-6) }' ||
    fail 'predictions change where the target is scaled or shifted'

# A validation table: the base model is scored as tabft-eval scores it, and so is the best.
works "$@" --data plain.tbf --valid plain-test.tbf --min-delta 0 --out valid
says 'base model, epoch 0: MSE .*, MAE .*, R2 '
[ "$(field valid/run.json metric)" = mse ] || fail "metric $(field valid/run.json metric)"
score() {
    works tabft-eval predict --model "$1" --train plain.tbf --test plain-test.tbf --estimators 4 --seed 9 -o pred.tbf --force
    tabft-eval score --json pred.tbf | sed -n "s/.*\"$2\": \([^,]*\),*/\1/p"
}
close() { awk -v a="$1" -v b="$2" 'BEGIN { d = a / b - 1; exit !(d < 1e-6 && d > -1e-6) }' || fail "$3: $1 and $2"; }
for what in mse mae r2; do close "$(validations valid $what | head -n 1)" "$(score "$model" $what)" "the base model's $what"; done
close "$(field valid/run.json base_metric)" "$(score "$model" mse)" base_metric
close "$(field valid/run.json best_metric)" "$(score valid/model.safetensors mse)" 'the best model'
# A step of 0 is no gain: patience, and the weights of the base model.
works "$@" --data plain.tbf --validation-split 0.2 --min-delta 1e6 --patience 2 --out patience
[ "$(field patience/run.json ended_by)" = patience ] || fail 'does not lose patience'
[ "$(field patience/run.json best_epoch)" = 0 ] || fail 'gains more than can be gained'

# The terms of the loss: alone and weighted they add up at the first step, whose rate does not matter.
set -- tabft-train --model "$model" --epochs 1 --estimators 2 --lr 1e-5 --threads 1 --validation-split 0 --data plain.tbf \
    --ce-loss-weight 0 --crps-loss-weight 0 --mse-loss-weight 0
for term in ce crps crls mse mae; do
    works "$@" --$term-loss-weight 1 --out only-$term
    losses only-$term | head -n 1
done >terms
works "$@" --ce-loss-weight 0.5 --crps-loss-weight 2 --crls-loss-weight 0.25 --mse-loss-weight 3 --mae-loss-weight 0.125 --out all-terms
losses all-terms | head -n 1 >all
awk 'NR == FNR { term[NR] = $1; next }
    { want = 0.5 * term[1] + 2 * term[2] + 0.25 * term[3] + 3 * term[4] + 0.125 * term[5]
      d = $1 / want - 1; exit !(d < 1e-6 && d > -1e-6) }' terms all || fail "terms $(cat terms) and all $(cat all)"
works "$@" --mse-loss-weight 1 --mse-loss-clip 0.01 --out clipped
losses clipped | awk '{ exit !($1 > 0 && $1 <= 0.01) }' || fail "a clipped loss is $(losses clipped)"

# A chunk whose context has one target only: as TabPFN trains on it, but said.
awk 'BEGIN { print "a,y"; for (i = 0; i < 40; i++) print (i * 7 % 11) "," (i == 20 ? 3 : 1) }' >rare.csv
numbers rare.csv rare.tbf
works tabft-train --model "$model" --epochs 2 --estimators 1 --lr 1e-6 --threads 1 --validation-split 0 --data rare.tbf --chunk-rows 10 --out rare
says 'the targets of its context are all equal'

# Memory: --plan says what is taken.
if ! grep -q "^TABFT_SANITIZE='.*fsanitize" "${top_builddir:?}/config.log"; then
    # shellcheck source=tests/tools/memory.sh
    . "$top_srcdir/tests/tools/memory.sh"
    awk 'NR == 1 { print; next } { print } END { for (i = 0; i < 1800; i++) printf "%g,%g,%d,%g\n", i % 37, i % 41, i % 3, i % 101 }' plain.csv >long.csv
    numbers long.csv long.tbf
    for what in '--validation-split 0' '--validation-split 0.5 --chunk-rows 100'; do
        # shellcheck disable=SC2086 # words
        set -- tabft-train --model "$model" --data long.tbf --epochs 1 --estimators 2 --threads 1 $what
        works "$@" --plan >plan
        works "$@" --out plan-run --force
        peak=$(field plan-run/run.json peak_bytes)
        plan=$(awk '/^total/ { print $2 }' plan)
        printf '%s: planned %s, took %s\n' "$what" "$plan" "$peak"
        bounds "$plan" "$peak" || { cat plan; fail "$what: planned $plan, took $peak"; }
    done
fi
