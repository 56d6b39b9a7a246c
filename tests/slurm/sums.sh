# Sourced by tests of ranks that sum (tests/unit/comm/rank_program): a work folder, and what must be.
# shellcheck shell=sh
: "${top_srcdir:?}" "${top_builddir:?}"
program=$top_builddir/tests/unit/comm/rank_program
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

fail() {
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}
# sums_alone ARGUMENT...: what one rank without a launcher prints, for same_as_one.
sums_alone() { "$program" sum "$@" >"$work/one"; }
# same_as_one WHAT COMMAND...: prints that.
same_as_one() {
    what=$1
    shift
    "$@" >"$work/sum" || fail "$what: status $?"
    diff "$work/one" "$work/sum" || fail "$what: other bits"
}
# refused STATUS TEXT COMMAND...: it must end with that status and say that.
refused() {
    expected=$1 text=$2
    shift 2
    status=0
    "$@" >"$work/refused" 2>&1 || status=$?
    [ "$status" = "$expected" ] || { cat -- "$work/refused"; fail "status $status instead of $expected: $*"; }
    grep -q -e "$text" "$work/refused" || { cat -- "$work/refused"; fail "no '$text': $*"; }
}
