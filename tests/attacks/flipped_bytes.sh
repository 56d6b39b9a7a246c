#!/bin/sh
# R2: as flipped_bits.sh, but in every byte (make check-long).
set -eu
FLIP_STEP=1
export FLIP_STEP
exec sh "${top_srcdir:?}/tests/attacks/flipped_bits.sh"
