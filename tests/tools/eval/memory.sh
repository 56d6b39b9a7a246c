#!/bin/sh
# Many test rows against 1,000 context rows need the memory and the time a row of 1,000: ROWS of them, 12,000 if it is not set.
set -eu
# shellcheck source=tests/tools/memory.sh
. "${top_srcdir:?}/tests/tools/memory.sh"
rows=${ROWS:-12000}
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
cd -- "$work"
tiny=$top_srcdir/share/models/tiny-v2_6-classifier.safetensors
# table ROWS FIRST: numbers that look random, and a label that depends on them.
table() {
    awk -v n="$1" -v first="$2" 'BEGIN {
        print "a,b,c,d,e,f,g,h,y"
        for (i = first; i < first + n; i++) {
            line = ""
            for (c = 1; c <= 8; c++) { v[c] = int((i * c * 7919 + c * 104729) % 10007); line = line v[c] / 1000 "," }
            print line (v[1] + v[2] > v[3] + 5000)
        }
    }'
}
# measure FILE OPTION...: "peak in bytes, processor seconds" of predicting FILE.
measure() {
    file=$1
    shift
    used tabft-eval predict --model "$tiny" --train train.tbf --test "$file" --estimators 1 --threads 1 "$@"
}
table 1000 0 >train.csv
table 1000 5000 >few.csv
table "$rows" 5000 >many.csv
for name in train few many; do tabft-prep pack --quiet --target y --task classification -o "$name.tbf" "$name.csv"; done
few=$(measure few.tbf -o few-pred.tbf)
many=$(measure many.tbf -o many-pred.tbf)
printf '1,000 rows: %s; %s rows: %s (bytes, seconds)\n' "$few" "$rows" "$many"
# What does not depend on the model: a row group on its way in and one on its way out, and the labels.
awk -v few="${few% *}" -v many="${many% *}" 'BEGIN { exit !(many <= few + 12 * 1048576) }' ||
    { echo "$rows rows take more memory"; exit 1; }
awk -v few="${few#* }" -v many="${many#* }" -v rows="$rows" 'BEGIN { exit !(many <= 1.3 * few * rows / 1000) }' ||
    { echo "$rows rows take more time a row"; exit 1; }
# The same rows have the same predictions.
tabft-prep cat few-pred.tbf >few-pred.csv
tabft-prep cat many-pred.tbf | head -n 1001 | cmp - few-pred.csv || { echo 'predictions depend on the number of rows'; exit 1; }
# So they do by the plan, which is held to what is taken in plan.sh.
total() { tabft-eval predict --model "$tiny" --train train.tbf --test "$1" --estimators 1 --threads 1 --plan | awk '$1 == "total" { print $2 }'; }
few=$(total few.tbf)
many=$(total many.tbf)
[ "$many" -le $((few + 12 * 1048576)) ] || { echo "many rows need $many bytes, few $few"; exit 1; }
