#!/bin/sh
# R37: 64 array tasks on four nodes pack a table, one of them is killed while it writes, one part is written by four tasks at once:
# one of them wins and the others are refused; merge names the missing part; that task alone is run again and the whole is what
# one process packs, bit for bit. Neither clocks that are a day apart nor what the killed task left matter.
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
[ -n "${TABFT_TEST_CLUSTER-}" ] || exec "$top_srcdir/tests/slurm/with-cluster" sh "$0" "$@"
# shellcheck source=tests/faults/writers.sh
. "$top_srcdir/tests/faults/writers.sh"
need_strace
# Quoted newlines, so that cuts fall inside of records.
awk 'BEGIN { print "n,text,y"
    for (i = 1; i <= 6400; i++) printf "%d,\"line %d\nand%s\",%s\n", i * 7, i, i % 3 ? "" : "\n\n\"\"more\"\"", i % 5 ? "u" : "v" }' >table.csv
tabft-prep pack --quiet --target y --task classification -o once.tbf table.csv
mkdir parts
cat >task.sh <<'JOB'
#!/bin/sh
#SBATCH --output=task-%a.out
set -eu
[ "$SLURM_ARRAY_TASK_ID" != 17 ] || [ -e again ] ||
    set -- strace -qq -o killed.trace -e inject=fsync:signal=SIGKILL:when=1
exec "$@" tabft-prep pack --quiet --threads 1 --target y --task classification --part "$SLURM_ARRAY_TASK_ID/64" \
    -o "parts/$SLURM_ARRAY_TASK_ID.tbf" table.csv
JOB
status=0
sbatch --quiet --wait --array=0-63 task.sh >said 2>&1 || status=$?
[ "$status" != 0 ] || fail 'an array with a killed task ends well'
[ ! -e parts/17.tbf ] || fail 'the killed task left a part'
[ "$(find parts -name '*.tbf' ! -name '.*' | wc -l)" = 63 ] || { cat task-*.out; fail "$(find parts -name '*.tbf' ! -name '.*' | wc -l) parts instead of 63"; }
[ "$(temporaries parts)" = 1 ] || fail 'not the one temporary file of the killed task'

# Four at once with the same part.
rm parts/5.tbf
cat >same.sh <<'JOB'
#!/bin/sh
set -u
tabft-prep pack --quiet --threads 1 --target y --task classification --part 5/64 -o parts/5.tbf table.csv
echo "$?" >"same.$SLURM_PROCID"
JOB
srun --nodes=4 --ntasks=4 --overcommit sh same.sh >said 2>&1 || :
winners=$(cat same.? | grep -c '^0$') refused=$(cat same.? | grep -c '^2$') || :
[ "$winners:$refused" = 1:3 ] || { cat same.?; fail "$winners tasks won and $refused were refused"; }
tabft-prep verify parts/5.tbf >/dev/null || fail 'the part that four wrote is broken'

# shellcheck disable=SC2046 # words
status_of tabft-prep merge --quiet -o whole.tbf $(find parts -name '*.tbf' ! -name '.*')
{ [ "$status" = 3 ] && grep -q 'part 17 of 64 is missing' said && [ ! -e whole.tbf ]; } || fail "a missing part: status $status"
# The clock of one node is a day behind, of another a day ahead.
touch -d '-1 day' parts/3.tbf
touch -d '+1 day' parts/4.tbf table.csv
: >again
sbatch --quiet --wait --array=17 task.sh >said 2>&1 || { cat task-17.out; fail 'the lost task cannot be run again'; }
# shellcheck disable=SC2046
tabft-prep merge --quiet -o whole.tbf $(find parts -name '*.tbf' ! -name '.*') >said 2>&1 || fail 'no merge'
cmp once.tbf whole.tbf || fail 'merged it is another file'
# A damaged part is named, by its file.
truncate -s 2000 parts/9.tbf
# shellcheck disable=SC2046
status_of tabft-prep merge --quiet --force -o whole.tbf $(find parts -name '*.tbf' ! -name '.*')
{ [ "$status" = 3 ] && grep -q 'parts/9.tbf: ' said && cmp once.tbf whole.tbf; } || fail "a damaged part: status $status"
