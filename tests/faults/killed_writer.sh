#!/bin/sh
# R8: a writer that is killed at any of its system calls leaves its target absent or whole and at most one temporary file
# for each target that is known as such, and the next run succeeds. Calls that have nothing to do with files are left out:
# between two that have, nothing changes in a folder.
set -eu
# shellcheck source=tests/faults/writers.sh
. "${top_srcdir:?}/tests/faults/writers.sh"
need_strace
runs=0
for writer in $writers split part; do
    most=1
    [ "$writer" != split ] || most=2
    calls_of "$writer" >calls
    while read -r call count; do
        n=1
        while [ "$n" -le "$count" ]; do
            find . -name '.*.tmp' -exec rm -f -- {} +
            status_of write_by "$writer" out strace -qq -o trace -e "trace=$call" -e "inject=$call:signal=SIGKILL:when=$n"
            [ "$status" = 137 ] || fail "$writer killed at $call $n ends with $status"
            [ "$(temporaries .)" -le "$most" ] || fail "$writer killed at $call $n leaves $(temporaries .) temporary files"
            if [ -e out ]; then whole "$writer" out || fail "$writer killed at $call $n leaves a broken file"; fi
            rm -f out
            runs=$((runs + 1)) n=$((n + 1))
        done
        # What the last one left is there still.
        status_of write_by "$writer" out
        [ "$status" = 0 ] || fail "$writer after $call: the next run ends with $status"
        whole "$writer" out || fail "$writer after $call: the next run leaves a broken file"
        rm -f out
    done <calls
done
[ "$runs" -ge 60 ] || fail "only $runs runs"
echo "$runs kills"
