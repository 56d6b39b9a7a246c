# What the tests of tabft-prep share. Sourced, with set -eu on.
# shellcheck shell=sh
# shellcheck disable=SC2034 # the tests use what is set here
: "${TABFT_DATA:?}"
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
failed=0
bad() {
    echo "$*"
    failed=1
}
# case_of NN: the folder of a case.
case_of() { echo "$TABFT_DATA/cases/$1"-*; }
# pack ARGUMENT...: must succeed; stderr is kept in $work/err.
pack() {
    status=0
    tabft-prep pack --force "$@" 2>"$work/err" || status=$?
    [ "$status" = 0 ] || bad "pack $*: status $status: $(cat "$work/err")"
}
# refused STATUS TEXT PACK-ARGUMENT...: pack ends with the status, one line on stderr that has TEXT, and no output.
refused() {
    want=$1 text=$2
    shift 2
    status=0
    rm -f -- "$work/refused.tbf"
    tabft-prep pack "$@" -o "$work/refused.tbf" >"$work/out" 2>"$work/err" || status=$?
    [ "$status" = "$want" ] || bad "pack $*: status $status instead of $want"
    [ "$(grep -cv '^tabft-prep: warning: ' "$work/err")" = 1 ] || bad "pack $*: not one line: $(cat "$work/err")"
    grep -qF -- "$text" "$work/err" || bad "pack $*: '$text' is not in: $(cat "$work/err")"
    # Neither the file nor a temporary one beside it.
    for left in "$work"/refused.tbf "$work"/.refused.tbf.*; do [ ! -e "$left" ] || bad "pack $*: leaves $left"; done
}
# said TEXT: the last pack's stderr has it.
said() { grep -qF -- "$1" "$work/err" || bad "'$1' was not said: $(cat "$work/err")"; }
# cat_is FILE.tbf EXPECTED-FILE
cat_is() {
    tabft-prep cat "$1" >"$work/cat.csv" || bad "cat $1 fails"
    cmp -s "$work/cat.csv" "$2" || { bad "cat $1 is not as expected:"; diff "$work/cat.csv" "$2" | head -n 10; }
}
# every_way FILE ARGUMENT...: the packed bytes do not depend on block size or threads. Leaves them in $work/ways.tbf.
every_way() {
    pack "$@" -o "$work/ways.tbf"
    for threads in 1 2 5; do
        # The tests set it.
        # shellcheck disable=SC2154
        for block in $blocks; do
            pack "$@" --threads "$threads" --block-bytes "$block" -o "$work/way.tbf"
            cmp -s "$work/way.tbf" "$work/ways.tbf" || bad "pack $* --threads $threads --block-bytes $block: other bytes"
        done
    done
}
