# Sourced by tests of how much memory a program takes, first.
# shellcheck shell=sh
# The sanitizers' own records would be in it.
! grep -q "^TABFT_SANITIZE='.*fsanitize" "${top_builddir:?}/config.log" || { echo 'a sanitizer build needs more'; exit 77; }

# bounds PLAN PEAK: the plan of bytes is never below what was taken, and at most 5 % and 2 MB above: what the program and the C library
# take differs between machines.
bounds() { awk -v plan="$1" -v peak="$2" 'BEGIN { exit !(plan >= peak && plan <= 1.05 * peak + 2e6) }'; }
# used COMMAND...: "peak in bytes, processor seconds" of it, behind what it prints itself.
used() { "$top_builddir/tests/tools/used" "$@"; }
