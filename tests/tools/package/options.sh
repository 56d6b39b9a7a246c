#!/bin/sh
# Every tool: --help and --version on stdout with status 0, wrong use as one line on stderr with status 2, a full disk under
# stdout with status 4.
set -eu
: "${top_builddir:?}"
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
cd -- "$work"
version=$(sed -n 's/^#define PACKAGE_VERSION "\(.*\)"/\1/p' "$top_builddir/config.h")
failed=0
# expect STATUS STREAM COMMAND...: the status, something on STREAM (stdout or stderr), nothing on the other.
expect() {
    want=$1 stream=$2
    shift 2
    got=0
    "$@" >stdout 2>stderr </dev/null || got=$?
    if [ "$stream" = stdout ]; then silent=stderr; else silent=stdout; fi
    if [ "$got" = "$want" ] && [ -s "$stream" ] && [ ! -s "$silent" ]; then return 0; fi
    echo "$*: status $got instead of $want, stdout and stderr:"
    head -n 5 stdout stderr
    failed=1
}
one_line() {
    [ "$(wc -l <stderr)" = 1 ] && head -c "${#1}" stderr | grep -qxF -- "$1" && return 0
    echo "not one line that starts with '$1':"
    cat stderr
    failed=1
}
for tool in tabft tabft-prep tabft-train tabft-eval tabft-model; do
    expect 0 stdout "$tool" --help
    head -n 1 stdout | grep -q "^Usage: $tool" || { echo "$tool --help: $(head -n 1 stdout)"; failed=1; }
    LC_ALL=C grep -q '.\{81,\}' stdout && { echo "$tool --help: lines longer than 80 characters"; failed=1; }
    expect 0 stdout "$tool" --version
    [ "$(head -n 1 stdout)" = "$tool (TabFT) $version" ] || { echo "$tool --version: $(head -n 1 stdout)"; failed=1; }
    for wrong in --no-such-option -Z ''; do
        # Nothing at all is wrong use too.
        if [ -n "$wrong" ]; then expect 2 stderr "$tool" "$wrong"; else expect 2 stderr "$tool"; fi
        one_line "$tool: "
    done
    # An argument cannot write to the terminal.
    expect 2 stderr "$tool" "$(printf -- '--\033[31mred')"
    ! grep -q "$(printf '\033')" stderr || { echo "$tool: an escape sequence passes to the terminal"; failed=1; }
    if [ -e /dev/full ]; then
        got=0
        "$tool" --help >/dev/full 2>stderr || got=$?
        [ "$got" = 4 ] || { echo "$tool --help >/dev/full: status $got instead of 4"; failed=1; }
    fi
done
for tool in tabft-prep tabft-eval tabft-model; do
    expect 2 stderr "$tool" no-such-verb
    one_line "$tool: "
done
expect 2 stderr tabft no-such-command
one_line 'tabft: '
for command in doctor quickstart; do
    expect 0 stdout tabft "$command" --help
    expect 0 stdout tabft "$command" --version
    expect 2 stderr tabft "$command" --no-such-option
    one_line "tabft $command: "
done
for ranks in 0 -1 x 2.5 ''; do expect 2 stderr tabft quickstart --ranks "$ranks"; done
expect 2 stderr tabft quickstart --out
exit "$failed"
