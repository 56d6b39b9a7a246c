#!/bin/sh
# What README tells a user to type or to look at is there: commands, scripts, manual pages and files of the tree.
set -eu
cd -- "${top_srcdir:?}"
failed=0
bad() {
    echo "README.md: $*"
    failed=1
}
# Indented blocks: the first word of each line that starts a command.
commands=$(sed -n 's/^    \([a-z./][a-z0-9./_-]*\)\( .*\)\{0,1\}$/\1/p' README.md | sort -u)
[ -n "$commands" ] || bad 'no command was found'
for command in $commands; do
    case $command in
    ./bootstrap | jobs/* | tests/* | share/* | bin/*) [ -x "$command" ] || bad "$command cannot be run" ;;
    ./configure | ../configure) ;; # made by ./bootstrap
    tabft | tabft-*) [ -x "$command" ] || [ -x "bin/$command" ] || [ -x "${top_builddir:?}/bin/$command" ] ||
        bad "$command is not built" ;;
    *) ;; # cd, make, srun, salloc: not ours
    esac
done
# Paths of the tree in backquotes, and manual pages as name(1).
# shellcheck disable=SC2016
for path in $(grep -o '`[a-z]*/[A-Za-z0-9_./-]*`' README.md | tr -d '`' | sort -u); do
    [ -e "$path" ] || [ -e "${top_builddir:?}/$path" ] || bad "$path does not exist"
done
for page in $(grep -oE '(tabft|tbf)[a-z-]*\([1-9]\)' README.md | tr ' ' '\n' | sort -u); do
    file=share/man/$(printf '%s' "$page" | sed 's/(\(.\))/.\1/')
    [ -e "$file" ] || bad "$page has no $file"
done
exit "$failed"
