#!/bin/sh
# A training is interrupted in the ways clusters do it, on changing numbers of ranks, and ends with the bits of one that was not:
# Slurm's signal before the time is up (the job requeues itself), preemption by SIGTERM, kill -9 of a rank, of all ranks, of a
# node's daemon. With a number as argument so many kills at random moments, for make check-long. Under a real Slurm of four nodes.
set -eu
# shellcheck source=tests/slurm/launchers.sh
. "${top_srcdir:?}/tests/slurm/launchers.sh"
in_cluster "$@"
kills=${1-4}
# shellcheck source=tests/tools/train/helpers.sh
. "$top_srcdir/tests/tools/train/helpers.sh"
# shellcheck source=tests/tools/train/metrics.sh
. "$top_srcdir/tests/tools/train/metrics.sh"
cd -- "$work"
same() {
    same_run whole "$1"
    [ "$(find "$1" -type f | wc -l)" = 4 ] || fail "$1 holds $(ls -A "$1")"
}
tells='job.out said'
# steps: those whose lines are written.
steps() { cat run/metrics.jsonl run/metrics.jsonl.partial 2>/dev/null | grep -c '"kind":"step"' || :; }
has_steps() { [ "$(steps)" -ge "$1" ]; }
# The processes of the training that are still there.
processes() {
    for process in /proc/[0-9]*; do
        case $(readlink "$process/exe" 2>/dev/null) in "$top_builddir/bin/tabft-train"*)
            cat -- "$process/environ" 2>/dev/null | tr '\0' '\n' | grep -qxF "SLURM_CONF=$SLURM_CONF" && printf '%s\n' "${process#/proc/}" ;;
        esac
    done
}
none_left() { [ -z "$(processes)" ]; }
# What is asked to stop does not wait for $victim, which is stopped.
victim_left() { [ "$(processes)" = "$victim" ] || none_left; }

pack y "$cases/11-uneven-estimator-shards/train.csv" train.tbf
set -- --model "$model" --data train.tbf --epochs 40 --estimators 4 --chunk-rows 57 --chunks-per-step 2 --lr 1e-3 --seed 3 --patience 0
works tabft-train "$@" --out whole --threads 1
: >said

# ---- a job that requeues itself ----
restarts() { scontrol show job "$id" | sed -n 's/.*Restarts=\([0-9]*\).*/\1/p'; }
# The daemons of the steps that ended: a step of the same number cannot begin before they are gone.
daemons() {
    for process in /proc/[0-9]*; do
        name=
        { read -r name <"$process/comm"; } 2>/dev/null || continue
        [ "$name" = slurmstepd ] || continue
        ! cat -- "$process/environ" 2>/dev/null | tr '\0' '\n' | grep -qxF "SLURM_CONF=$SLURM_CONF" || printf '%s\n' "${process#/proc/}"
    done
}
# A requeued job waits two minutes before it may start again; here only until nothing of it is left.
running_again() {
    [ "$(restarts)" = "$1" ] || return 1
    case $(squeue -h -j "$id" -o %T 2>/dev/null) in
    RUNNING) return 0 ;;
    PENDING) [ -n "$(daemons)" ] || scontrol update jobid="$id" StartTime=now >/dev/null 2>&1 || : ;;
    esac
    return 1
}
id=$(sbatch --parsable --ntasks=4 --nodes=4 --cpus-per-task=1 --output=job.out "$top_srcdir/jobs/train.sbatch" "$@" --out run)
until_true 60 'the job does not train' has_steps 3
for restart in 1 2; do
    signal=USR1
    [ "$restart" = 1 ] || signal=TERM # preemption
    scancel "--signal=$signal" "$id"
    until_true 60 "$signal: the job is not requeued" running_again "$restart"
    [ "$(grep -c "stopped on request (SIG$signal)" job.out)" = 1 ] || { cat job.out; fail "$signal: not one line says so"; }
    before=$(steps)
    until_true 60 'the requeued job does not go on' has_steps $((before + 3))
