#!/bin/sh
# R32: links, FIFOs and folders planted at a target, before or while it is written: what they point at is never touched, the
# writer refuses or leaves a file of its own. The temporary file is made so that nothing planted can be followed.
set -eu
# shellcheck source=tests/faults/writers.sh
. "${top_srcdir:?}/tests/faults/writers.sh"
mkdir shared
chmod 1777 shared
echo precious >victim

untouched() {
    [ "$(cat victim)" = precious ] || fail "$1: the victim was written to"
    [ "$(temporaries shared)" = 0 ] || fail "$1: a temporary file is left"
}
for writer in $writers; do
    for kind in link dangling fifo folder; do
        case $kind in
        link) ln -s ../victim shared/out ;;
        dangling) ln -s ../nowhere shared/out ;;
        fifo) mkfifo shared/out ;;
        folder) mkdir shared/out ;;
        esac
        status_of write_by "$writer" shared/out
        [ "$status" = 2 ] || fail "$writer onto a $kind: status $status"
        { [ "$(wc -l <said)" = 1 ] && grep -q 'not a regular file' said; } || fail "$writer onto a $kind: no clear line"
        [ ! -e nowhere ] || fail "$writer writes through a dangling link"
        untouched "$writer onto a $kind"
        rm -rf shared/out
    done
done
status_of "$sample" write -f victim 3
whole sample victim || fail '--force replaces a regular file'
echo precious >victim
ln -s ../victim shared/out
status_of "$sample" write -f shared/out 3
[ "$status" = 2 ] || fail "--force onto a link: status $status"
untouched '--force onto a link'
rm -f shared/out

# Planted while it is written: just before the rename, and all the time.
if may_trace; then
    strace -qq -o trace -e trace=openat "$sample" write shared/out 3
    grep 'O_CREAT' trace | grep -q 'O_EXCL|O_NOFOLLOW' || fail 'the temporary file may follow what is planted'
    rm -f shared/out
    stop_at fsync 1 "$sample" write shared/out 3
    [ "$(temporaries shared)" = 1 ] || fail 'no temporary file is seen'
    ln -s ../victim shared/out
    go_on
    { [ "$status" = 2 ] && grep -q 'appeared while' said; } || fail "a link planted before the rename: status $status"
    untouched 'a link planted before the rename'
    rm -f shared/out
fi
(
    while :; do
        ln -s ../victim shared/out 2>/dev/null || :
        rm -f shared/out
    done
) &
planter=$!
trap 'kill "$planter" 2>/dev/null || :; rm -rf -- "$work"' EXIT
i=0
while [ "$i" -lt 100 ]; do
    status_of "$sample" write shared/out 2
    case $status in 0 | 2 | 4) ;; *) fail "among planted links: status $status" ;; esac
    i=$((i + 1))
done
kill "$planter"
wait "$planter" 2>/dev/null || :
untouched 'among planted links'
