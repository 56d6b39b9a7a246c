# shellcheck shell=sh
# How a command is started on several ranks: srun with PMIx inside a Slurm allocation, otherwise mpirun. Sourced.

# launch_cores: how many cores this shell may use.
launch_cores() {
    nproc 2>/dev/null || getconf _NPROCESSORS_ONLN
}

# launch_threads RANKS: threads a rank, so that RANKS ranks on this machine's cores do not get into each other's way.
launch_threads() {
    launch_share=$(($(launch_cores) / $1))
    [ "$launch_share" -ge 1 ] || launch_share=1
    printf '%s\n' "$launch_share"
}

# launch_with: srun or mpirun, whichever launch_ranks would take; nothing and status 4 where there is neither.
launch_with() {
    if [ -n "${SLURM_JOB_ID-}" ] && command -v srun >/dev/null 2>&1; then
        printf 'srun\n'
    elif command -v mpirun >/dev/null 2>&1; then
        printf 'mpirun\n'
    else
        return 4
    fi
}

# launch_ranks RANKS COMMAND...: runs COMMAND on RANKS ranks. Its status is the launcher's.
launch_ranks() {
    launch_count=$1
    shift
    case $(launch_with) in
    srun)
        # --overcommit: an allocation of fewer CPUs than ranks is slow but right.
        srun --mpi=pmix --ntasks="$launch_count" --overcommit --kill-on-bad-exit=1 "$@"
        ;;
    mpirun)
        # Two options that only Open MPI knows: it refuses root, and more ranks than cores, unless told.
        launch_options=
        if mpirun --version 2>/dev/null | grep -q 'Open MPI\|OpenRTE'; then
            [ "$(id -u)" != 0 ] || launch_options=--allow-run-as-root
            [ "$launch_count" -le "$(launch_cores)" ] || launch_options="$launch_options --oversubscribe"
        fi
        # The words are options, meant to be split.
        # shellcheck disable=SC2086
        mpirun $launch_options -n "$launch_count" "$@"
        ;;
    *)
        printf 'Neither a Slurm allocation nor mpirun: start it with srun, or install an MPI (Debian: openmpi-bin)\n' >&2
        return 4
        ;;
    esac
}
