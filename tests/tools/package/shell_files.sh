#!/bin/sh
# Every shell file of the tree passes shellcheck, is POSIX sh (the bash completion apart) and runs under set -eu.
set -eu
command -v shellcheck >/dev/null || { echo 'shellcheck is not installed (Debian: shellcheck)'; exit 77; }
cd -- "${top_srcdir:?}"
list=$(mktemp)
trap 'rm -f -- "$list"' EXIT
find bootstrap .ci bin jobs share tests -type f ! -path 'share/build/*' -size -200k 2>/dev/null |
    while IFS= read -r file; do
        if head -n 1 -- "$file" | grep -Eq '^(#!.*/(env )?(ba|da|k|z)?sh|# shellcheck shell=sh)'; then printf '%s\n' "$file"; fi
    done >"$list"
count=$(wc -l <"$list")
[ "$count" -ge 10 ] || { echo "only $count shell files were found"; exit 1; }
failed=0
while IFS= read -r file; do
    shellcheck -x -- "$file" || failed=1
    case $(head -n 1 -- "$file") in
    '#!/bin/sh')
        grep -q '^set -eu$' -- "$file" || { echo "$file: has no set -eu"; failed=1; }
        [ -x "$file" ] || case $file in *.sbatch) ;; *) echo "$file: is not executable"; failed=1 ;; esac
        ;;
    '# shellcheck shell=sh'*) ;;
    *) echo "$file: not plain #!/bin/sh"; failed=1 ;;
    esac
done <"$list"
shellcheck -s bash -- share/completions/tabft || failed=1
echo "$count shell files"
exit "$failed"
