#!/bin/sh
# One rank is given something else, fails, or dies: all end within 10 seconds, one line names the rank and the cause, no
# weights are left. Under a real Slurm of four nodes.
set -eu
# shellcheck source=tests/slurm/launchers.sh
. "${top_srcdir:?}/tests/slurm/launchers.sh"
in_cluster "$@"
. "$top_srcdir/tests/tools/train/helpers.sh"
cd -- "$work"
mkdir rank0 rank1 rank2 rank3
pack y "$cases/11-uneven-estimator-shards/train.csv" train.tbf
pack y "$cases/11-uneven-estimator-shards/test.csv" test.tbf
for rank in 0 1 2 3; do cp train.tbf rank$rank/data.tbf; done

# ranks COMMAND...: four ranks on four nodes, each in a folder of its own, its process in pid.RANK.
ranks() {
    # shellcheck disable=SC2016 # for the inner shell
    slurm_ranks 4 sh -c 'cd "rank$PMIX_RANK" && echo $$ >../pid.$PMIX_RANK && exec "$@"' sh "$@"
}
# once TEXT: one line of all ranks says it, naming its rank.
once() {
    n=$(grep -c -e "^tabft-train: rank [0-9] (n[0-9]): .*$1" said || :)
    [ "$n" = 1 ] || { cat said >&2; fail "$n lines say '$1'"; }
}
set -- tabft-train --model "$model" --data data.tbf --epochs 2 --estimators 4 --threads 1 --lr 1e-3 --validation-split 0

# Another table on one rank.
cp test.tbf rank2/data.tbf
refuses 2 'the data digest differs: .* on rank 0 (n1), .* on rank 2 (n3)' ranks "$@" --out "$work/run"
once 'the data digest differs'
# No table on one rank, a damaged one on another: the lowest speaks, and the others follow it.
rm rank2/data.tbf
refuses 3 'rank 2 (n3): .*data.tbf' ranks "$@" --out "$work/run"
once 'data.tbf'
cp train.tbf rank2/data.tbf
# Other options on one rank.
# shellcheck disable=SC2016 # for the inner shell
refuses 2 'the options differs\{0,1\}: ' ranks sh -c '[ "$PMIX_RANK" != 1 ] || set -- "$@" --clip 2; exec "$@"' sh "$@" --out "$work/run"
# Another instruction set on one rank.
# shellcheck disable=SC2016
refuses 2 'the instruction set differs: ' ranks sh -c '[ "$PMIX_RANK" != 3 ] || export TABFT_ISA=baseline; exec "$@"' sh "$@" --out "$work/run"
# A folder that is used: one line, from rank 0.
mkdir used
: >used/file
refuses 2 'used: is used already' ranks "$@" --out "$work/used"
once 'is used already'
# Separate processes.
refuses 2 'add --mpi=pmix' timeout 600 srun --ntasks=3 "$@" --data train.tbf --out "$work/run"
[ ! -e run ] || fail 'a refused run left its folder'

# A gradient that is not finite: the same step on all ranks, said once.
refuses 3 'estimator [0-3], chunk 0, epoch [2-9]' ranks "$@" --out "$work/wild" --epochs 9 --lr 99 --clip 0 --schedule constant
once 'is not a finite number'
[ "$(ls wild)" = metrics.jsonl.partial ] || fail "after a failed run: $(ls wild)"

# A rank dies in the middle, the first or another.
for victim in 0 2; do
    rm -f -- pid.*
    ranks "$@" --out "$work/dies-$victim" --epochs 100000 >said 2>&1 &
    launcher=$!
    until_true 300 'the run does not start' [ -s "dies-$victim/metrics.jsonl.partial" ]
    kill -KILL "$(cat "pid.$victim")"
    # shellcheck disable=SC2046 # words
    gone_within 10 "after rank $victim died" $(cat pid.?)
    status=0
    wait "$launcher" || status=$?
    launcher=
    [ "$status" != 0 ] || fail 'a run without a rank ends well'
    # Open MPI may be quicker to end the step than our words are to come out; then it names the host.
    grep -q "^tabft-train: rank [0-9] .*rank $victim" said || grep -q "Peer host: *n$((victim + 1))$" said ||
        { cat said; fail "nobody says that rank $victim is gone"; }
    [ "$(ls "dies-$victim")" = metrics.jsonl.partial ] || fail "a run that died left $(ls "dies-$victim")"
done
