#!/bin/sh
# R22: a rank that gets a fifth of a processor is no dead one: 100 steps without an alarm, and the bits of one rank. One whose
# network stalls, while its heartbeats go on, ends the run after --comm-timeout. Under a real Slurm of four nodes.
# (A rank that stops altogether: ranks_end, slurm/requeue.)
set -eu
# shellcheck source=tests/slurm/launchers.sh
. "${top_srcdir:?}/tests/slurm/launchers.sh"
in_cluster "$@"
# shellcheck source=tests/tools/train/helpers.sh
. "$top_srcdir/tests/tools/train/helpers.sh"
# shellcheck source=tests/tools/train/metrics.sh
. "$top_srcdir/tests/tools/train/metrics.sh"
cd -- "$work"
pack y "$cases/11-uneven-estimator-shards/train.csv" train.tbf
set -- tabft-train --model "$model" --data train.tbf --estimators 4 --chunk-rows 57 --lr 1e-3 --seed 3 --validation-split 0 --threads 1 \
    --schedule constant

# ranks COMMAND...: on four nodes in the background, each process in pid.RANK.
ranks() {
    rm -f pid.?
    # shellcheck disable=SC2016 # for the inner shell
    slurm_ranks 4 sh -c 'echo $$ >"pid.$PMIX_RANK" && exec "$@"' sh "$@" >said 2>&1 &
    launcher=$!
}

# ---- slow ----
ranks "$@" --out slow --epochs 21 --comm-timeout 60
waits_for slow/metrics.jsonl.partial 1
victim=$(cat pid.2) stops=0
# Four fifths of the time it stands still, however long these sleeps take.
while kill -STOP "$victim" 2>/dev/null; do
    sleep 0.04
    kill -CONT "$victim" 2>/dev/null || :
    sleep 0.01
    stops=$((stops + 1))
done
ends_with 0 'a slow rank'
n=$(grep -c '"kind":"step"' slow/metrics.jsonl)
[ "$n" -ge 100 ] || fail "only $n steps"
[ "$stops" -ge 20 ] || fail "stopped only $stops times"
! grep -E 'silent|elsewhere|waited|ended without' said || fail 'an alarm about a slow rank'
works "$@" --out one --epochs 21
cmp one/model.safetensors slow/model.safetensors || fail 'a slow rank: other weights'
printf '%s steps, one rank stopped %s times\n' "$n" "$stops"

# ---- the network of one rank stalls ----
# Its main thread stands, the watchdog's goes on.
ranks "$@" --out stalled --epochs 1000000 --comm-timeout 12 --checkpoint-every 1
waits_for stalled/metrics.jsonl.partial 3
"$top_builddir/tests/faults/hold_thread" "$(cat pid.1)" >held 2>&1 &
holder=$!
tries=0
until grep -qs held held; do
    tries=$((tries + 1))
    if [ "$tries" -gt 600 ] || ! alive "$holder"; then
        cat held
        # shellcheck disable=SC2046 # words
        kill -KILL $(cat pid.?)
        echo 'no process may be traced here: no stalled rank tried'
        exit 0
    fi
    sleep 0.1
done
# 12 s, the watchdog's grace of 3 s for those that wait in a call, and 10 s.
# shellcheck disable=SC2046 # words
gone_within 25 'a stalled rank' $(cat pid.?)
wait "$holder" || :
ends_with 5 'a stalled rank'
grep '^tabft-train: rank' said | head -n 1 | grep -q 'rank [0-3] (n[1-4]): waited 12 s for the other ranks: .*; all ranks end (--comm-timeout)' ||
    { cat said; fail 'the first line does not say that ranks were waited for'; }
[ "$(find stalled -name manifest.tbf | wc -l)" -ge 1 ] || fail 'a stalled rank: no checkpoint is left'
# What was saved is good.
works "$@" --out stalled --epochs 1000000 --resume --time-limit 0.001
