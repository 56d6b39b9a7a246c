#!/bin/sh
# One rank ends in some way at some point: all processes are gone within 10 s, the status is not 0, and our first line
# names the rank. Under srun without and with --kill-on-bad-exit, and under mpirun. A rank that is stopped is noticed
# by the timeout.
set -eu
# shellcheck source=tests/slurm/launchers.sh
. "${top_srcdir:?}/tests/slurm/launchers.sh"
in_cluster "$@"
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
# Under its own name, so that what is left over is ours.
program=$work/rank.$$
cp -- "$top_builddir/tests/unit/comm/rank_program" "$program"
RANK_SIGNS=$work/signs
export RANK_SIGNS

fail() {
    cat -- "$work/said" >&2
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}
# The processes of the program that are still there; any_alive: the same, cheaper, for those that have given a sign of themselves.
left_over() {
    for process in /proc/[0-9]*; do
        case $(readlink "$process/exe" 2>/dev/null) in "$program"*) printf '%s ' "${process#/proc/}" ;; esac
    done
}
any_alive() {
    for process in "$RANK_SIGNS"/[0-9]*; do
        if [ -e "$process" ] && kill -0 "${process##*/}" 2>/dev/null; then return 0; fi
    done
    return 1
}
# turns N: a turn of a tenth of a second, while fewer than N have passed. On a machine with much else to do a turn takes longer,
# as what is waited for does.
turns() {
    turn=$((turn + 1))
    [ "$turn" -le "$1" ] || return 1
    sleep 0.1
}
# ends LIMIT TEXT STATUS COMMAND...: the command fails, within LIMIT s of a rank's end nothing of it is left, and the first line
# that a rank prints has TEXT. STATUS: a number, or "any" but 0.
ends() {
    limit=$1 text=$2 expected=$3
    shift 3
    rm -rf -- "$RANK_SIGNS"
    mkdir -- "$RANK_SIGNS"
    timeout -k 5 600 "$@" >"$work/said" 2>&1 &
    launcher=$!
    turn=0
    until [ -e "$RANK_SIGNS/died" ]; do
        # As srun -v says it, for each node.
        if [ ! -e "$RANK_SIGNS/launched" ] && [ "$(grep -c 'tasks started' "$work/said")" = 4 ]; then : >"$RANK_SIGNS/launched"; fi
        turns 3000 || fail "no rank ended: $*"
    done
    turn=0
    while any_alive; do turns $((limit * 10)) || fail "processes $(left_over)are left after $limit s: $*"; done
    status=0
    wait "$launcher" || status=$?
    [ -z "$(left_over)" ] || fail "processes $(left_over)are left: $*"
    [ "$status" != 0 ] || fail "status 0: $*"
    [ "$expected" = any ] || [ "$status" = "$expected" ] || fail "status $status instead of $expected: $*"
    [ -z "$text" ] || grep '^rank[._][0-9a-z]*: ' "$work/said" | head -n 1 | grep -q -e "$text" || mpi_was_quicker ||
        fail "the first line does not say '$text': $*"
}
# Open MPI may end the step before any of our words come out; then it has named the host.
mpi_was_quicker() {
    ! grep -q '^rank[._][0-9a-z]*: ' "$work/said" && grep -q 'Peer host: *n[1-4]$' "$work/said"
}
dead() { printf 'rank %s on n[1-4] ended without finishing' "$1"; }
own() { printf 'rank %s (n[1-4]): table.tbf: is broken' "$1"; }
# First, middle and last of four ranks; killed, crashed, ended as if all were well, or with a cause of its own.
run() { # RANK HOW WHERE: with 4 ranks, no help from srun
    case $2 in
    gpu) ends 10 "rank $1 (n[1-4]): .*: GPU 0: .*; see its state with nvidia-smi" 4 \
        srun --mpi=pmix -N4 -n4 --overcommit "$program" die "$2" "$3" "$1" 60 ;;
    error) ends 10 "$(own "$1")" 3 srun --mpi=pmix -N4 -n4 --overcommit "$program" die "$2" "$3" "$1" 60 ;;
    *) ends 10 "$(dead "$1")" any srun --mpi=pmix -N4 -n4 --overcommit "$program" die "$2" "$3" "$1" 60 ;;
    esac
}
run 0 kill init
run 2 exit0 init
run 3 error init
run 0 exit1 open
run 3 kill open
run 2 segv open
run 3 exit0 collective
run 0 kill collective
run 2 abort collective
run 0 error collective
run 3 exit1 close
run 2 exit0 close
run 0 kill close

