#!/bin/sh
# Cheap rules of the house for code, scripts and manuals: spaces only, no blanks at line ends, a newline at the end, and
# lines that a screen holds (160; what is meant are 120, see .clang-format).
set -eu
cd -- "${top_srcdir:?}"
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
find bin lib jobs tests share bootstrap configure.ac README.md \
    \( -name '*.c' -o -name '*.h' -o -name '*.sh' -o -name '*.sbatch' -o -name '*.[1-9]' -o -name '*.py' -o -name '*.md' \
    -o -name LAYERS -o -name bootstrap -o -name configure.ac -o -name tabft -o -name run -o -name quickstart \
    -o -name doctor -o -name layers -o -name vs-python \) -type f ! -path 'share/build/*' ! -path 'tests/data/*' >"$work/files"
[ "$(wc -l <"$work/files")" -ge 20 ] || { echo 'too few files were found'; exit 1; }
tab=$(printf '\t')
: >"$work/found"
while IFS= read -r file; do
    {
        LC_ALL=C.UTF-8 grep -Hn '^.\{161,\}' -- "$file" | sed 's/^\([^:]*:[0-9]*\):.*/\1: longer than 160 characters/'
        grep -Hn "$tab" -- "$file" | sed 's/^\([^:]*:[0-9]*\):.*/\1: a tab/'
        grep -Hn ' $' -- "$file" | sed 's/^\([^:]*:[0-9]*\):.*/\1: blanks at the end/'
        [ -z "$(tail -c 1 -- "$file")" ] || echo "$file: no newline at the end"
    } >>"$work/found"
done <"$work/files"
cat -- "$work/found"
[ ! -s "$work/found" ]
