#!/bin/sh
# As checkpoint_calls.sh, at each of the calls and with all faults.
set -eu
exec sh "${top_srcdir:?}/tests/faults/checkpoint_calls.sh" all
