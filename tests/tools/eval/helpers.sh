# Sourced by the tests of tabft-eval: a work folder, in which they go on, and what a command must do.
# shellcheck shell=sh disable=SC2034
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
cd -- "$work" || exit 1
# The status that a test ends with; what sources this reads it.
failed=0
bad() {
    echo "$*"
    failed=1
}
# quietly COMMAND...: what it says counts only where it fails.
quietly() {
    "$@" >out 2>err || { cat out err; return 1; }
}
# refuse STATUS TEXT COMMAND...: that status, one line on stderr with TEXT, nothing on stdout.
refuse() {
    want=$1 text=$2
    shift 2
    status=0
    "$@" >out 2>err || status=$?
    if [ "$status" = "$want" ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] && grep -qF -- "$text" err; then return 0; fi
    bad "$*: status $status instead of $want, or no '$text': $(cat out err)"
}
