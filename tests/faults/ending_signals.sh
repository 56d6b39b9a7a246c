#!/bin/sh
# R15: a signal that ends a writer, at any of its system calls, removes the temporary file; the status is the signal's.
# One that was ignored at the start stays ignored.
set -eu
# shellcheck source=tests/faults/writers.sh
. "${top_srcdir:?}/tests/faults/writers.sh"
need_strace
runs=0
for writer in $writers split; do
    calls_of "$writer" >calls
    for signal in TERM:143 INT:130 HUP:129 USR1:138 PIPE:141; do
        number=${signal#*:} signal=${signal%:*}
        while read -r call count; do
            # Each call once for TERM, for the others those that make and finish the file.
            case $signal/$call in
            TERM/* | */openat | */write | */fsync | */renameat2) ;;
            *) continue ;;
            esac
            n=1
            while [ "$n" -le "$count" ]; do
                status_of write_by "$writer" out strace -qq -o trace -e "trace=$call" -e "inject=$call:signal=SIG$signal:when=$n"
                [ "$status" = "$number" ] || fail "$writer, $signal at $call $n: status $status"
                [ "$(temporaries .)" = 0 ] || fail "$writer, $signal at $call $n: a temporary file is left"
                if [ -e out ]; then whole "$writer" out || fail "$writer, $signal at $call $n: a broken file is left"; fi
                rm -f out
                # Of many equal ones the first, the last and some between.
                runs=$((runs + 1)) n=$((n == 1 || n + 1 >= count ? n + 1 : n + (count - n) / 2))
            done
        done <calls
    done
    # nohup
    status_of sh -c 'trap "" HUP; exec "$@"' sh strace -qq -o trace -e inject=fsync:signal=SIGHUP:when=1 "$sample" write out 3
    { [ "$status" = 0 ] && "$sample" verify out; } || fail "an ignored signal ends the writer: status $status"
    rm -f out
done
[ "$runs" -ge 60 ] || fail "only $runs runs"
echo "$runs signals"
