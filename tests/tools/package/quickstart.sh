#!/bin/sh
# The main job as a user starts it: the published parity run of the tiny model, on 1 and on 4 ranks by mpirun, gives the same
# bits and TabPFN's own accuracy (0.8300, two rows more or less); inside a Slurm allocation it goes by srun.
set -eu
: "${top_srcdir:?}"
command -v mpirun >/dev/null || { echo 'no mpirun (Debian: openmpi-bin)'; exit 77; }
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
cd -- "$work"
unset SLURM_JOB_ID
tabft quickstart >report.json 2>said || { echo "status $?"; cat said; exit 1; }
cat said report.json
failed=0
bad() {
    echo "quickstart: $*"
    failed=1
}
# field NAME: its value in the report.
field() {
    sed -n 's/^[ {]*"'"$1"'": *\([^,}]*\),\{0,1\}$/\1/p' report.json | head -n 1 # the tolerances repeat names
}
for zero in probability_max_abs_difference probability_mean_abs_difference weight_max_abs_difference; do
    case $(field $zero) in 0 | 0.0) ;; *) bad "$zero is '$(field $zero)'" ;; esac
done
case $(field prediction_agreement) in 1 | 1.0) ;; *) bad "prediction_agreement is '$(field prediction_agreement)'" ;; esac
[ "$(field bit_identical)" = true ] || bad "bit_identical is '$(field bit_identical)'"
[ "$(field world_size)" = 4 ] || bad "world_size is '$(field world_size)'"
for accuracy in unsharded_accuracy sharded_accuracy; do
    awk -v a="$(field $accuracy)" 'BEGIN { exit !(a >= 330 / 400 - 1e-9 && a <= 334 / 400 + 1e-9) }' ||
        bad "$accuracy is '$(field $accuracy)', TabPFN's is 0.83"
done
cmp -- report.json tabft-quickstart/parity.json || bad 'the report is not the file'
for file in train.tbf test.tbf run-1/model.safetensors run-4-ranks/model.safetensors runs.html; do
    [ -s "tabft-quickstart/$file" ] || bad "$file is missing"
done
grep -qF "$work/tabft-quickstart" said || bad 'it does not say where the files lie'
exit "$failed"
