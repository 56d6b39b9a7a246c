#!/bin/sh
# 300 random tables (R36): cat of the packed table has the cells that Python's csv module reads in the input, packing that
# again gives the same columns bit for bit, and block size and threads do not show.
set -eu
: "${TABFT_DATA:?}"
command -v python3 >/dev/null || exit 77
exec python3 "$(dirname -- "$0")/roundtrip_fuzz.py" 300
