#!/bin/sh
# The main job inside a Slurm allocation goes by srun, with PMIx, over the allocation's nodes, and holds (make check-long).
set -eu
: "${top_srcdir:?}"
[ -n "${TABFT_TEST_CLUSTER-}" ] || exec "$top_srcdir/tests/slurm/with-cluster" "$0" "$@"
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
cd -- "$work"
salloc --nodes=3 --ntasks=3 tabft quickstart --ranks 3 --out here >report.json 2>said || { echo "status $?"; cat said; exit 1; }
cat said report.json
grep -q '"launcher": *"pmix (slurm)"' here/run-3-ranks/run.json || { echo 'not started by srun --mpi=pmix'; exit 1; }
grep -q '"bit_identical": true' report.json || { echo 'no parity'; exit 1; }
