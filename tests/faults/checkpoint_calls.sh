#!/bin/sh
# R8, R10, R17 for checkpoints: a training is killed at, and given errors by, the system calls that write its third checkpoint and
# remove its first. The one before stays whole, an error is one line with path and cause, and the run goes on to the same bits.
# Without argument a part of the calls, with "all" each of them (check-long).
set -eu
# shellcheck source=tests/faults/writers.sh
. "${top_srcdir:?}/tests/faults/writers.sh"
# shellcheck source=tests/tools/train/metrics.sh
. "$top_srcdir/tests/tools/train/metrics.sh"
need_strace
which=${1-some}
network=$top_srcdir/tests/data/reference/v2_6_cls.model.safetensors
head -n 101 "$top_srcdir/share/examples/parity_train.csv" >small.csv
tabft-prep pack --quiet --target y -o small.tbf small.csv

# train OUT [COMMAND...]: 8 steps with checkpoints after the 2nd, 4th and 6th, as arguments of COMMAND, in $status.
train() {
    out=$1
    shift
    status_of "$@" tabft-train --model "$network" --data small.tbf --out "$out" --resume --epochs 2 --estimators 1 --chunk-rows 25 \
        --threads 1 --lr 1e-3 --validation-split 0 --checkpoint-every 2
}

train whole env
[ "$status" = 0 ] || fail "training ends with $status"
course whole >lines
[ "$(wc -l <lines)" = 8 ] || fail "not 8 steps"
calls='mkdir,openat,fcntl,fallocate,write,pread64,fstat,newfstatat,fsync,close,renameat2,getdents64,unlinkat,rmdir,getrandom,lseek,ftruncate,clock_gettime'
train traced strace -f -qq -o trace -e "trace=$calls"
[ "$status" = 0 ] || fail "training ends with $status under strace"
# The calls of the main thread from the making of the third checkpoint to the next line of metrics, "NAME N" a line: the n-th of
# that name in the process.
main=$(sed -n '1s/ .*//p' trace)
awk -v main="$main" '$1 == main { name = $2; sub(/\(.*/, "", name); n[name]++
    if (name == "mkdir" && /state-000000000006/) inside = 1
    if (inside && name == "write" && /"kind/) exit
    if (inside) print name, n[name] }' trace >numbered
[ "$(grep -c fsync numbered)" -ge 5 ] || fail "only $(grep -c fsync numbered) fsyncs in a checkpoint"
# What makes it safe is their order: the folder's name on storage; each file on storage before its name, and its name; the manifest
# last; only then the first checkpoint goes, its manifest before the rest.
order=$(sed -n 's/^\(mkdir\|fsync\|renameat2\|unlinkat\|rmdir\) .*/\1/p' numbered | paste -s -d ' ')
[ "$order" = 'mkdir fsync fsync renameat2 fsync fsync renameat2 fsync unlinkat unlinkat rmdir' ] || fail "another order: $order"
grep -q '^[0-9]* *unlinkat([0-9]*, "manifest.tbf"' trace || fail 'the manifest of the first checkpoint is not removed'
printf '%s calls: %s\n' "$(wc -l <numbered)" "$(sed 's/ .*//' numbered | sort | uniq -c | awk '{ printf "%s %s, ", $1, $2 }')"

# goes_on WHAT: the run in the folder `run` ends with the same bits; not by starting anew.
goes_on() {
    [ "$(find run -maxdepth 2 -name manifest.tbf | wc -l)" -ge 1 ] || fail "$1: no checkpoint is left"
    train run env
    [ "$status" = 0 ] || fail "$1: it does not go on: status $status"
    grep -q 'resumes after step [46] of 8' said || fail "$1: starts anew"
    ! grep -q 'damaged' said || fail "$1: leaves a damaged checkpoint"
    cmp -s whole/model.safetensors run/model.safetensors || fail "$1: other weights"
    course run | cmp -s - lines || fail "$1: other losses"
    [ "$(find run -type f | wc -l)" = 4 ] || fail "$1: leaves $(find run -type f)"
}
runs=0
while read -r call n; do
    case $which/$call in
    all/* | some/mkdir | some/fsync | some/renameat2 | some/unlinkat | some/rmdir) faults='signal=SIGKILL error=EIO' ;;
    some/write) faults='signal=SIGKILL error=ENOSPC' ;;
    some/openat) faults='error=EMFILE' ;;
    *) continue ;;
    esac
    [ "$which" = some ] || case $call in
    write) faults="$faults error=ENOSPC retval=1 error=EINTR" ;;
    fsync) faults="$faults error=ENOSPC error=EDQUOT" ;;
    close) faults="$faults error=EDQUOT" ;;
    openat) faults="$faults error=EMFILE error=EROFS" ;;
    mkdir) faults="$faults error=ENOSPC error=EROFS" ;;
    esac
    for fault in $faults; do
        what="$call $n, $fault"
        rm -rf run
        train run strace -qq -o trace -e "trace=$call" -e "inject=$call:$fault:when=$n"
        runs=$((runs + 1))
        case $fault/$status in
        signal=SIGKILL/137) ;;
        signal=SIGKILL/*) fail "$what: status $status" ;;
        */4)
            [ "$(grep -c '^tabft-train: .*: ' said)" -ge 1 ] || fail "$what: no line"
            tail -n 1 said | grep -q "^tabft-train: .*run.*: " || fail "$what: the path is not named"
            [ "$fault" = retval=1 ] ||
                tail -n 1 said | grep -qE 'Input/output error|No space left|quota|Too many open files|Read-only' ||
                fail "$what: the cause is not named"
            ;;
        # What cannot be removed is told; what can be tried again or done otherwise does not show.
        */0)
            case $call/$fault in
            */error=EINTR | unlinkat/* | rmdir/* | getdents64/* | fcntl/* | lseek/* | fallocate/* | clock_gettime/*) ;;
            close/* | openat/* | newfstatat/* | fstat/*) ;;
            *) fail "$what: is not noticed" ;;
            esac
            cmp -s whole/model.safetensors run/model.safetensors || fail "$what: other weights"
            continue
            ;;
        *) fail "$what: status $status" ;;
        esac
        goes_on "$what"
    done
done <numbered
[ "$runs" -ge 30 ] || fail "only $runs runs"
printf '%s faults\n' "$runs"