# The launcher is asked to end all only when what reads our stderr has our line: here it begins after a second and a half.
# shellcheck disable=SC2016 # the ranks' own words
ends 10 "$(own 0)" any srun --mpi=pmix -N4 -n4 --overcommit sh -c '"$@" 2>&1 | { sleep 1.5; cat; }' sh \
    "$program" die error collective 0 60

# Ranks with GPUs, on the emulation of NCCL.
mpi_plugins=$TABFT_PLUGIN_PATH
TABFT_PLUGIN_PATH=$top_builddir/tests/cuda/plugins RANK_GPUS=1
export TABFT_PLUGIN_PATH RANK_GPUS
run 1 kill init
run 3 kill open
run 0 kill collective
run 2 exit0 collective
run 1 error collective
run 3 kill close
# A GPU that fails is its rank's own failure, whoever waits for what.
run 2 gpu open
run 0 gpu collective
run 3 gpu collective
# One that never comes: to NCCL's start, which nothing but the watchdog ends, and to a collective, where those that wait abort
# what they have begun.
NCCL_EMULATION_TELL=1
export NCCL_EMULATION_TELL
ends 17 'waited 4 s for the other ranks: starting the engine' 5 srun --mpi=pmix -N4 -n4 --overcommit "$program" die hang engine 2 4
# Who is behind is known after four to six seconds, on a busy machine later.
ends 27 'waited 15 s for the other ranks: barrier; rank 1 on n[1-4] has been elsewhere for' 5 \
    srun --mpi=pmix -N4 -n4 --overcommit "$program" die hang collective 1 15
grep -q '^NCCL emulation: rank [023] aborts' "$work/said" || fail 'nobody aborts what waits for the rank that never comes'
[ "$(grep -c '^rank.*: rank [0-9]* (n[1-4]): ' "$work/said")" = 1 ] || fail 'not one line about the rank that never comes'
unset RANK_GPUS NCCL_EMULATION_TELL
TABFT_PLUGIN_PATH=$mpi_plugins

# With srun's own help, and before a rank has joined.
ends 10 '' any srun -v --mpi=pmix -N4 -n4 --overcommit --kill-on-bad-exit=1 "$program" die kill start 2 60
ends 10 'table.tbf: is broken' 3 srun -v --mpi=pmix -N4 -n4 --overcommit "$program" die error start 2 60
ends 10 '' any srun --mpi=pmix -N4 -n4 --overcommit --kill-on-bad-exit=1 "$program" die kill collective 2 60

# Without it such a rank is missed when the others have waited.
ends 15 'waited 4 s for the other ranks: joining' 5 srun -v --mpi=pmix -N4 -n4 --overcommit "$program" die kill start 2 4

# The program's own last words: one rank says what happened.
RANK_WORDS=cleaned
export RANK_WORDS
ends 10 'cleaned, rank 1 on n1 ended without finishing' any srun --mpi=pmix -N1 -n4 --overcommit \
    "$program" die kill collective 1 60
unset RANK_WORDS

# A stopped rank is silent; two ranks to a node, so its neighbour is on the same one.
ends 27 'waited 15 s for the other ranks: barrier; rank 3 on n[1-4] has been silent' 5 \
    srun --mpi=pmix -N4 -n8 --overcommit "$program" die stop collective 3 15

# Under mpirun, which ends the others itself and may be quicker than they are.
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root
unset OMPI_MCA_btl
for how in kill exit0 error; do
    # shellcheck disable=SC2086 # no word or one
    ends 10 '' any mpirun $root --oversubscribe -n 4 "$program" die "$how" collective 1 60
    grep -q 'rank 1 ' "$work/said" || fail "mpirun, $how: nobody names rank 1"
done
