#!/bin/sh
# A release: the tarball's bytes depend on the commit alone, and it builds, passes its tests, installs and uninstalls from a
# source folder that cannot be written to (make check-long: as long as make check).
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
unset MAKEFLAGS MFLAGS MAKELEVEL TABFT_PLUGIN_PATH
cd -- "$top_builddir"
log=$(mktemp)
trap 'rm -f -- "$log"' EXIT
# Another umask and another time of the day must not matter.
(umask 077 && make -s dist-xz) >"$log" 2>&1 || { tail -n 50 -- "$log"; exit 1; }
tarball=$(printf '%s\n' tabft-*.tar.xz)
first=$(sha256sum -- "$tarball")
make -s dist-xz >"$log" 2>&1 || { tail -n 50 -- "$log"; exit 1; }
[ "$first" = "$(sha256sum -- "$tarball")" ] || { echo "$tarball: two builds differ"; exit 1; }
# Nothing of the tree is forgotten.
if [ -e "$top_srcdir/.git" ]; then
    tar -tf "$tarball" | sed 's|^[^/]*/||' >"$log"
    forgotten=$(git -c safe.directory='*' -C "$top_srcdir" ls-files | grep -vxF .gitignore | grep -vxF -f "$log") || true
    [ -z "$forgotten" ] || { printf 'not in the tarball:\n%s\n' "$forgotten"; exit 1; }
fi
make -s -j "$(nproc)" distcheck >"$log" 2>&1 || { grep -E '^(FAIL|ERROR):' -- "$log" || true; tail -n 100 -- "$log"; exit 1; }
[ "$first" = "$(sha256sum -- "$tarball")" ] || { echo "$tarball: distcheck made another"; exit 1; }
rm -f -- "$tarball"