done
gone() { [ -z "$(squeue -h -j "$id" 2>/dev/null)" ]; }
until_true 120 'the job does not end' gone
scontrol show job "$id" | grep -q 'JobState=COMPLETED' || fail "the job ended as $(scontrol show job "$id")"
same run
[ "$(grep -c 'resumes after step' job.out)" = 2 ] || { cat job.out; fail 'not resumed twice'; }
# Submitted again by mistake: nothing is done.
sbatch --wait --quiet --ntasks=2 --output=again.out "$top_srcdir/jobs/train.sbatch" "$@" --out run || { cat again.out; fail 'submitted again: fails'; }
grep -q 'run is complete already' again.out || { cat again.out; fail 'submitted again: says nothing of it'; }
same run

# A job that is cancelled does not come back, and a new one goes on.
rm -rf run
id=$(sbatch --parsable --ntasks=2 --nodes=2 --cpus-per-task=1 --output=cancelled.out "$top_srcdir/jobs/train.sbatch" "$@" \
    --out run)
until_true 60 'the job does not train' has_steps 3
scancel "$id"
until_true 60 'a cancelled job stays' gone
[ "$(restarts)" = 0 ] || fail 'a cancelled job comes back'
grep -q 'stopped on request (SIGTERM)' cancelled.out || { cat cancelled.out; fail 'a cancelled job leaves no checkpoint'; }
sbatch --wait --quiet --ntasks=3 --output=again.out "$top_srcdir/jobs/train.sbatch" "$@" --out run ||
    { cat again.out; fail 'a new job does not go on'; }
grep -q 'resumes after step' again.out || { cat again.out; fail 'a new job starts anew'; }
same run

# ---- kills, then other numbers of ranks ----
# launch RANKS [OPTION...]: a run in the background.
launch() {
    ranks=$1
    shift
    slurm_ranks "$ranks" tabft-train "$@" --threads 1 --resume >said 2>&1 &
    launcher=$!
}
random() { od -An -N2 -tu2 /dev/urandom | tr -d ' '; }
goes_on() { has_steps "$1" || ! alive "$launcher"; }
rm -rf run
killed=0 round=0 whole_runs=0
while [ "$killed" -lt "$kills" ]; do
    launch "$((1 + (round * 3) % 4))" "$@" --out run --checkpoint-every 1
    round=$((round + 1))
    # Some steps after the start, or while it loads.
    if [ $((round % 4)) = 0 ]; then
        sleep "$(awk -v r="$(random)" 'BEGIN { print r / 65536 * 1.5 }')"
    else
        until_true 100 'the run does not go on' goes_on $(($(steps) + 1 + $(random) % 3))
        sleep "$(awk -v r="$(random)" 'BEGIN { print r / 65536 * 0.05 }')"
    fi
    victims=$(processes)
    # All of them, as a node that is lost; or one.
    [ $((round % 5)) = 0 ] || victims=$(printf '%s\n' "$victims" | sed -n "$((1 + $(random) % ($(printf '%s\n' "$victims" | wc -l))))p")
    # shellcheck disable=SC2086 # a list
    if [ -n "$victims" ] && kill -KILL $victims 2>/dev/null; then
        ended=$launcher launcher= # it may end first
        until_true 10 'ranks live 10 s after the kill' none_left
        launcher=$ended
    fi
    status=0
    wait "$launcher" || status=$?
    [ "$status" = 0 ] || { killed=$((killed + 1)); continue; }
    # It was complete before the kill.
    same run
    rm -rf run
    whole_runs=$((whole_runs + 1))
done
launch 3 "$@" --out run --checkpoint-every 7
ends_with 0 "after $killed kills"
same run
printf '%s kills in %s starts, %s whole runs\n' "$killed" "$round" "$((whole_runs + 1))"

