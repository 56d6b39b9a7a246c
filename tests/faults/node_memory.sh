#!/bin/sh
# P6 on a node: a table that does not fit what its cgroup leaves is refused before anything is made, by name of --stream, which
# then fits; what the plan says fits does run under a limit that the kernel holds it to. Four ranks of a node hold the table once:
# what each takes, and all of them together, by what the kernel counts.
set -eu
# shellcheck source=tests/tools/memory.sh
. "${top_srcdir:?}/tests/tools/memory.sh"
# shellcheck source=tests/tools/train/helpers.sh
. "$top_srcdir/tests/tools/train/helpers.sh"
# shellcheck source=tests/tools/train/metrics.sh
. "$top_srcdir/tests/tools/train/metrics.sh"
group=
# shellcheck disable=SC2317 # called by the trap
forget() {
    rm -rf -- "$work"
    [ -z "$group" ] || rmdir -- "$group" 2>/dev/null || :
}
trap forget EXIT
cd -- "$work"
# Square roots with all their digits, so float64: 66,000 rows of 80 columns are 42 MB of cells.
awk 'BEGIN {
    CONVFMT = "%.17g"
    for (c = 0; c < 80; c++) printf "x%d,", c
    print "y"
    for (i = 0; i < 66000; i++) {
        cells = sqrt(i % 113) "," sqrt(i % 31) "," sqrt(i % 7) "," sqrt(i % 101) ","
        cells = cells cells cells cells
        print cells cells cells cells cells i % 2
    }
}' >wide.csv
pack y wide.csv wide.tbf
set -- tabft-train --model "$model" --data wide.tbf --epochs 1 --estimators 1 --chunk-rows 200 --checkpoint-every 0 --lr 1e-3 \
    --validation-split 0 --threads 1 --recompute block --window 1K
bytes() { awk -v kind="$1" '$1 == kind { print $2 }' "$2"; }
works "$@" --plan >plan
works "$@" --plan --stream >plan.stream
cells=$(bytes node_table plan) whole=$(bytes total plan) stream=$(bytes total plan.stream)
[ "$cells" -gt 40000000 ] || fail "only $cells bytes of cells"
[ "$whole" -gt $((stream + 30000000)) ] || { cat plan plan.stream; fail 'streaming saves too little to be told apart here'; }
has_mpi() { command -v mpirun >/dev/null && [ -f "$top_builddir/lib/tabft/tabft-engine-mpi.so" ]; }
# on_node N COMMAND...: so many ranks of this node; the MPI's own shared memory is none of what is tried here.
cat >on_node <<'SCRIPT'
#!/bin/sh
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root
n=$1
shift
OMPI_MCA_btl=self,tcp exec timeout 600 mpirun $root --oversubscribe -n "$n" "$@"
SCRIPT
chmod +x on_node

# some_steps RUN LAUNCHER... -- COMMAND...: two steps of it, then a request to stop, which it follows.
some_steps() {
    run=$1 launcher=
    shift
    while [ "$1" != -- ]; do launcher="$launcher $1" && shift; done
    shift
    rm -rf -- "$run" pid
    # shellcheck disable=SC2016,SC2086 # for the inner shell; words
    $launcher sh -c 'echo $$ >pid && exec "$@"' sh "$@" --out "$run" >said 2>&1 &
    child=$!
    waits_for "$run/metrics.jsonl.partial" 2
    kill -USR1 "$(cat pid)"
    status=0
    wait "$child" || status=$?
    [ "$status" = 75 ] || { cat said; fail "status $status: $launcher $*"; }
}

