# Sourced by tests of how much memory a program takes, first.
# shellcheck shell=sh
# The sanitizers' own records would be in it.
! grep -q "^TABFT_SANITIZE='.*fsanitize" "${top_builddir:?}/config.log" || { echo 'a sanitizer build needs more'; exit 77; }

# bounds PLAN PEAK: the plan of bytes is never below what was taken, and at most 5 % and 4 MB above: what the program and the C library
# take differs between machines, and by how large the pieces are in which the system has read their files (from_disk).
bounds() { awk -v plan="$1" -v peak="$2" 'BEGIN { exit !(plan >= peak && plan <= 1.05 * peak + 4e6) }'; }
# from_disk TOOL: a copy of the program in ./from-disk, which the system has read in the largest pieces it does; a process has more
# of such a file in its memory.
from_disk() {
    mkdir -p from-disk
    cp -- "$(command -v "$1")" from-disk
    sync from-disk/"$1"
    dd if=from-disk/"$1" iflag=nocache count=0 2>/dev/null
    cat from-disk/"$1" >/dev/null
}
# used COMMAND...: "peak in bytes, processor seconds" of it, behind what it prints itself.
used() { "$top_builddir/tests/tools/used" "$@"; }
