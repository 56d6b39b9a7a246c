#!/bin/sh
# R39: what one node of a job has made or renamed another does not see yet, as on NFS. It is waited for, and where it never comes
# the run fails by its name; a good checkpoint is never taken for a damaged one. What NFS keeps of removed files (.nfs...) and
# clocks that differ by an hour change nothing. Under a real Slurm of four nodes; the node that does not see has an empty file
# system over RUN, in a mount namespace of its own.
set -eu
# shellcheck source=tests/slurm/launchers.sh
. "${top_srcdir:?}/tests/slurm/launchers.sh"
in_cluster "$@"
# shellcheck source=tests/tools/train/helpers.sh
. "$top_srcdir/tests/tools/train/helpers.sh"
# shellcheck source=tests/tools/train/metrics.sh
. "$top_srcdir/tests/tools/train/metrics.sh"
cd -- "$work"
work=$(pwd -P)
mkdir try
unshare --mount mount -t tmpfs tabft-test try 2>/dev/null || { echo 'no mount namespace may be made here'; exit 77; }
strace -qq -o /dev/null true 2>/dev/null || { echo 'strace is not installed or may not trace here'; exit 77; }
pack y "$cases/11-uneven-estimator-shards/train.csv" train.tbf
set -- tabft-train --model "$model" --data train.tbf --epochs 20 --estimators 3 --chunk-rows 57 --lr 1e-3 --seed 3 --validation-split 0 \
    --threads 1
works "$@" --out whole
same() { same_run whole run "$1"; }

# ranks HOW COMMAND...: three ranks on three nodes in the background, rank 2 by HOW; each leaves its process in pid.RANK.
#   blind: it sees an empty RUN; what it opens is in ./looked.
#   stale PATH: the first three times it opens PATH, that is stale.
ranks() {
    how=$1
    shift
    rm -f pid.? looked
    mkdir -p run
    # shellcheck disable=SC2016 # for the inner shells
    slurm_ranks 3 sh -c '
        how=$1
        shift
        [ "$PMIX_RANK" = 2 ] || { echo $$ >"pid.$PMIX_RANK"; exec "$@"; }
        case $how in
        blind) exec unshare --mount --propagation private sh -c "mount -t tmpfs tabft-test run && echo \$\$ >pid.2 &&
            exec strace -f -qq -o looked -e trace=openat \"\$@\"" sh "$@" ;;
        stale*) echo $$ >pid.2; exec strace -f -qq -o looked -P "${how#stale }" -e trace=openat -e inject=openat:error=ESTALE:when=1..3 "$@" ;;
        *) echo $$ >pid.2; exec "$@" ;;
        esac' sh "$how" "$@" --out run >said 2>&1 &
    launcher=$!
}
# looks_for TEXT: rank 2 has looked in vain for such a name, more than once.
looks_for() { [ -e looked ] && [ "$(grep -c "$1.*ENOENT" looked)" -ge 3 ]; }
sees_again() { nsenter --target "$(cat pid.2)" --mount umount --lazy "$work/run"; }

# ---- the folder of a checkpoint that rank 0 has just made ----
ranks blind "$@" --checkpoint-every 10
until_true 180 'rank 2 does not look for the checkpoint' looks_for 'run/state-000000000010-'
sees_again
ends_with 0 'a checkpoint that is seen late'
same 'a checkpoint that is seen late'

# ---- the slices of a checkpoint, when it is gone on with ----
rm -rf run
ranks sees "$@" --checkpoint-every 3
waits_for run/metrics.jsonl.partial 8
kill -USR1 "$(cat pid.1)"
ends_with 75 'a request to stop'
[ "$(find run -name manifest.tbf | wc -l)" = 2 ] || fail "$(ls run) instead of two checkpoints"
newest=$(find run -maxdepth 1 -name 'state-*' | sort | tail -n 1)
older=$(find run -maxdepth 1 -name 'state-*' | sort | head -n 1)
cp -Rp run kept
checkpoints() { find run -name '*.tbf' -exec sha256sum {} + | sort; }
before=$(checkpoints)

# Never: the run fails, by the name of the rank and the file, and nothing is changed.
ranks blind "$@" --resume --comm-timeout 12
until_true 180 'nobody says what is not seen' grep -q 'is not seen on this node' said
# shellcheck disable=SC2046 # words
gone_within 10 'a checkpoint that is never seen' $(cat pid.?)
ends_with 4 'a checkpoint that is never seen'
text="slice-0002-of-0003.tbf: was made by another rank and is not seen on this node after 6 s: No such file or directory; "
[ "$(grep -c "^tabft-train: rank 2 (n3): .*$newest/$text" said)" = 1 ] ||
    { cat said; fail 'a checkpoint that is never seen: not one line with rank, node and file'; }
! grep -q 'damaged' said || { cat said; fail 'a checkpoint that is never seen is taken for a damaged one'; }
[ "$(checkpoints)" = "$before" ] || fail 'a checkpoint that is never seen: the checkpoints changed'

# After a while.
ranks blind "$@" --resume
until_true 180 'rank 2 does not look for its slice' looks_for "$newest/slice-0002-of-0003.tbf"
sees_again
ends_with 0 'slices that are seen late'
says "resumes after step .* from ${newest#run/}"
same 'slices that are seen late'
# Stale handles.
rm -rf run
cp -Rp kept run
ranks "stale $work/$newest/slice-0002-of-0003.tbf" "$@" --resume
ends_with 0 'stale slices'
[ "$(grep -c 'ESTALE.*INJECTED' looked)" = 3 ] || { cat looked; fail 'stale slices: nothing was injected'; }
says "resumes after step .* from ${newest#run/}"
same 'stale slices'

# ---- clocks, and what NFS keeps ----
rm -rf run
cp -Rp kept run
# By their times the checkpoints are the other way round.
find "$newest" -exec touch -d '-1 hour' {} +
find "$older" -exec touch -d '+1 hour' {} +
# A removed file that another process has open cannot go, nor can its folder.
mkdir "$older/.nfs00000000004d5b" run/.nfs00000000001fff
: >"$older/.nfs00000000004d5b/open"
: >run/.nfs00000000001fff/open
ranks sees "$@" --resume
ends_with 0 'clocks and leftovers'
says "resumes after step .* from ${newest#run/}"
says "$older: the old checkpoint stays: "
same 'clocks and leftovers'
rm -rf run
mkdir -p run
: >run/.nfs00000000001fff
ranks sees "$@"
ends_with 0 'a folder with leftovers alone'
same 'a folder with leftovers alone'
