#!/bin/sh
# As requeue.sh, with 100 kills of ranks at random moments.
set -eu
exec sh "${top_srcdir:?}/tests/slurm/requeue.sh" 100
