#!/bin/sh
# The prediction of step times: it follows the schedule that runs, agrees with what can be worked out by hand, and the
# tool around it measures, predicts and prints its error.
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
model=$top_builddir/tests/bench/scaling_model
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
cd -- "$work"
fail() {
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}
# predicted NAME=VALUE...: the rows in ./rows. 1 s an item, 1,024,000 parameters, nothing else takes time but what is given.
predicted() {
    "$model" predict item=1 add=0 update=0 latency=0 bandwidth=1e30 local_latency=0 local_bandwidth=1e30 overhead=0 \
        ranks_per_node=4 parameters=1024000 "$@" | sed 1d >rows
}
# column NUMBER VALUE TOLERANCE: that column of the only row.
column() {
    awk -v n="$1" -v want="$2" -v off="$3" '{ d = $n - want; if (d < 0) d = -d; if (d > off) exit 1 }' rows ||
        fail "column $1 is not $2: $(cat rows)"
}
# Rounds: the items of the rank with most.
for case in 8:8:1 8:3:3 8:1024:1 512:64:8 45:32:2; do
    ranks=${case#*:}
    predicted items="${case%%:*}" ranks="${ranks%:*}"
    column 3 "${case##*:}" 0
    column 4 "${case##*:}" 1e-6
done
# An item each on 8 ranks: 7/8 of a vector goes out as roots, 7/8 as weights; no other bytes move.
predicted items=8 ranks=8
column 8 7.168 0.001
# Two ranks with half of the tree each send one root each, for half of the parameters; then half of the weights.
predicted items=8 ranks=2
column 8 4.096 0.001
# The same on one node at 1,024,000 bytes/s: 2 s for the roots' halves, 2 s for the weights'.
predicted items=8 ranks=2 local_bandwidth=1024000
column 7 4 1e-6
# Between nodes of one rank; within a node nothing is given.
predicted items=8 ranks=2 ranks_per_node=1 bandwidth=1024000
column 7 4 1e-6
# Three items on two ranks: the first has a pair, whose second gradient joins the first one parameter by parameter; the second the
# rest: the packing of one vector, and two roots of half a vector.
predicted items=3 ranks=2 item=0 add=1e-6
column 6 2.048 0.001
# Two pairs on one rank: one sum joins the other, and nothing is copied.
predicted items=4 ranks=1 item=0 add=1e-6
column 6 1.024 0.001
# Two ranks that share one processor take turns; of three items on two ranks the third is computed alone; more ranks than are told
# of are as the last.
predicted items=2 ranks=2 slowdown=1,2
column 5 2 1e-6
predicted items=3 ranks=2 slowdown=1,1.5
column 5 2.5 1e-6
predicted items=4 ranks=4 slowdown=1,1.5
column 5 1.5 1e-6
predicted items=8 ranks=8 slowdown=1,3 ranks_per_node=1
column 5 1 1e-6
# More ranks are never slower in their items, and never more efficient.
predicted items=64 ranks=1,2,4,8,16,32,64,128,1024 add=1e-10 update=1e-9 latency=1e-5 bandwidth=1e9 local_latency=1e-6 local_bandwidth=1e10
awk '{ if (NR > 1 && ($5 > items || $9 > efficiency + 1e-9)) exit 1; items = $5; efficiency = $9 }' rows || fail "$(cat rows)"
[ "$(wc -l <rows)" = 9 ] || fail 'not nine rows'
for wrong in items=0 ranks=x parameters=-1 colour=red item=nan slowdown=0.5 'slowdown=1,' cores=2; do
    "$model" predict "$wrong" >/dev/null 2>said && fail "$wrong is taken"
    [ "$(wc -l <said)" = 1 ] || fail "$wrong: not one line"
done

# The tool.
measure=0
if command -v mpirun >/dev/null && [ -f "$top_builddir/lib/tabft/tabft-engine-mpi.so" ]; then measure=2; fi
"$top_srcdir/tests/bench/scaling" --check $measure --rows 40 --item-seconds 0.125 --items 8,64 --ranks 8,64,1024 >said ||
    { cat said; fail 'the tool fails'; }
cat said
[ "$(grep -cE '^ +(8|64) +(8|64|1024) ' said)" = 6 ] || fail 'not a row for each'
[ "$(grep -c '%$' said)" = "$measure" ] || fail 'no error for each measured run'
[ "$measure" = 0 ] || grep -q '^ *ranks ranks_a_processor ' said || fail 'does not say how many ranks share a processor'
"$top_srcdir/tests/bench/scaling" --check 0 >said 2>&1 && fail 'a prediction without an item'
grep -q 'needed' said || fail 'does not say what is missing'
