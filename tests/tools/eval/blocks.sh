#!/bin/sh
# tabft-eval predict in blocks of rows and in parts, and merge: the same bytes whatever the way, and what is refused.
set -eu
: "${TABFT_DATA:?}" "${top_srcdir:?}"
# shellcheck source=tests/tools/eval/helpers.sh
. "$top_srcdir/tests/tools/eval/helpers.sh"
tiny=$top_srcdir/share/models/tiny-v2_6-classifier.safetensors
predict() { quietly tabft-eval predict --model "$tiny" --train train.tbf --test test.tbf --estimators 3 "$@"; }
awk 'NR == 1 || NR % 3 != 0' "$top_srcdir/share/examples/iris.csv" >train.csv
awk 'NR == 1 || NR % 3 == 0' "$top_srcdir/share/examples/iris.csv" >test.csv
quietly tabft-prep pack --target target --task classification -o train.tbf train.csv
# Two labels that only test rows have: one comes up in the first part alone, one in the last.
sed '3s/[^,]*$/new/; $s/[^,]*$/last/' test.csv >seen.csv
quietly tabft-prep pack --target target --task classification -o test.tbf seen.csv
predict -o whole.tbf
[ "$(tabft-prep cat whole.tbf | cut -d , -f 2 | grep -c -e new -e last)" = 2 ] || bad 'the labels of test rows are lost'

# Blocks, threads, contexts encoded with each block.
for rows in 1 7 49 50 1000; do
    predict --block-rows "$rows" --threads 2 -o "blocks-$rows.tbf"
    cmp whole.tbf "blocks-$rows.tbf" || bad "blocks of $rows rows give another file"
done
tabft-eval predict --model "$tiny" --train train.tbf --test test.tbf --estimators 3 --block-rows 7 --plan >plan
grep -qx '50 rows from 100, [0-9]* columns, in blocks of 7; each of 3 estimators encodes its context 1 time' plan ||
    bad "the plan: $(cat plan)"
bytes() { awk -v kind="$1" '$1 == kind { print $2 }' plan; }
if [ "$(bytes kept)" -le 0 ] || [ "$(bytes network)" -le "$(bytes kept)" ] || [ "$(bytes available)" -le "$(bytes total)" ]
then
    bad "the plan: $(cat plan)"
fi
less=$(($(bytes total) - 1))
tabft-eval predict --model "$tiny" --train train.tbf --test test.tbf --estimators 3 --block-rows 7 --memory "$less" \
    --plan >plan || bad 'with less memory contexts should be encoded with each block'
grep -q 'encodes its context 8 times' plan || bad "the plan with less memory: $(cat plan)"
predict --block-rows 7 --memory "$less" -o again.tbf
cmp whole.tbf again.tbf || bad 'contexts encoded with each block give another file'
less=$(($(bytes total) - 1))
status=0
tabft-eval predict --model "$tiny" --train train.tbf --test test.tbf --estimators 3 --block-rows 7 --memory "$less" \
    --plan >plan 2>err || status=$?
if [ "$status" != 4 ] || [ ! -s plan ] || ! grep -q 'smaller blocks' err; then
    bad "a plan that does not fit: status $status: $(cat plan err)"
fi
refuse 2 --block-rows tabft-eval predict --model "$tiny" --train train.tbf --test test.tbf --block-rows 0 -o p.tbf

# Parts, in any order, by number and as tasks of job arrays.
for parts in 1 3 50; do
    part=0
    set --
    while [ "$part" -lt "$parts" ]; do
        predict --part "$part/$parts" --block-rows 9 -o "part-$part-of-$parts.tbf"
        set -- "part-$part-of-$parts.tbf" "$@"
        part=$((part + 1))
    done
    quietly tabft-eval merge -o "merged-$parts.tbf" "$@"
    cmp whole.tbf "merged-$parts.tbf" || bad "$parts parts give another file"
done
for task in 10 15 20; do
    SLURM_ARRAY_TASK_ID=$task SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=10 SLURM_ARRAY_TASK_STEP=5 predict \
        --part array -o "task-$task.tbf"
done
quietly tabft-eval merge -o merged.tbf task-20.tbf task-10.tbf task-15.tbf
cmp whole.tbf merged.tbf || bad 'the tasks of a job array give another file'
refuse 2 merged.tbf tabft-eval merge -o merged.tbf task-20.tbf task-10.tbf task-15.tbf
quietly tabft-eval merge --force -o merged.tbf task-20.tbf task-10.tbf task-15.tbf

refuse 3 'part 1 of 3 (task 15 of the job array) is missing; run that one again' \
    tabft-eval merge -o m.tbf task-20.tbf task-10.tbf
