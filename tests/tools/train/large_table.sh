#!/bin/sh
# Large tables: the ranks of a node hold one copy of the table, or each streams it through a window of bounded size, with the
# bits of one rank that holds it alone; what does not fit is refused with the way out; ranks that are killed leave no shared
# memory behind.
set -eu
# shellcheck source=tests/slurm/launchers.sh
. "${top_srcdir:?}/tests/slurm/launchers.sh"
in_cluster "$@"
. "$top_srcdir/tests/tools/train/helpers.sh"
# shellcheck source=tests/tools/train/metrics.sh
. "$top_srcdir/tests/tools/train/metrics.sh"
cd -- "$work"

# Two row groups; float32, integers with gaps, integers, text, a constant and a column of one text.
awk 'BEGIN {
    print "a,b,c,t,constant,same,y"
    for (i = 0; i < 66000; i++)
        print i * 7919 % 1009 / 8 "," (i % 7 ? i % 13 : "") "," i * 40503 % 65537 "," (i % 3 ? "u" : "v") ",5,only," (i * 31 % 97 < 48)
}' >rows.csv
pack y rows.csv rows.tbf
set -- tabft-train --model "$model" --data rows.tbf --epochs 1 --estimators 1 --chunk-rows 200 --chunks-per-step 16 \
    --validation-split 0 --lr 1e-3
works "$@" --out one --threads 2
says 'table: [0-9]* bytes in memory once a node, read by its 1 rank in'
says 'column "constant" is left out: constant'
says 'column "same" is left out: constant'
same() { same_run one "$1"; }
# A window of some chunks, many passes over the file; then one that holds all.
works "$@" --out streamed --threads 2 --stream --window 100K
! grep -q 'in memory once a node' said || fail 'a streamed table is in memory'
same streamed
works "$@" --out streamed-at-once --threads 1 --stream
same streamed-at-once

# ---- ranks ----
# names: what lies in /dev/shm under a name of ours, 32 hex digits. Other tests' names last for a moment.
names() { find /dev/shm -maxdepth 1 -type f -regex '.*/tabft-[0-9a-f]*' -newer rows.csv; }
nameless() { [ -z "$(names)" ]; }
no_names() { until_true 60 "$1: shared memory is left" nameless; }
works node_ranks 1 4 "$@" --out node --threads 1
says 'read by its 4 ranks in'
same node
works node_ranks 4 4 "$@" --out nodes --threads 1
says 'read by its 1 rank in'
same nodes
works node_ranks 2 3 "$@" --out uneven --threads 1
same uneven
works node_ranks 2 3 "$@" --out uneven-streamed --threads 1 --stream --window 300K
same uneven-streamed
no_names 'runs that ended well'

# ---- a validation, a table of its own, damage ----
awk 'NR == 1 || NR > 65000' rows.csv >valid.csv
tabft-prep pack --quiet --target y --classes --schema rows.tbf -o valid.tbf valid.csv || fail 'cannot pack valid.csv'
head -n 1501 rows.csv >few.csv
pack y few.csv few.tbf
set -- tabft-train --model "$model" --epochs 1 --estimators 2 --chunk-rows 300 --lr 1e-3 --threads 1
works "$@" --data few.tbf --valid valid.tbf --out valid
works "$@" --data few.tbf --valid valid.tbf --out valid-streamed --stream
works node_ranks 1 2 "$@" --data few.tbf --valid valid.tbf --out valid-node
for run in valid-streamed valid-node; do same_run valid $run; done
works "$@" --data few.tbf --out split
works "$@" --data few.tbf --out split-streamed --stream
cmp split/model.safetensors split-streamed/model.safetensors || fail 'streamed, with a split: other weights'

size=$(wc -c <few.tbf)
cp few.tbf damaged.tbf
printf 'damage' | dd of=damaged.tbf bs=1 seek=$((size / 2)) conv=notrunc status=none
refuses 3 'damaged.tbf' "$@" --data damaged.tbf --out damaged
refuses 3 'damaged.tbf' "$@" --data damaged.tbf --out damaged --stream
refuses 3 'damaged.tbf' node_ranks 1 3 "$@" --data damaged.tbf --out damaged
no_names 'a damaged table'

