#!/bin/sh
# The fuzzers find nothing in 10 processor minutes each (R35; make check-long). TABFT_FUZZ_SECONDS: another time.
set -eu
exec "${top_srcdir:?}/tests/fuzz/run" --seconds "${TABFT_FUZZ_SECONDS-600}"