refuse 3 'part 2 of 3 (task 20 of the job array) is missing' tabft-eval merge -o m.tbf task-15.tbf task-10.tbf
refuse 3 'part 0 of 3 is missing' tabft-eval merge -o m.tbf part-1-of-3.tbf part-2-of-3.tbf
refuse 3 'both are part 1 of 3' tabft-eval merge -o m.tbf part-0-of-3.tbf part-1-of-3.tbf part-1-of-3.tbf part-2-of-3.tbf
refuse 3 'they differ in number of parts' tabft-eval merge -o m.tbf part-0-of-3.tbf part-1-of-50.tbf part-2-of-3.tbf
predict --seed 9 --part 1/3 -o seed.tbf
refuse 3 'they differ in seed' tabft-eval merge -o m.tbf part-0-of-3.tbf seed.tbf part-2-of-3.tbf
quietly tabft-eval predict --model "$tiny" --train test.tbf --test test.tbf --estimators 3 --part 1/3 -o train-too.tbf
refuse 3 'they differ in train_digest' tabft-eval merge -o m.tbf part-0-of-3.tbf train-too.tbf part-2-of-3.tbf
quietly tabft-eval predict --model "$tiny" --train train.tbf --test train.tbf --estimators 3 --part 1/3 -o other.tbf
refuse 3 'they differ in test_digest' tabft-eval merge -o m.tbf part-0-of-3.tbf other.tbf part-2-of-3.tbf
TABFT_ISA=baseline predict --part 1/3 -o baseline.tbf
refuse 3 'they differ in isa' tabft-eval merge -o m.tbf part-0-of-3.tbf baseline.tbf part-2-of-3.tbf
refuse 3 'not a part of a prediction' tabft-eval merge -o m.tbf whole.tbf
refuse 3 'not a part of a prediction' tabft-eval merge -o m.tbf part-0-of-3.tbf test.tbf
refuse 3 none.tbf tabft-eval merge -o m.tbf none.tbf
refuse 2 'needs -o' tabft-eval merge part-0-of-3.tbf
refuse 2 'needs -o' tabft-eval merge -o m.tbf
refuse 3 'part 1 of 3 of a prediction; put them together' tabft-eval score part-1-of-3.tbf
refuse 2 'there are only 50 rows' tabft-eval predict --model "$tiny" --train train.tbf --test test.tbf --part 0/51 -o m.tbf
for part in 3/3 1 /3 1/ -1/3 x/3 1/0; do
    refuse 2 --part tabft-eval predict --model "$tiny" --train train.tbf --test test.tbf --part "$part" -o m.tbf
done
refuse 2 'SLURM_ARRAY_TASK_ID is not set' env -u SLURM_ARRAY_TASK_ID \
    tabft-eval predict --model "$tiny" --train train.tbf --test test.tbf --part array -o m.tbf
refuse 2 'the array has gaps' env SLURM_ARRAY_TASK_ID=12 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=10 \
    SLURM_ARRAY_TASK_STEP=5 tabft-eval predict --model "$tiny" --train train.tbf --test test.tbf --part array -o m.tbf
[ ! -e m.tbf ] || bad 'a refused prediction leaves a file'

# A damaged part is refused, and a merge that fails leaves nothing.
size=$(wc -c <part-1-of-3.tbf)
head -c $((size / 2)) part-1-of-3.tbf >half.tbf
refuse 3 half.tbf tabft-eval merge -o m.tbf part-0-of-3.tbf half.tbf part-2-of-3.tbf
if [ -e m.tbf ] || [ "$(find . -name '.*' -type f | wc -l)" != 0 ]; then bad 'something is left'; fi

# A test table whose columns stand in another order, with one more, gives the same; one that lacks one is refused by name.
awk -F, -v OFS=, '{ print "x" NR, $4, $2, $5, $1, $3 }' seen.csv | sed '1s/^x1/more/' >turned.csv
quietly tabft-prep pack --target target --task classification -o turned.tbf turned.csv
quietly tabft-eval predict --model "$tiny" --train train.tbf --test turned.tbf --estimators 3 --block-rows 8 -o turned-pred.tbf
tabft-prep cat whole.tbf >whole.csv
tabft-prep cat turned-pred.tbf | cmp - whole.csv || bad 'the order of the columns changes predictions'
cut -d , -f 1,2,4,5 seen.csv >narrow.csv
quietly tabft-prep pack --target target --task classification -o narrow.tbf narrow.csv
name=$(head -n 1 seen.csv | cut -d , -f 3)
refuse 3 "column $name of train.tbf is missing" \
    tabft-eval predict --model "$tiny" --train train.tbf --test narrow.tbf --block-rows 8 -o m.tbf
exit "$failed"