# ---- the plan ----
set -- tabft-train --model "$model" --data rows.tbf --epochs 1 --estimators 1 --chunk-rows 200 --validation-split 0 --threads 1
bytes() { awk -v kind="$1" '$1 == kind { print $2 }' "$2"; }
works "$@" --plan --window 1K >plan
table=$(bytes node_table plan)
# 4 columns take part of 7 that the schema knows of; without the target 6: 4 + 4 + 4 + 1 + 1 + 1 bytes a row.
if [ "$table" -lt $((66000 * 15)) ] || [ "$table" -gt $((66000 * 15 + 4096)) ]; then cat plan; fail "a table of $table bytes"; fi
[ "$(bytes table plan)" = "$table" ] || fail 'one rank on a node has the table alone'
works "$@" --plan --ranks 4 --ranks-per-node 4 >plan4
[ "$(bytes table plan4)" -le $((table / 4 + 1)) ] || fail 'four ranks share the table'
works "$@" --plan --stream --window 1K >plan-streamed
[ "$(bytes table plan-streamed)" = 0 ] || fail 'a streamed table is planned in memory'
# A table that is larger than a window and the pages that are being read.
awk 'BEGIN {
    for (c = 0; c < 80; c++) printf "x%d,", c
    print "y"
    for (i = 0; i < 66000; i++) {
        cells = i % 113 "," i % 31 "," i % 7 "," i % 101 ","
        cells = cells cells cells cells
        print cells cells cells cells cells i % 2
    }
}' >wide.csv
pack y wide.csv wide.tbf
wide="tabft-train --model $model --data wide.tbf --estimators 1 --chunk-rows 200 --validation-split 0 --threads 1 --window 1K"
# shellcheck disable=SC2086 # words
works $wide --plan --recompute block --stream >plan-streamed
total=$(bytes total plan-streamed)
status=0
# shellcheck disable=SC2086
$wide --plan --recompute block --memory "$total" >plan || status=$?
[ "$status" = 4 ] || { cat plan plan-streamed; fail "a plan that does not fit ends with $status"; }
grep -q 'would fit: .*--stream' plan || { cat plan; fail 'the plan does not name --stream'; }

# ---- /dev/shm is too small: what it has, what is needed, what would do ----
if unshare --mount sh -c 'mount -t tmpfs -o size=256k tabft-test /dev/shm' 2>/dev/null; then
    # The MPI's own shared memory goes elsewhere.
    cat >small_shm <<'SCRIPT'
mount -t tmpfs -o size=256k tabft-test /dev/shm && OMPI_MCA_btl=self,tcp exec "$@"
SCRIPT
    mpirun_in='unshare --mount sh small_shm'
    refuses 4 'rows.tbf: its cells take [0-9]* bytes that the 2 ranks of .* share in /dev/shm, which has 262144 left; --stream' \
        mpirun_ranks 2 "$@" --out small
    works mpirun_ranks 2 "$@" --out small --stream
fi

# ---- killed ----
# Four ranks of a node, killed so long after their start, or when the table is there.
four_ranks() { [ "$(wc -l 2>/dev/null <pids || echo 0)" = 4 ]; }
for moment in 0 0.05 0.1 0.2 0.4 0.8 table; do
    rm -rf killed pids
    # shellcheck disable=SC2016 # for the inner shell
    node_ranks 1 4 sh -c 'pids=$1; shift; echo $$ >>"$pids"; exec "$@"' sh "$work/pids" "$@" --epochs 50 --out killed >said 2>&1 &
    launcher=$!
    until_true 60 'four ranks do not start' four_ranks
    if [ "$moment" = table ]; then until_true 60 'no table' grep -q 'in memory once a node' said; else sleep "$moment"; fi
    # shellcheck disable=SC2046 # one word each
    kill -9 $(cat pids) 2>/dev/null || :
    wait "$launcher" || :
    launcher=
    # Between create and unlink a killed rank leaves a name without memory.
    for name in $(names); do
        [ ! -s "$name" ] || sleep 1
        [ ! -s "$name" ] || fail "killed at $moment: $name holds memory"
    done
done
