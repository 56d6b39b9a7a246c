#!/bin/sh
# Memory of predictions: what --plan says is what they take, for every architecture and task, for few rows and for 100,000, with
# kept contexts and without; what does not fit does not start, and what is said to fit does.
set -eu
# shellcheck source=tests/tools/memory.sh
. "${top_srcdir:?}/tests/tools/memory.sh"
# shellcheck source=tests/tools/eval/helpers.sh
. "$top_srcdir/tests/tools/eval/helpers.sh"
reference=$top_srcdir/tests/data/reference
total() { awk '$1 == "total" { print $2 }' "$1"; }
# measure WHAT MODEL TRAIN.tbf TEST.tbf OPTION...: plans, predicts, compares; the plan is in ./plan.
measure() {
    what=$1 model=$2 train=$3 test=$4
    shift 4
    set -- tabft-eval predict --model "$model" --train "$train" --test "$test" "$@"
    quietly "$@" --plan || { bad "$what: no plan"; return; }
    mv out plan
    peak=$(used "$@" -o pred.tbf --force 2>err) || { bad "$what: $(cat err)"; return; }
    printf '%s: planned %s, took %s (and s)\n' "$what" "$(total plan)" "$peak"
    bounds "$(total plan)" "${peak% *}" || bad "$what: planned $(total plan), took $peak: $(cat plan)"
}

# ---- every network ----
head -n 901 "$top_srcdir/share/examples/parity_train.csv" >train.csv
head -n 301 "$top_srcdir/share/examples/parity_test.csv" >test.csv
quietly tabft-prep pack --target y --task classification -o cls-train.tbf train.csv
quietly tabft-prep pack --target "$(head -n 1 train.csv | cut -d , -f 1)" --task regression -o reg-train.tbf train.csv
for task in cls reg; do
    quietly tabft-prep pack --schema $task-train.tbf -o $task-test.tbf test.csv
    for name in v2 v2_5 v2_5_mlp v2_6 v3 v3_5; do
        model=$reference/${name}_$task.model.safetensors
        [ -e "$model" ] || model=$reference/$name.model.safetensors # both tasks
        measure "$name $task" "$model" $task-train.tbf $task-test.tbf --estimators 2 --threads 1
    done
done

# ---- blocks, threads, texts ----
tiny=$top_srcdir/share/models/tiny-v2_6-classifier.safetensors
measure 'blocks' "$tiny" cls-train.tbf cls-test.tbf --estimators 2 --threads 1 --block-rows 100
kept=$(total plan)
awk '$1 == "kept" { exit !($2 > 0) }' plan || bad "no context is kept: $(cat plan)"
mv pred.tbf kept.tbf
measure 'encoded again' "$tiny" cls-train.tbf cls-test.tbf --estimators 2 --threads 1 --block-rows 100 --memory $((kept - 1))
awk '$1 == "kept" { exit !($2 == 0) }' plan || bad "a context is kept: $(cat plan)"
cmp kept.tbf pred.tbf || bad 'other predictions with less memory'
from_disk tabft-eval
outer=$PATH PATH=$PWD/from-disk:$PATH
measure 'program from disk' "$reference/v2_6_cls.model.safetensors" cls-train.tbf cls-test.tbf --estimators 2 --threads 1
PATH=$outer
measure 'threads' "$tiny" cls-train.tbf cls-test.tbf --estimators 1 --threads 4
awk 'BEGIN {
    srand(1)
    print "t,a,b,c,y"
    for (i = 0; i < 3000; i++) printf "text number %d is a rather long one,%.6f,%.6f,%d,%d\n", i * 7 % 2999, rand(), rand(), i % 7, i % 3
}' >texts.csv
quietly tabft-prep pack --target y --task classification -o texts.tbf texts.csv
measure 'texts' "$tiny" texts.tbf texts.tbf --estimators 1 --threads 1

# ---- 100,000 rows ----
awk 'BEGIN {
    srand(2)
    print "a,b,y"
    for (i = 0; i < 100000; i++) { a = rand(); printf "%.9f,%.3f,%d\n", a, rand(), (a > 0.4) }
}' >many.csv
head -n 65 many.csv >few.csv
quietly tabft-prep pack --target y --task classification -o few.tbf few.csv
quietly tabft-prep pack --schema few.tbf -o many.tbf many.csv
measure '100,000 rows' "$reference/v2_6_cls.model.safetensors" few.tbf many.tbf --estimators 1 --threads 1 --block-rows 8192

least=$(total plan)
# A part of a table is read, but all of its targets.
awk 'BEGIN { print "a,b,y"; for (i = 0; i < 1500000; i++) print i % 1009 / 8 "," i % 13 "," (i % 5 > 1) }' >most.csv
quietly tabft-prep pack --schema few.tbf -o most.tbf most.csv
measure 'a part of 1,500,000 rows' "$reference/v2_6_cls.model.safetensors" few.tbf most.tbf --estimators 1 --threads 1 --part 0/1000

# ---- what does not fit ----
refuse 4 'predicting 100000 rows from 64 takes' tabft-eval predict --model "$reference/v2_6_cls.model.safetensors" --train few.tbf \
    --test many.tbf --estimators 1 --threads 1 --block-rows 8192 --memory $((least / 2)) -o none.tbf
[ ! -e none.tbf ] || bad 'what does not fit leaves a file'
exit "$failed"
