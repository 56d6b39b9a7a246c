#!/bin/sh
# R14: stdout that is closed, full, a pipe nobody reads or a terminal: status 4, 4, 141 and 2, one line at most.
set -eu
# shellcheck source=tests/faults/writers.sh
. "${top_srcdir:?}/tests/faults/writers.sh"
"$sample" write data.tbf 60

# to_stdout NAME: commands that write to stdout, binary ones first.
to_stdout() {
    case $1 in
    write) "$sample" write - 60 ;;
    pack) tabft-prep pack --quiet --threads 1 --target y -o - table.csv ;;
    list) "$sample" list data.tbf ;;
    cat) tabft-prep cat table.tbf ;;
    info) tabft-prep info --json table.tbf ;;
    help) tabft-prep --help ;;
    model) tabft-model --version ;;
    esac
}
tabft-prep pack --quiet --target y -o table.tbf table.csv

for name in write pack list cat info help model; do
    status=0
    to_stdout "$name" >&- 2>said || status=$?
    [ "$status" = 4 ] || fail "$name, closed stdout: status $status"
    [ "$(wc -l <said)" = 1 ] || fail "$name, closed stdout: not one line"
    status=0
    to_stdout "$name" >/dev/full 2>said || status=$?
    [ "$status" = 4 ] || fail "$name, full stdout: status $status"
    { [ "$(wc -l <said)" = 1 ] && grep -q 'No space left' said; } || fail "$name, full stdout: not one line with the cause"
    # stdin and stderr closed as well: no file of ours takes their numbers.
    status=0
    to_stdout "$name" >out 2>&- <&- || status=$?
    { [ "$status" = 0 ] && [ -s out ]; } || fail "$name, closed stderr: status $status"
done

# A pipe that nobody reads any more: the end by SIGPIPE, without a word.
seq 1 200000 | awk 'BEGIN { print "n,m" } { print $1 "," $1 * 7 }' >long.csv
tabft-prep pack --quiet -o long.tbf long.csv
for command in "$sample write - 100" "tabft-prep cat long.tbf"; do
    rm -f ended
    # Words on purpose.
    # shellcheck disable=SC2086
    { { $command 2>said; echo "$?" >ended; } || true; } | head -c 10 >/dev/null
    [ "$(cat ended)" = 141 ] || fail "$command, broken pipe: status $(cat ended)"
    [ ! -s said ] || fail "$command, broken pipe: says something"
done

# One that takes what it has room for and no more: what is left is written when there is. (dd makes it so for all that write to it.)
seq 1 200000 | awk 'BEGIN { print "n" } { printf "%.9f\n", sqrt($1) }' >noise.csv
tabft-prep pack --quiet -o noise.tbf noise.csv
[ "$(wc -c <noise.tbf)" -gt 500000 ] || fail 'too small for what a pipe takes at a time'
{
    dd oflag=nonblock if=/dev/null 2>/dev/null
    status=0
    tabft-prep pack --quiet -o - noise.csv 2>said || status=$?
    echo "$status" >ended
} | { sleep 0.5; cat; } >piped
{ [ "$(cat ended)" = 0 ] && cmp piped noise.tbf; } || fail "a pipe that takes little at a time: status $(cat ended)"

# Binary to a terminal is refused, text is not.
if command -v script >/dev/null; then
    for name in "$sample write - 3" "tabft-prep pack --quiet -o - table.csv"; do
        status=0
        script -qec "$name" /dev/null >said </dev/null || status=$?
        { [ "$status" = 2 ] && grep -q 'is a terminal' said; } || fail "$name to a terminal: status $status"
    done
fi

# What was written to a regular stdout is whole.
"$sample" write - 60 | "$sample" list - >piped
"$sample" list data.tbf >listed
cmp piped listed || fail 'through a pipe it is another file'
