#!/bin/sh
# The readers take or refuse every stored input as they promise (R35): those from which the fuzzers begin, what they found
# to reach new code, and what once broke something; and each with a few changes, the same every time. With --enable-asan
# --enable-ubsan nothing is reported either.
set -eu
: "${top_srcdir:?}" "${top_builddir:?}" "${TABFT_DATA:?}"
"$top_srcdir/tests/fuzz/run" --check # so that they build where there is a clang
command -v xz >/dev/null || { echo 'no xz (Debian: xz-utils)'; exit 77; }
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
tar -xf "$TABFT_DATA/fuzz/corpus.tar.xz" -C "$work"
for name in csv npy tbf table safetensors ckpt manifest record options; do
    status=0
    # In one order, whatever the folder's: changes take bytes from the next file.
    find "$work/$name" -type f | sort | xargs "$top_builddir/tests/fuzz/fuzz_$name" --changed 20 >"$work/said" 2>&1 || status=$?
    if [ "$status" != 0 ] || [ "$(awk '/ inputs$/ { n += $1 } END { print n + 0 }' "$work/said")" -lt 100 ]; then
        tail -n 30 "$work/said"
        printf 'fuzz_%s: status %s\n' "$name" "$status"
        exit 1
    fi
    printf '%s: %s\n' "$name" "$(tail -n 1 "$work/said")"
done