# ---- a rank that stops answering, in a run that does not end before it does ----
rm -rf run
set -- "$@" --epochs 100000
launch 4 "$@" --out run --checkpoint-every 1 --comm-timeout 12 --stop-timeout 3
until_true 60 'the run does not start' has_steps 4
victim=$(processes | sed -n 2p)
kill -STOP "$victim"
ended=$launcher launcher=
until_true 22 'a silent rank is waited for longer than --comm-timeout and 10 s' victim_left
kill -KILL "$victim" 2>/dev/null || :
status=0
wait "$ended" || status=$?
[ "$status" != 0 ] || fail 'a run with a silent rank ends well'
grep -q '^tabft-train: rank [0-9] (n[1-4]): waited 12 s for the other ranks' said || { cat said; fail 'nobody says that a rank is silent'; }
# Asked to stop while a rank is silent: SIGTERM has its own limit, and nothing that was saved is touched.
saved=$(find run -name manifest.tbf -exec sha256sum {} + | sort)
launch 4 "$@" --out run --checkpoint-every 0 --comm-timeout 100 --stop-timeout 3
before=$(steps)
until_true 60 'the run does not go on' has_steps $((before + 2))
victim=$(processes | sed -n 3p)
kill -STOP "$victim"
for process in $(processes); do [ "$process" = "$victim" ] || kill -TERM "$process"; done
ended=$launcher launcher=
until_true 13 'SIGTERM with a silent rank takes longer than --stop-timeout and 10 s' victim_left
kill -KILL "$victim" 2>/dev/null || :
wait "$ended" || :
grep -q 'tabft-train: was asked by SIGTERM to stop and is not done in time' said || { cat said; fail 'nobody says that the stop took too long'; }
[ "$saved" = "$(find run -name manifest.tbf -exec sha256sum {} + | sort)" ] || fail 'SIGTERM with a silent rank changed the checkpoints'
# The next start goes on, with the losses of a run that nothing happened to.
# lasts RANKS STEPS [OPTION...]: a run until it has so many steps.
lasts() {
    ranks=$1 enough=$2
    shift 2
    launch "$ranks" "$@" --out run
    until_true 60 'the run does not go on' has_steps "$enough"
    # shellcheck disable=SC2046 # a list
    kill -KILL $(processes)
    wait "$launcher" || :
}
# losses RUN STEPS: those of the first steps.
losses() { untimed "$1/metrics.jsonl.partial" | grep '"kind":"step"' | head -n "$2"; }
whole=$(($(steps) + 3))
lasts 2 "$whole" "$@"
mv run silent
lasts 1 "$whole" "$@"
losses silent "$whole" >got
losses run "$whole" >want
[ "$(wc -l <want)" = "$whole" ] || fail "$(wc -l <want) steps of $whole"
diff want got || fail 'after a silent rank: other losses'

# ---- Slurm's own signal before the time is up: a minute and more ----
[ "$kills" -ge 100 ] || exit 0
id=$(sbatch --parsable --ntasks=2 --nodes=2 --cpus-per-task=1 --time=2 --output=timed.out "$top_srcdir/jobs/train.sbatch" "$@" \
    --out timed)
until_true 200 'the job is not stopped before its time is up' running_again 1
until_true 60 'the requeued job does not go on' grep -q 'resumes after step' timed.out
grep -q 'stopped on request (SIGUSR1) after step' timed.out || { cat timed.out; fail 'not by SIGUSR1'; }
scancel "$id"

# ---- checkpoints by minutes ----
saved() { [ -n "$(find minutes -name manifest.tbf 2>/dev/null)" ]; }
launch 2 "$@" --out minutes --checkpoint-every 1m
until_true 100 'the run does not start' [ -s minutes/metrics.jsonl.partial ]
start=$(date +%s)
until_true 200 'no checkpoint after a minute' saved
[ $(($(date +%s) - start)) -ge 45 ] || fail "a checkpoint after $(($(date +%s) - start)) s, asked for each minute"
# shellcheck disable=SC2046 # a list
kill -KILL $(processes)
wait "$launcher" || :
