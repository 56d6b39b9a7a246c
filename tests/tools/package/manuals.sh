#!/bin/sh
# The manual pages: clean for mandoc, one for each tool, and the options of a tool's --help are those of its page.
set -eu
cd -- "${top_srcdir:?}"
command -v mandoc >/dev/null || { echo 'mandoc is not installed (Debian: mandoc)'; exit 77; }
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
failed=0
# Messages of level STYLE are of taste.
mandoc -T lint -W warning share/man/*.[1-9] >"$work/lint" 2>&1 || failed=1
cat -- "$work/lint"

# helps TOOL: all that its --help says, those of its verbs included.
helps() {
    case $1 in
    tabft) set -- tabft '' doctor quickstart ;;
    tabft-prep) set -- tabft-prep '' pack merge split cat info verify ;;
    tabft-eval) set -- tabft-eval '' predict merge score parity ;;
    tabft-model) set -- tabft-model '' info verify diff init ;;
    *) set -- "$1" '' ;;
    esac
    tool=$1
    shift
    for verb in "$@"; do
        # A tool may say everything in its own --help and take a verb's as wrong use.
        if [ -n "$verb" ]; then "$tool" "$verb" --help 2>/dev/null || true; else "$tool" --help; fi
    done
}
for tool in tabft tabft-prep tabft-train tabft-eval tabft-model; do
    page=share/man/$tool.1
    [ -e "$page" ] || { echo "$page is missing"; failed=1; continue; }
    # In --help an option is the first word of its line, maybe after a short one; in the page it follows Fl.
    helps "$tool" | sed -n 's/^ *\(-[a-zA-Z0-9], *\)\{0,1\}\(--[a-z][-a-z0-9]*\).*/\2/p' | sort -u >"$work/help"
    grep '^\.' "$page" | grep -oE 'Fl( +\|? *-[a-z][-a-z0-9]*)+' | grep -oE -- '-[a-z][-a-z0-9]*' | sed 's/^/-/' | sort -u >"$work/page"
    [ -s "$work/help" ] || { echo "$tool --help names no options"; failed=1; }
    diff -- "$work/help" "$work/page" >"$work/diff" ||
        { echo "$tool: only in --help (<) or only in $page (>):"; grep '^[<>]' "$work/diff"; failed=1; }
done
exit "$failed"
