# Sourced by the tests of tabft-train: a work folder, and what a command must do.
# shellcheck shell=sh
: "${top_srcdir:?}" "${top_builddir:?}"
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
cases=$top_srcdir/tests/data/cases
# A network of 40,618 parameters: what is tested here is the loop around it.
model=$top_srcdir/tests/data/reference/v2_6_cls.model.safetensors
export cases model

fail() {
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}
# works COMMAND...: status 0; what it says on stderr is in $work/said.
works() {
    "$@" 2>"$work/said" || { status=$?; cat -- "$work/said" >&2; fail "status $status: $*"; }
}
# refuses STATUS TEXT COMMAND...: that status, and a line of tabft-train with TEXT.
refuses() {
    want=$1 text=$2
    shift 2
    status=0
    "$@" >"$work/out" 2>"$work/said" || status=$?
    [ "$status" = "$want" ] || { cat -- "$work/said" >&2; fail "status $status instead of $want: $*"; }
    grep -q -e "^tabft-train: .*$text" "$work/said" || { cat -- "$work/said" >&2; fail "does not say '$text': $*"; }
}
# says TEXT: the last command said it.
says() {
    grep -q -e "$1" "$work/said" || { cat -- "$work/said" >&2; fail "does not say '$1'"; }
}
# pack TARGET CSV TBF
pack() {
    tabft-prep pack --quiet --target "$1" --classes -o "$3" "$2" || fail "cannot pack $2"
}
# field FILE KEY: a number or text at the top of run.json.
field() {
    sed -n "s/^ \"$2\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$1"
}
