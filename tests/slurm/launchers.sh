# Sourced by tests that start several ranks; they have a function fail.
# shellcheck shell=sh
: "${top_srcdir:?}" "${top_builddir:?}"

# in_cluster "$@": goes on in a Slurm of four nodes. The test starts itself again in it, so this comes first.
in_cluster() {
    [ -n "${TABFT_TEST_CLUSTER-}" ] || exec "$top_srcdir/tests/slurm/with-cluster" sh "$0" "$@"
    [ -f "$top_builddir/lib/tabft/tabft-engine-mpi.so" ] || { printf 'skipped: built without MPI\n' >&2; exit 77; }
}
# Seconds after which a launch is given up, whatever it waits for.
ranks_limit=1800
# slurm_ranks RANKS COMMAND...: a rank to a node, more only where the nodes are too few; node_ranks NODES RANKS COMMAND...
slurm_ranks() {
    ranks=$1
    shift
    nodes=$ranks
    [ "$nodes" -le 4 ] || nodes=4
    node_ranks "$nodes" "$ranks" "$@"
}
node_ranks() {
    nodes=$1 ranks=$2
    shift 2
    timeout "$ranks_limit" srun --mpi=pmix --nodes="$nodes" --ntasks="$ranks" --overcommit "$@"
}
# mpirun_ranks RANKS COMMAND...: of this node, so that they may share its memory; mpirun itself by the words of $mpirun_in.
mpirun_in=
mpirun_ranks() {
    ranks=$1
    shift
    root=
    [ "$(id -u)" != 0 ] || root=--allow-run-as-root
    # shellcheck disable=SC2086 # words
    env -u OMPI_MCA_btl $mpirun_in timeout "$ranks_limit" mpirun $root --oversubscribe -n "$ranks" "$@"
}

alive() { kill -0 "$1" 2>/dev/null; }
# until_true SECONDS WHAT COMMAND...: fails with WHAT, and the files of $tells, when COMMAND does not succeed in time, or ever:
# when $launcher, if that is set, is gone.
launcher=
tells=said
until_true() {
    limit=$1 what=$2
    shift 2
    turn=0 last=
    until "$@"; do
        turn=$((turn + 1))
        if [ "$turn" -gt $((limit * 10)) ] || [ -n "$last" ]; then
            # shellcheck disable=SC2086 # a list
            cat $tells 2>/dev/null || :
            [ -z "${TABFT_TEST_CLUSTER-}" ] || squeue || :
            fail "$what"
        fi
        [ -z "$launcher" ] || alive "$launcher" || last=yes
        sleep 0.1
    done
}
# gone_within SECONDS WHAT PROCESS...
gone_within() {
    limit=$1 what=$2
    shift 2
    turn=0
    for process in "$@"; do
        while alive "$process"; do
            turn=$((turn + 1))
            [ "$turn" -lt $((limit * 10)) ] || { cat said; fail "$what: process $process lives $limit s"; }
            sleep 0.1
        done
    done
}
# ends_with STATUS WHAT: so does $launcher, which is forgotten.
ends_with() {
    status=0
    wait "$launcher" || status=$?
    launcher=
    [ "$status" = "$1" ] || { cat said; fail "$2: status $status instead of $1"; }
}
