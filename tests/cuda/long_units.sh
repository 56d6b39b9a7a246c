#!/bin/sh
# The unit tests on the emulation of GPUs that are too long for make check: every network against TabPFN's numbers, and tensors
# beyond 2^32 numbers. (automake has rules for programs that are tests of make check alone; for scripts it has one for all.)
set -eu
: "${top_builddir:?}"
status=0
for program in tensor/test_cuda_far model/test_cuda_reference_long; do
    [ -x "$top_builddir/tests/unit/$program" ] || { echo 'no C++ compiler or no Check, so no such tests'; exit 77; }
    "$top_builddir/tests/unit/$program" || status=1
done
exit $status
