#!/bin/sh
# An engine plugin is code: one that others may write to, or that is another user's, is refused before it is opened;
# the PMIx library that would be used is shown by its path.
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
plugin=$top_builddir/lib/tabft/tabft-engine-mpi.so
[ -f "$plugin" ] || { printf 'skipped: built without MPI\n' >&2; exit 77; }
program=$top_builddir/tests/unit/comm/rank_program
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
chmod 755 "$work"

fail() {
    cat -- "$work/said" >&2
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}
# with_plugin TEXT: the mpi engine from $work/p is refused with TEXT.
with_plugin() {
    status=0
    TABFT_PLUGIN_PATH=$work/p RANK_ENGINE=mpi "$program" sum 0 1 1x1 >"$work/said" 2>&1 || status=$?
    [ "$status" != 0 ] || fail "accepted, but '$1' was due"
    grep -q -e "$1" "$work/said" || fail "does not say '$1'"
}
mkdir "$work/p"
chmod 755 "$work/p"
cp -- "$plugin" "$work/p/"
copy=$work/p/tabft-engine-mpi.so
chmod 755 "$copy"
TABFT_PLUGIN_PATH=$work/p "$program" describe >"$work/said"
grep -q "engine mpi: .*, $copy\$" "$work/said" || fail 'a sound plugin is not taken'

chmod o+w "$copy"
with_plugin 'tabft-engine-mpi.so: others may write to it'
chmod o-w "$copy"
chmod 777 "$work/p"
with_plugin '/p: others may write to it'
TABFT_PLUGIN_PATH=$work/p "$program" describe >"$work/said"
grep -q 'engine mpi: not usable .*others may write' "$work/said" || fail 'describe does not say why'
chmod 755 "$work/p"
if [ "$(id -u)" = 0 ]; then
    chown 12345 "$copy"
    with_plugin 'belongs to user 12345'
    chown 0 "$copy"
    chgrp 12345 "$copy"
    chmod g+w "$copy"
    with_plugin 'others may write to it'
    chmod g-w "$copy"
    chgrp 0 "$copy"
fi

# What is no plugin at all, or a library that is no engine.
printf 'no library' >"$copy"
with_plugin 'cannot be opened'
pmix=$(TABFT_PLUGIN_PATH='' "$program" describe | sed -n 's|.*launcher pmix: .*, \(/[^,]*\)$|\1|p')
[ -n "$pmix" ] || fail 'describe does not show the PMIx library'
cp -- "$pmix" "$copy"
with_plugin 'is no TabFT engine'

# Another PMIx library by LD_LIBRARY_PATH: a user may do that, and sees it.
mkdir "$work/other"
cp -- "$pmix" "$work/other/libpmix.so.2"
LD_LIBRARY_PATH=$work/other "$program" describe >"$work/said"
grep -q "launcher pmix: .*, $work/other/libpmix.so.2\$" "$work/said" || fail 'the other PMIx library is not shown'
