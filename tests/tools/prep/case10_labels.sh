#!/bin/sh
# Case 10: the label list of a table, in order: numbers by value, texts by code point, letter for letter.
set -eu
# shellcheck source=tests/tools/prep/common.sh
. "$(dirname -- "$0")/common.sh"
folder=$(case_of 10)
# labels EXPECTED INPUT OPTION...
labels() {
    expected=$1 input=$2
    shift 2
    every_way --target grade "$@" "$input"
    tabft-prep info "$work/ways.tbf" | grep -qx "$expected" || bad "$input $*: $(tabft-prep info "$work/ways.tbf" | grep labels)"
}
blocks='7 64 1000'
labels '5 labels: 0 2 3 7 9' "$folder/train_gap.csv"
labels '3 labels: 2 9 10' "$folder/train_order.csv"
labels '3 labels: 2 9 10' "$folder/train_order.csv" --classes
labels "6 labels: 01 1 Yes no yes $(printf '\303\251')" "$folder/train_text.csv"
tabft-prep info --json "$work/ways.tbf" | grep -qF '"labels":["01","1","Yes","no","yes","' || bad 'labels in JSON'
printf 'x,grade\n1,01\n2,1\n3,10\n' >"$work/codes.csv"
labels '3 labels: 01 1 10' "$work/codes.csv"
labels '3 labels: 01 1 10' "$work/codes.csv" --classes
printf 'x,grade\n1,1\n2,1.0\n3,2\n' >"$work/ones.csv"
labels '2 labels: 1 2' "$work/ones.csv"
labels '3 labels: 1 1.0 2' "$work/ones.csv" --classes
printf 'x,grade\n1,true\n2,False\n3,\n' >"$work/flags.csv"
labels '2 labels: false true' "$work/flags.csv"
# auto: more than 20 different whole numbers, or fractions, are no classes.
{ echo x,grade; seq 1 21 | sed 's/.*/&,&/'; } >"$work/many.csv"
pack --target grade "$work/many.csv" -o "$work/many.tbf"
said 'target grade: regression'
labels "21 labels: $(seq -s ' ' 1 21)" "$work/many.csv" --task classification
printf 'x,grade\n1,1.5\n2,2\n' >"$work/half.csv"
pack --target grade "$work/half.csv" -o "$work/half.tbf"
said 'target grade: regression'
refused 3 'the target grade is text, and regression needs numbers' --target grade --task regression "$folder/train_text.csv"
{ echo x,grade; seq 1 5000 | sed 's/.*/&,&/'; } >"$work/too_many.csv"
refused 3 'the target grade has more than 4096 different values' --target grade --task classification "$work/too_many.csv"
refused 3 '--target nope: no such column' --target nope "$folder/train_gap.csv"
exit "$failed"
