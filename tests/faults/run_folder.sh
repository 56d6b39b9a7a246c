#!/bin/sh
# R20 and what else may befall the folder of a training: a second run in it, a lock left by a dead one, clocks that are wrong by a
# day, a folder that is read-only or full, a reader of the messages that is gone, no descriptors, unfinished checkpoints.
set -eu
# shellcheck source=tests/faults/writers.sh
. "${top_srcdir:?}/tests/faults/writers.sh"
# shellcheck source=tests/tools/train/metrics.sh
. "$top_srcdir/tests/tools/train/metrics.sh"
network=$top_srcdir/tests/data/reference/v2_6_cls.model.safetensors
head -n 101 "$top_srcdir/share/examples/parity_train.csv" >small.csv
tabft-prep pack --quiet --target y -o small.tbf small.csv
set -- tabft-train --model "$network" --data small.tbf --epochs 30 --estimators 1 --chunk-rows 25 --threads 1 --lr 1e-3 --validation-split 0
"$@" --out whole 2>said || fail "training ends with $?"

# kill_at LINES COMMAND...: kill -9 when so many steps are done.
kill_at() {
    lines=$1
    shift
    "$@" >said 2>&1 &
    child=$!
    waits_for run/metrics.jsonl.partial "$lines"
    kill -KILL "$child"
    wait "$child" 2>/dev/null || :
}
# goes_on WHAT [OPTION...]: the run ends with the same bits.
goes_on() {
    what=$1
    shift
    status_of "$@" --out run --resume
    [ "$status" = 0 ] || fail "$what: status $status"
    cmp -s whole/model.safetensors run/model.safetensors || fail "$what: other weights"
    [ "$(find run -type f | wc -l)" = 4 ] || fail "$what: leaves $(find run -type f)"
}
# refuses WHAT TEXT COMMAND...: status 2 and one line with TEXT.
refuses() {
    what=$1 text=$2
    shift 2
    status_of "$@"
    [ "$status" = 2 ] || fail "$what: status $status"
    [ "$(grep -c -e "$text" said)" = 1 ] || fail "$what: not one line says '$text'"
}

# ---- two runs in one folder ----
"$@" --out run --epochs 100000 --checkpoint-every 1 >first 2>&1 &
child=$!
waits_for run/metrics.jsonl.partial 3
for option in --resume --force; do
    refuses "a second run, $option" "^tabft-train: run: is used by process $child on .*; wait for its end, or name another folder" \
        "$@" --epochs 100000 --out run $option
done
refuses 'a second run' 'run: is used already' "$@" --epochs 100000 --out run
# The same folder by another name.
ln -s run other
refuses 'a second run, by a link' "other: is used by process $child on " "$@" --epochs 100000 --out other --resume
kill -0 "$child" || fail 'the first run did not survive the second'
kill -USR1 "$child"
status=0
wait "$child" || status=$?
[ "$status" = 75 ] || { cat first; fail "the first run ends with $status"; }
# Many at once in a new folder: one trains, the others are refused.
rm -rf run other
for i in 1 2 3 4 5; do
    { own=0; "$@" --out run --resume >"said.$i" 2>&1 || own=$?; echo "$own" >"status.$i"; } &
done
wait
cmp -s whole/model.safetensors run/model.safetensors || fail 'many at once: other weights'
[ "$(find run -type f | wc -l)" = 4 ] || fail "many at once: leave $(find run -type f)"
for i in 1 2 3 4 5; do
    case $(cat "status.$i") in
    0) ;;
    2)
        grep -qE 'run: is used by process|run: another run has just started in it' "said.$i" ||
            { cat "said.$i"; fail 'many at once: refused for something else'; }
        ;;
    *) cat "said.$i"; fail "many at once: status $(cat "status.$i")" ;;
    esac
done
grep -qx 0 status.? || fail 'many at once: none trains'
# A folder that another run makes between two looks at it.
if may_trace; then
    rm -rf run
    mkdir run
    status_of strace -qq -o trace -P run -e inject=newfstatat:error=ENOENT:when=1 "$@" --out run --epochs 1
    grep -q INJECTED trace || fail 'a folder that was not there a moment ago: nothing was injected'
    [ "$status" = 0 ] || fail "a folder that was not there a moment ago: status $status"
fi
# A link to nowhere is no new folder.
ln -s nowhere link
refuses 'a link to nowhere' "link: cannot be the run's folder: No such file" "$@" --out link

# ---- a dead run's lock, and clocks that are wrong by a day ----
for clock in '-1 day' '+1 day'; do
    rm -rf run
    kill_at 8 "$@" --out run --checkpoint-every 3
    [ "$(find run -name '.lock-*' | wc -l)" = 1 ] || fail 'a killed run leaves no lock'
    # What its node wrote, in its own time; half of it.
    find run -depth -name 's*' -exec touch -h -d "$clock" {} +
    touch -d "$clock" run run/.lock-*
    goes_on "after a kill, $clock" "$@" --checkpoint-every 3
    grep -q 'takes over the lock of process [0-9]* on .*, which is gone' said || fail 'the lock that is taken over is not told'
    grep -q 'resumes after step' said || fail 'starts anew'
