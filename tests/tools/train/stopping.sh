#!/bin/sh
# When a run validates, when it stops, and which weights it keeps; which chunks it skips.
set -eu
. "${top_srcdir:?}/tests/tools/train/helpers.sh"
cd -- "$work"
pack y "$cases/11-uneven-estimator-shards/train.csv" train.tbf
# train RUN OPTION...: 288 training rows in one chunk an epoch.
train() {
    run=$1
    shift
    works tabft-train --model "$model" --data train.tbf --out "$run" --estimators 2 --threads 1 --lr 1e-3 --schedule constant "$@"
}
# holds RUN KEY VALUE
holds() { [ "$(field "$1/run.json" "$2")" = "$3" ] || fail "$1: $2 is $(field "$1/run.json" "$2") instead of $3"; }
validations() { grep -c '"kind":"validation"' "$1/metrics.jsonl" || :; }

# No gain is ever large enough: the run ends at its patience with the very weights it began with.
train patient --epochs 9 --patience 2 --min-delta 1
holds patient ended_by patience
holds patient epochs_run 2
holds patient best_epoch 0
works tabft-model diff "$model" patient/model.safetensors >differences
# Without patience the last weights stay.
train last --epochs 2 --patience 0 --min-delta 1
holds last best_epoch 2
tabft-model diff "$model" last/model.safetensors >differences && fail 'two epochs left the weights as they were'
[ "$(validations last)" = 3 ] || fail 'not 3 validations'
# Every second epoch; patience counts validations.
train second --epochs 5 --validation-frequency 2 --patience 0
[ "$(validations second)" = 3 ] || fail "$(validations second) validations instead of 3"
train second-patient --epochs 9 --validation-frequency 2 --patience 1 --min-delta 1
holds second-patient epochs_run 2
# A frequency that no epoch meets: the base model is validated, nothing stops the run, the last weights stay.
train never --epochs 2 --validation-frequency 3 --patience 1
[ "$(validations never)" = 1 ] || fail "$(validations never) validations instead of 1"
holds never best_epoch 2
# No validation.
train none --epochs 1 --validation-split 0
[ "$(validations none)" = 0 ] || fail 'a run without validation validates'
holds none base_metric null
# Log loss, of which less is better: the best line of the log is the smallest.
train loss --epochs 4 --metric log_loss --patience 4 --min-delta 0
best=$(grep '"best":true' loss/metrics.jsonl | tail -n 1 | sed 's/.*"log_loss":\([^,]*\),.*/\1/')
least=$(sed -n 's/.*"log_loss":\([^,]*\),.*/\1/p' loss/metrics.jsonl | sort -g | head -n 1)
[ "$best" = "$least" ] || fail "best $best, least $least"
# The time is up after the first epoch.
train time --epochs 50 --time-limit 0.001 --validation-split 0
holds time ended_by time_limit
holds time epochs_run 1

# One row of class 2: where it is a query, no context shows it; the chunk makes no step.
awk 'BEGIN { print "a,b,y"; for (i = 0; i < 20; i++) print i % 7 "," i % 5 "," (i == 11 ? 2 : i % 2) }' >rare.csv
pack y rare.csv rare.tbf
works tabft-train --model "$model" --data rare.tbf --out rare --estimators 1 --threads 1 --lr 1e-3 --epochs 8 --validation-split 0 --query-fraction 0.5
skips=$(grep -c '"kind":"skip"' rare/metrics.jsonl || :)
steps=$(grep -c '"kind":"step"' rare/metrics.jsonl || :)
if [ $((skips + steps)) != 8 ] || [ "$skips" = 0 ] || [ "$steps" = 0 ]; then fail "$skips chunks skipped, $steps steps"; fi
# Contexts are compared as the networks see them, permuted, so it need not be 2 that is named.
grep -q '"kind":"skip".*"missing_class":"[012]"' rare/metrics.jsonl || fail 'the missing class is not named'
says 'is skipped: queries of class'
holds rare skipped_chunks "$skips"
holds rare steps "$steps"
