#!/bin/sh
# memory.sh with 100,000 rows: more than a row group.
set -eu
ROWS=100000 exec sh "${top_srcdir:?}/tests/tools/eval/memory.sh"
