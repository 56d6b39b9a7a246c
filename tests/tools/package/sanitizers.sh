#!/bin/sh
# All tests hold in a build with AddressSanitizer and UndefinedBehaviourSanitizer (make check-long: several minutes).
set -eu
: "${top_srcdir:?}"
unset MAKEFLAGS MFLAGS MAKELEVEL TABFT_PLUGIN_PATH
[ ! -e "$top_srcdir/config.status" ] || { echo 'the source folder is configured; build out of tree'; exit 77; }
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
cd -- "$work"
"$top_srcdir/configure" --enable-asan --enable-ubsan --enable-werror >configure.log 2>&1 || { cat configure.log; exit 1; }
{ make -j "$(nproc)" && make -j "$(nproc)" check TESTS=; } >make.log 2>&1 || { tail -n 50 make.log; exit 1; }
status=0
make check >check.log 2>&1 || status=$?
grep -E '^(PASS|FAIL|SKIP|XPASS|ERROR):' check.log || true
[ "$status" = 0 ] || cat test-suite.log
exit "$status"
