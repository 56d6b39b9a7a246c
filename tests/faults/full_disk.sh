#!/bin/sh
# R12: file systems of k pages, for k from none to enough: each writer ends with status 4 and a line that says so, and leaves
# nothing, or writes all of its file (skipped without the right to mount a tmpfs).
set -eu
# shellcheck source=tests/faults/writers.sh
. "${top_srcdir:?}/tests/faults/writers.sh"
mkdir disk
if [ "$(id -u)" != 0 ] || ! mount -t tmpfs -o size=4k none disk 2>/dev/null; then
    echo 'a tmpfs cannot be mounted here'
    exit 77
fi
umount disk
trap 'umount disk 2>/dev/null || :; rm -rf -- "$work"' EXIT
full=0
for writer in $writers split part; do
    pages=1
    while :; do
        mount -t tmpfs -o "size=$((pages * 4))k" none disk
        status_of write_by "$writer" disk/out
        case $status in
        0) whole "$writer" disk/out || fail "$writer on $pages pages: a broken file" ;;
        4)
            full=$((full + 1))
            { [ "$(wc -l <said)" = 1 ] && grep -q 'No space left' said; } || fail "$writer on $pages pages: not one line with the cause"
            [ ! -e disk/out ] || fail "$writer on $pages pages: a file is left"
            ;;
        *) fail "$writer on $pages pages: status $status" ;;
        esac
        [ "$(temporaries disk)" = 0 ] || fail "$writer on $pages pages: a temporary file is left"
        umount disk
        [ "$status" != 0 ] || break
        # One more at a time, then more at once: files of 800 pages are among them.
        pages=$((pages + 1 + pages / 6))
    done
done
[ "$full" -ge 8 ] || fail "only $full full disks"
echo "$full full disks"
