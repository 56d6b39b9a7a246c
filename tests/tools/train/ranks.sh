#!/bin/sh
# The promise: the same bits of weights, losses and predictions for every number of ranks and threads, under srun --mpi=pmix on
# four nodes and under mpirun, for estimators and chunks that do not divide evenly.
set -eu
# shellcheck source=tests/slurm/launchers.sh
. "${top_srcdir:?}/tests/slurm/launchers.sh"
in_cluster "$@"
. "$top_srcdir/tests/tools/train/helpers.sh"
# shellcheck source=tests/tools/train/metrics.sh
. "$top_srcdir/tests/tools/train/metrics.sh"
cd -- "$work"

# same RUN: as one rank of one thread.
same() { same_run one "$1"; }

pack y "$cases/11-uneven-estimator-shards/train.csv" train.tbf
pack y "$cases/11-uneven-estimator-shards/test.csv" test.tbf
# 288 rows train: 5 chunks of about 58 in 2 steps of 3 and 2, that is 15 and 10 items; warm-up, cosine, early stopping.
set -- tabft-train --model "$model" --data train.tbf --epochs 2 --estimators 5 --chunk-rows 57 --chunks-per-step 3 --lr 1e-3 --seed 17
works "$@" --out one --threads 1
[ "$(grep -c '"kind":"step"' one/metrics.jsonl)" = 4 ] || fail "not 4 steps: $(cat one/metrics.jsonl)"
[ "$(grep -c '"kind":"validation"' one/metrics.jsonl)" = 3 ] || fail 'not 3 validations'
(cd one && sha256sum -c --quiet model.safetensors.sha256) || fail 'the checksum file is wrong'
works "$@" --out two-threads --threads 2
same two-threads
works "$@" --out recomputed --threads 1 --recompute block
same recomputed
for ranks in 2 3 4 5; do
    works slurm_ranks "$ranks" "$@" --out "srun-$ranks" --threads $((1 + ranks % 2))
    same "srun-$ranks"
    [ "$(field "srun-$ranks/run.json" world_size)" = "$ranks" ] || fail "srun-$ranks: the run's record has another world size"
done
works mpirun_ranks 3 "$@" --out mpirun-3 --threads 1
same mpirun-3

# Predictions and the verdict.
works tabft-eval predict --model one/model.safetensors --train train.tbf --test test.tbf --estimators 5 --seed 17 -o one.tbf
works tabft-eval predict --model srun-4/model.safetensors --train train.tbf --test test.tbf --estimators 5 --seed 17 -o four.tbf
tabft-prep cat one.tbf >one.csv
tabft-prep cat four.tbf >four.csv
cmp one.csv four.csv || fail 'other predictions'
works tabft-eval parity --tolerance exact --test test.tbf one srun-4 >parity.json
grep -q '"bit_identical": *true' parity.json || { cat parity.json; fail 'parity of equal runs'; }
# One bit of one weight: the last byte of the file is one of the weights'.
cp -r srun-4 flipped
size=$(wc -c <flipped/model.safetensors)
last=$(tail -c 1 flipped/model.safetensors | od -An -tu1 | tr -d ' ')
# shellcheck disable=SC2059 # the format is the byte
printf "$(printf '\\%03o' $((last ^ 1)))" | dd of=flipped/model.safetensors bs=1 seek=$((size - 1)) conv=notrunc status=none
sum=$(sha256sum <flipped/model.safetensors | cut -d ' ' -f 1)
printf '%s  model.safetensors\n' "$sum" >flipped/model.safetensors.sha256
sed "s/\"model_sha256\": \"[0-9a-f]*\"/\"model_sha256\": \"$sum\"/" srun-4/run.json >flipped/run.json
status=0
tabft-eval parity --tolerance exact --test test.tbf one flipped >parity.json || status=$?
[ "$status" = 1 ] || { cat parity.json; fail "parity after a flipped bit: status $status instead of 1"; }

# Case 11: 6 estimators, 2 epochs, 4 ranks and, with two idle ones, 8.
set -- tabft-train --model "$model" --data train.tbf --epochs 2 --estimators 6 --validation-split 0 --lr 1e-3 --threads 1
rm -r one
works "$@" --out one
works slurm_ranks 4 "$@" --out six-4
same six-4
works slurm_ranks 8 "$@" --out six-8
says 'ranks 6 to 7 are idle'
same six-8

# Regression, with a column of text: early stopping by the error of the mean, and the verdict.
awk 'BEGIN {
    srand(3)
    print "a,t,y"
    for (i = 0; i < 240; i++) { a = rand(); printf "%.6f,%s,%.6f\n", a, substr("xyz", 1 + i % 3, 1), exp(3 * a) + i % 3 }
}' >all.csv
head -n 201 all.csv >numbers.csv
{ head -n 1 all.csv; tail -n 40 all.csv; } >numbers-test.csv
tabft-prep pack --quiet --target y --task regression -o numbers.tbf numbers.csv
tabft-prep pack --quiet --target y --task regression --schema numbers.tbf -o numbers-test.tbf numbers-test.csv
regressor=$(dirname -- "$model")/v2_6_reg.model.safetensors
set -- tabft-train --model "$regressor" --data numbers.tbf --epochs 2 --estimators 5 --chunk-rows 60 --chunks-per-step 2 --lr 1e-3 --seed 17
rm -r one
works "$@" --out one --threads 1
[ "$(grep -c '"mse":' one/metrics.jsonl)" = 3 ] || fail 'not 3 validations'
works "$@" --out numbers-threads --threads 2
same numbers-threads
for ranks in 2 3 4; do
    works slurm_ranks "$ranks" "$@" --out "numbers-$ranks" --threads $((1 + ranks % 2))
    same "numbers-$ranks"
done
works tabft-eval parity --tolerance exact --test numbers-test.tbf one numbers-4 >parity.json
grep -q '"bit_identical": *true' parity.json || { cat parity.json; fail 'parity of equal runs of regression'; }

# The fullest rank takes what the plan says for so many (R43), by whatever they were started; what PMIx and an MPI take differs by
# some MB. (The sanitizers' own records would be in it.)
! grep -q "^TABFT_SANITIZE='.*fsanitize" "$top_builddir/config.log" || exit 0
set -- tabft-train --model "$top_srcdir/share/models/tiny-v2_6-classifier.safetensors" --data train.tbf --epochs 1 --estimators 4 --lr 1e-3 \
    --validation-split 0 --recompute block --threads 1 --checkpoint-every 1
for how in 'slurm_ranks 2' 'slurm_ranks 4' 'mpirun_ranks 4'; do
    works "$@" --plan --ranks "${how#* }" --ranks-per-node 1 >plan
    rm -rf peak
    # shellcheck disable=SC2086 # two words
    works $how "$@" --out peak
    plan=$(awk '/^total/ { print $2 }' plan) peak=$(field peak/run.json peak_bytes)
    printf '%s: planned %s, took %s\n' "$how" "$plan" "$peak"
    { [ "$peak" -le "$plan" ] && [ "$plan" -le $((peak + peak / 20 + 9000000)) ]; } || { cat plan; fail "$how: planned $plan, took $peak"; }
done