# ---- what a cgroup leaves: files like those of version 2 in the place of the kernel's ----
# left BYTES COMMAND...
left() {
    mkdir -p cgroup
    echo $(($1 + 4096000)) >cgroup/memory.max
    echo 5096000 >cgroup/memory.current
    echo 'inactive_file 1000000' >cgroup/memory.stat
    shift
    unshare --mount sh -c 'mount --bind cgroup /sys/fs/cgroup && exec "$@"' sh "$@"
}
if left $((whole * 2)) true 2>/dev/null; then
    middle=$(((whole + stream) / 2))
    refuses 4 'a rank needs [0-9]* bytes and may take [0-9]* on the smallest node; would fit: .*--recompute block --stream' \
        left "$middle" "$@" --out run
    [ "$(wc -l <said)" = 1 ] || fail "refused in $(wc -l <said) lines"
    # Told that it may take more than there is: the table itself is refused.
    refuses 4 "wide.tbf: its cells take $cells bytes on each node and .* has [0-9]* left (machine or cgroup); --stream reads them from disk" \
        left $((cells - 1000000)) "$@" --out run --memory 1G
    if has_mpi; then
        # What two ranks need beside the table, less what they have by then.
        works "$@" --plan --stream --ranks 2 --ranks-per-node 2 >plan.two
        refuses 4 'a rank needs [0-9]* bytes and may take [0-9]* on the smallest node; would fit: .*--recompute block --stream' \
            left $((2 * $(bytes total plan.two) - 16000000)) ./on_node 2 "$@" --out run
        refuses 4 "wide.tbf: its cells take $cells bytes on each node" left $((cells - 1000000)) ./on_node 2 "$@" --out run --memory 1G
    fi
    [ ! -e run/run.json ] || fail 'a refused run is complete'
    rm -rf run
    some_steps run left "$middle" -- "$@" --stream
    some_steps run left $((whole * 2)) -- "$@"
else
    echo 'no mount namespace may be made here: no cgroup tried'
fi

# ---- a limit that the kernel holds ----
for folder in /sys/fs/cgroup/memory /sys/fs/cgroup; do
    [ -z "$group" ] || break
    mkdir "$folder/tabft-test-$$" 2>/dev/null || continue
    group=$folder/tabft-test-$$
    if [ -e "$group/memory.limit_in_bytes" ]; then limit=memory.limit_in_bytes peak=memory.max_usage_in_bytes
    elif [ -e "$group/memory.max" ]; then limit=memory.max peak=memory.peak
    else rmdir "$group" && group=; fi
done
# held BYTES COMMAND...
held() {
    echo "$1" >"$group/$limit" || fail "cannot set $group/$limit"
    shift
    # shellcheck disable=SC2016 # for the inner shell
    sh -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' sh "$group" "$@"
}
if [ -n "$group" ] && held $((whole * 2)) true 2>/dev/null; then
    # The kernel counts the pages of the tables of pages and of files too; the latter go when they must.
    some_steps run held $((whole * 105 / 100)) -- "$@"
    [ ! -e "$group/$peak" ] || printf 'planned %s, the cgroup had %s at most\n' "$whole" "$(cat "$group/$peak")"
    some_steps run held $((stream * 105 / 100)) -- "$@" --stream
    rm -rf run
    refuses 4 '--recompute block --stream' held $(((whole + stream) / 2)) "$@" --out run
else
    echo 'no cgroup may be made here: no limit of the kernel tried'
fi

# ---- what four ranks take ----
has_mpi || exit 0
works "$@" --estimators 4 --plan --ranks 4 --ranks-per-node 4 >plan4
each=$(bytes total plan4)
# shellcheck disable=SC2016 # for the inner shell
./on_node 4 sh -c 'echo $$ >pid.$PMIX_RANK && exec "$@"' sh "$@" --estimators 4 --out node --epochs 100000 >said 2>&1 &
launcher=$!
waits_for node/metrics.jsonl.partial 2
all=0 shared=0
for rank in 0 1 2 3; do
    process=$(cat pid.$rank)
    # Shares of what several map, in KiB; Rss counts it whole.
    cat "/proc/$process/smaps_rollup" >rollup
    own=$(awk '$1 == "Pss:" { print $2 * 1024 }' rollup) own_shared=$(awk '$1 == "Pss_Shmem:" { print $2 * 1024 }' rollup)
    mapped=$(awk '$1 == "RssShmem:" { print $2 * 1024 }' "/proc/$process/status")
    printf 'rank %s: %s bytes, %s of them of shared memory, of which it sees %s; planned %s\n' "$rank" "$own" "$own_shared" "$mapped" "$each"
    [ "$mapped" -ge "$cells" ] || fail "rank $rank sees only $mapped bytes of the table"
    [ "$own" -le "$each" ] || { cat rollup plan4; fail "rank $rank takes $own, planned $each"; }
    all=$((all + own)) shared=$((shared + own_shared))
done
kill "$launcher"
wait "$launcher" || :
printf 'node: %s bytes, %s of them of shared memory; a table has %s\n' "$all" "$shared" "$cells"
{ [ "$shared" -ge $((cells * 98 / 100)) ] && [ "$shared" -le $((cells * 105 / 100)) ]; } || fail 'the node does not hold the table once'
[ "$all" -le $((4 * each)) ] || fail "the node takes $all, planned $((4 * each))"
