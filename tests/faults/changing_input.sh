#!/bin/sh
# R38: an input that is cut, grown, rewritten or replaced while it is read gives what it was, what it became, or status 3
# with one line: never a mix, never a file made of one.
set -eu
# shellcheck source=tests/faults/writers.sh
. "${top_srcdir:?}/tests/faults/writers.sh"
need_strace
seq 1 3000 | awk 'BEGIN { print "n,m" } { print $1 "," $1 * 7 }' >old.csv
seq 1 3000 | awk 'BEGIN { print "n,m" } { print $1 "," $1 * 9 }' >new.csv
tabft-prep pack --quiet -o old.tbf old.csv
tabft-prep pack --quiet -o new.tbf new.csv
refusals=0

# change HOW NAME: NAME is old.NAME and becomes something else.
change() {
    case $1 in
    cut) truncate -s 5000 "$2" ;;
    grown) echo '1,2' >>"$2" ;;
    rewritten) cat "new.${2#in.}" >"$2" ;;
    replaced) cp "new.${2#in.}" other && mv -f other "$2" ;;
    removed) rm -f "$2" ;;
    esac
}

# read_in SUFFIX [COMMAND...]: reads in.SUFFIX into got.csv or got.tbf, on one thread: it makes the same calls each time.
read_in() {
    suffix=$1
    shift
    case $suffix in
    csv) "$@" tabft-prep pack --quiet --threads 1 -o got.tbf in.csv ;;
    tbf) "$@" tabft-prep cat --threads 1 -o got.csv in.tbf ;;
    esac
}

# read_again: what is in the input now, in again.csv, if it can be read.
read_again() {
    rm -f again.*
    if [ "$suffix" = csv ]; then tabft-prep pack --quiet -o again.tbf in.csv >/dev/null 2>&1 || return 0; else cp in.tbf again.tbf; fi
    tabft-prep cat -o again.csv again.tbf >/dev/null 2>&1 || rm -f again.csv
}

for suffix in csv tbf; do
    cp "old.$suffix" "in.$suffix"
    read_in "$suffix" strace -qq -o trace -e trace=pread64
    rm -f got.*
    reads=$(wc -l <trace)
    for how in cut grown rewritten replaced removed; do
        n=1
        while [ "$n" -le "$reads" ]; do
            cp "old.$suffix" "in.$suffix"
            read_in "$suffix" stop_at pread64 "$n"
            change "$how" "in.$suffix"
            go_on
            case $status in
            0)
                # Before anything was read it is a file like another.
                [ "$n" = 1 ] || fail "$suffix $how at read $n of $reads: not noticed"
                [ "$suffix" != csv ] || tabft-prep cat -o got.csv got.tbf
                read_again
                cmp -s got.csv old.csv || cmp -s got.csv new.csv || cmp -s got.csv again.csv ||
                    fail "$suffix $how at read $n: mixed content"
                ;;
            3)
                [ "$(wc -l <said)" = 1 ] || fail "$suffix $how at read $n: not one line"
                ls got.* >/dev/null 2>&1 && fail "$suffix $how at read $n: a file is left"
                refusals=$((refusals + 1))
                ;;
            *) fail "$suffix $how at read $n: status $status" ;;
            esac
            rm -f got.*
            n=$((n + (reads + 5) / 6))
        done
    done
done
[ "$refusals" -gt 0 ] || fail 'nothing was changed in time to be refused'
echo "$refusals refusals"