done
# The same process number again: another process. Its own shell has the lock's number.
rm -rf run
kill_at 4 "$@" --out run --checkpoint-every 2
lock=$(find run -name '.lock-*')
sed "s/^pid .*/pid $$/" "$lock" >edited
mv edited "$lock"
goes_on 'a process number used again' "$@"
# Of an earlier start of the same Slurm job on another node: at once. Another job's: after a while (see the unit test).
rm -rf run
kill_at 4 "$@" --out run --checkpoint-every 2
lock=$(find run -name '.lock-*')
sed 's/^boot .*/boot 11111111/; s/^host .*/host far/; s|^job .*|job c/77|' "$lock" >edited
mv edited "$lock"
goes_on 'its own earlier start' env SLURM_CLUSTER_NAME=c SLURM_JOB_ID=77 SLURM_RESTART_COUNT=1 "$@"
grep -q 'takes over the lock of process [0-9]* on far (job c/77), which is gone' said || fail 'the lock of an earlier start is not told'
# A second run that has taken over: the first ends at its next checkpoint and leaves everything.
rm -rf run
"$@" --out run --epochs 100000 --checkpoint-every 50 >said 2>&1 &
child=$!
waits_for run/metrics.jsonl.partial 3
sed 's/^pid .*/pid 1/; s/^nonce .*/nonce 00000000000000000000000000000000/; s/^host .*/host thief/' run/.lock-1 >run/.lock-2
status=0
wait "$child" || status=$?
[ "$status" = 2 ] || fail "a run that was taken over ends with $status"
grep -q 'run: was taken over by process 1 on thief while this run did not move' said || fail 'a run that was taken over does not say so'
[ -e run/.lock-2 ] || fail "a run that was taken over removes the other's lock"

# ---- what killed writers and unfinished checkpoints leave ----
rm -rf run
kill_at 8 "$@" --out run --checkpoint-every 3
mkdir run/state-000000000099-00000000
cp "$(find run -name 'slice*' | head -n 1)" run/state-000000000099-00000000/slice-0000-of-0001.tbf
: >run/.model.safetensors.n1.1.0123456789abcdef.tmp
: >run/state-000000000099-00000000/.slice-0000-of-0001.tbf.n1.1.0123456789abcdef.tmp
goes_on 'an unfinished checkpoint' "$@" --checkpoint-every 3
# Killed when all was written but the lock and the checkpoints still lay there.
rm -rf run
kill_at 8 "$@" --out run --checkpoint-every 3
cp -r run rest
goes_on 'a kill' "$@"
cp -r rest/state-* rest/.lock-* run/
goes_on 'a kill at the very end' "$@"
grep -q 'run: the run is complete already' said || fail 'a kill at the very end: trains again'
# A link in its place is not followed.
rm -rf run
kill_at 8 "$@" --out run --checkpoint-every 3
mkdir victim
: >victim/file
ln -s ../victim run/state-000000000099-00000000
status_of "$@" --out run --resume --checkpoint-every 3
[ "$status" = 0 ] || fail "a link for a checkpoint: status $status"
[ -e victim/file ] || fail 'a link was followed'

# ---- messages that nobody reads ----
rm -rf run
{ { "$@" --out run --checkpoint-every 2 2>&1 >/dev/null; echo "$?" >ended; } || true; } | head -n 16 >/dev/null
case $(cat ended) in
141)
    [ -z "$(find run -name '.lock-*')" ] || fail 'SIGPIPE leaves the lock'
    ;;
0) ;;
*) fail "a pipe that is closed: status $(cat ended)" ;;
esac
goes_on 'a pipe that is closed' "$@"

# ---- no descriptors ----
if ! grep -q '^TABFT_SANITIZE=.*fsanitize' "$top_builddir/config.log"; then
    refused=0
    for n in 4 5 6 7 8 9 10 11 12; do
        rm -rf run
        # shellcheck disable=SC2016 # for the inner shell
        status_of sh -c 'ulimit -n "$1" && shift && exec "$@"' sh "$n" "$@" --out run --checkpoint-every 40
        case $status in
        0) ;;
        2 | 3 | 4)
            tail -n 1 said | grep -qE 'Too many open files|ulimit -n' || fail "$n descriptors: the cause is not named"
            [ ! -e run/run.json ] || fail "$n descriptors: refused, and complete?"
            refused=$((refused + 1))
            ;;
        # Too few for the loader.
        127) [ "$refused" = 0 ] || fail "$n descriptors: status 127" ;;
        *) fail "$n descriptors: status $status" ;;
        esac
    done
    [ "$refused" -ge 1 ] || fail 'any number of descriptors is enough'
    goes_on 'without descriptors' "$@"
fi

# ---- a small disk, and one that is read-only ----
mkdir disk
mount -t tmpfs -o size=1000k tabft disk 2>/dev/null || { echo 'no file systems may be mounted here: the full disk is left out'; exit 0; }
trap 'umount disk 2>/dev/null || umount -l disk; rm -rf -- "$work"' EXIT
ln -s disk/run run.disk
rm -rf run
status_of "$@" --out disk/run --checkpoint-every 1
[ "$status" = 4 ] || fail "a full disk: status $status"
tail -n 1 said | grep -q 'disk/run.*No space left on device; free space' || fail 'a full disk: path and cause are not named'
[ -z "$(find disk -name '*.tmp')" ] || fail 'a full disk: temporary files are left'
mount -o remount,ro disk
status_of "$@" --out disk/run --resume --checkpoint-every 1
[ "$status" = 4 ] || fail "a read-only disk: status $status"
tail -n 1 said | grep -q 'disk/run.*Read-only file system' || fail 'a read-only disk: path and cause are not named'
mount -o remount,rw,size=16m disk
status_of "$@" --out disk/run --resume --checkpoint-every 1
[ "$status" = 0 ] || fail "with room again: status $status"
grep -q 'resumes after step' said || fail 'with room again: starts anew'
cmp -s whole/model.safetensors disk/run/model.safetensors || fail 'with room again: other weights'
