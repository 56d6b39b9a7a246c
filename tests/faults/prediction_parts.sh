#!/bin/sh
# The parts of a prediction that a job array made: one that is lost is named by its task, one that is cut, has a bit turned over,
# is there twice, is a part of something else or no part at all is named by its file; merge then ends with 3 and makes nothing. The
# task that was lost is run alone again, and all together are the bytes of one process.
set -eu
# shellcheck source=tests/faults/writers.sh
. "${top_srcdir:?}/tests/faults/writers.sh"

# predict OUT [OPTION...]
predict() {
    predicted=$1
    shift
    tabft-eval predict --threads 1 --estimators 1 --model "$model" --train train.tbf --test train.tbf "$@" -o "$predicted" >said 2>&1 ||
        fail "predict $* ends with $?"
}
# task NUMBER [OPTION...]: one of the array 20-50:10.
task() {
    number=$1
    shift
    SLURM_ARRAY_TASK_ID=$number SLURM_ARRAY_TASK_COUNT=4 SLURM_ARRAY_TASK_MIN=20 SLURM_ARRAY_TASK_STEP=10
    export SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_COUNT SLURM_ARRAY_TASK_MIN SLURM_ARRAY_TASK_STEP
    predict "task-$number.tbf" --part array "$@"
}
# refused WHAT TEXT PART...: status 3, one line with the text, no file.
refused() {
    what=$1 text=$2
    shift 2
    rm -f out
    status_of tabft-eval merge --threads 1 -o out "$@"
    [ "$status" = 3 ] || fail "$what: status $status"
    { [ "$(wc -l <said)" = 1 ] && grep -q -e "$text" said; } || fail "$what: not one line with '$text'"
    { [ ! -e out ] && [ "$(temporaries .)" = 0 ]; } || fail "$what: a file is left"
}
for number in 20 30 40 50; do task "$number"; done
predict whole.tbf
tabft-eval merge --threads 1 -o joined.tbf task-??.tbf || fail 'no merge'
cmp whole.tbf joined.tbf || fail 'joined it is another file'

# ---- lost ----
for number in 20 30 40 50; do
    mv "task-$number.tbf" lost
    index=$((number / 10 - 2))
    refused "without task $number" "part $index of 4 (task $number of the job array) is missing; run that one again (predict --part $index/4)" \
        task-??.tbf
    # That task alone, killed once more while it writes.
    if may_trace; then
        status_of env SLURM_ARRAY_TASK_ID="$number" strace -qq -o trace -e inject=fsync:signal=SIGKILL:when=1 tabft-eval predict --threads 1 \
            --estimators 1 --model "$model" --train train.tbf --test train.tbf --part array -o "task-$number.tbf"
        [ "$status" = 137 ] || fail "a task that is killed ends with $status"
        [ ! -e "task-$number.tbf" ] || fail 'a task that was killed left its part'
        [ "$(temporaries .)" = 1 ] || fail 'not the one temporary file of the killed task'
        find . -name '.*.tmp' -exec rm -f -- {} +
    fi
    task "$number"
    cmp lost "task-$number.tbf" || fail "task $number again: another part"
done
# Two are lost: the first is named. Out of order is fine.
refused 'two lost' 'part 1 of 4 (task 30 of the job array) is missing' task-50.tbf task-20.tbf
tabft-eval merge --threads 1 --force -o joined.tbf task-50.tbf task-30.tbf task-20.tbf task-40.tbf || fail 'no merge out of order'
cmp whole.tbf joined.tbf || fail 'joined out of order it is another file'

# ---- twice, of another prediction, no part ----
cp task-30.tbf again.tbf
refused 'twice' 'task-30.tbf and again.tbf: both are part 1 of 4 (task 30 of the job array); name one of them' task-??.tbf again.tbf
mv task-40.tbf lost
task 40 --seed 5
refused 'of another prediction' 'task-20.tbf and task-40.tbf: are parts of two predictions: they differ in seed' task-??.tbf
mv lost task-40.tbf
refused 'no part' 'whole.tbf: not a part of a prediction' task-20.tbf whole.tbf
refused 'a table' 'train.tbf: not a part of a prediction' task-20.tbf train.tbf
status_of tabft-eval score task-20.tbf
{ [ "$status" = 3 ] && grep -q 'part 0 of 4 of a prediction; put them together with tabft-eval merge' said; } || fail "a part is scored: $status"
refused 'no file' 'none.tbf: ' task-20.tbf none.tbf

# ---- damage ----
cp task-30.tbf bad.tbf
size=$(wc -c <bad.tbf)
flips=0 byte=0
while [ "$byte" -lt "$size" ]; do
    bit=$((byte * 8 + byte % 8))
    "$sample" flip bad.tbf "$bit"
    refused "bit $bit" 'bad.tbf: ' task-20.tbf bad.tbf task-40.tbf task-50.tbf
    "$sample" flip bad.tbf "$bit"
    flips=$((flips + 1)) byte=$((byte + 7))
done
cmp task-30.tbf bad.tbf
cuts=0 n=0
while [ "$n" -lt "$size" ]; do
    head -c "$n" task-30.tbf >bad.tbf
    refused "cut at $n" 'bad.tbf: ' task-20.tbf bad.tbf task-40.tbf task-50.tbf
    cuts=$((cuts + 1)) n=$((n + 1 + n / 9))
done
cat task-30.tbf task-40.tbf >bad.tbf
refused 'two in one file' 'bad.tbf: ' task-20.tbf bad.tbf task-50.tbf
[ "$flips" -ge 200 ] || fail "only $flips bits turned over in $size bytes"
echo "$flips bits turned over, $cuts cuts"
