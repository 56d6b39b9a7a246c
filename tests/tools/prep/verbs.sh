#!/bin/sh
# merge, split, cat, info, verify, --schema and --part on tables of all kinds.
set -eu
# shellcheck source=tests/tools/prep/common.sh
. "$(dirname -- "$0")/common.sh"
cd -- "$work"
# 140,000 rows, so that row groups are cut: all kinds, gaps, labels.
awk 'BEGIN { print "id,half,word,flag,gap,y"
    for (i = 0; i < 140000; i++)
        printf "%d,%s,%s,%s,%s,%d\n", i, i / 2 + 0.25, i % 3 ? "w" i % 700 : "\"a, \"\"b\"\"\"",
            i % 2 ? "true" : "false", i % 5 ? i * 7 % 1000 / 8 : "", i % 3 * i % 7 }' >all.csv
pack --quiet --target y all.csv -o all.tbf
[ ! -s err ] || bad "--quiet says: $(cat err)"
tabft-prep verify all.tbf >out || bad 'verify fails'
[ "$(cat out)" = 'all.tbf: ok' ] || bad "verify says $(cat out)"
tabft-prep cat all.tbf >cat.csv
pack --target y cat.csv -o again.tbf
tabft-prep cat again.tbf | cmp -s - cat.csv || bad 'cat of what cat gave is another text'
columns() { tabft-prep info --json "$1" | sed 's/.*"columns"://; s/,"provenance".*//'; }
[ "$(columns all.tbf)" = "$(columns again.tbf)" ] || bad 'cat and pack give other columns'
{ tabft-prep cat -o to.csv all.tbf && cmp -s to.csv cat.csv; } || bad 'cat -o'
tabft-prep cat --threads 3 all.tbf | cmp -s - cat.csv || bad 'cat with 3 threads'

# Parts: any order; a missing, doubled or foreign one is refused; the whole is what one pack makes.
for part in 0 1 2; do pack --target y --part "$part/3" all.csv -o "part$part.tbf"; done
tabft-prep merge --quiet -o merged.tbf part2.tbf part0.tbf part1.tbf || bad 'merge fails'
cmp -s merged.tbf all.tbf || bad 'the parts together are not the table'
refused_merge() {
    text=$1
    shift
    status=0
    tabft-prep merge -o refused.tbf "$@" >out 2>err || status=$?
    { [ "$status" = 3 ] && grep -qF -- "$text" err && [ ! -e refused.tbf ]; } || bad "merge $*: status $status, $(cat err)"
}
refused_merge 'part 1 of 3 is missing' part0.tbf part2.tbf
refused_merge 'part 2 of 3 is missing' part0.tbf part1.tbf
refused_merge 'part 1 is there twice' part0.tbf part1.tbf part1.tbf part2.tbf
refused_merge 'is a part of a table' part0.tbf all.tbf
pack --target y --part 1/3 cat.csv -o other.tbf
refused_merge 'is no part of the table' part0.tbf other.tbf part2.tbf

# Whole tables: kinds, dictionaries and labels are united as one pack of both inputs does it.
printf 'a,b,c,y\n1,x,,2\n300,z,5,9\n' >one.csv
printf 'a,b,c,y\n0.5,y,7,10\n,x,-40000,2\n' >two.csv
pack --target y one.csv two.csv -o both.tbf
for table in one two; do pack --target y "$table.csv" -o "$table.tbf"; done
tabft-prep merge --quiet -o united.tbf one.tbf two.tbf || bad 'merge of two tables fails'
cmp -s united.tbf both.tbf || { bad 'two tables merged are not one pack of both'; tabft-prep cat united.tbf; }
printf 'a,b,c,y\nq,x,1,2\n' >text.csv
pack --target y text.csv -o text.tbf
refused_merge 'column a is text, and integer in one.tbf' one.tbf text.tbf
printf 'a,b,d,y\n1,x,1,2\n' >named.csv
pack --target y named.csv -o named.tbf
refused_merge 'named.tbf: column 3 is called d, and c in one.tbf' one.tbf named.tbf
pack one.csv -o untargeted.tbf
refused_merge 'another target or task' one.tbf untargeted.tbf

# --schema: the kinds of another table.
printf 'b,a,more\n7,3,1\n' >new.csv
printf 'a,b\n0.5,x\n' >kinds.csv
pack kinds.csv -o kinds.tbf
pack --schema kinds.tbf new.csv -o new.tbf
tabft-prep info new.tbf >kinds
{ grep -q '^text .* b ' kinds && grep -q '^float .* a ' kinds; } || bad "--schema: $(cat kinds)"
printf 'a\n1\n' >lacks.csv
refused 3 'lacks.csv: column b of kinds.tbf is missing' --schema kinds.tbf lacks.csv
printf 'a,b\nq,x\n' >odd.csv
refused 3 'odd.csv:2:1: "q" in column a is no number' --schema kinds.tbf odd.csv
refused 3 'kinds.tbf: is a packed table already' kinds.tbf

# split: sizes, classes, order, reproducible; together the two are the table.
tabft-prep split --quiet --test 0.2 --train-out train.tbf --test-out test.tbf all.tbf || bad 'split fails'
tabft-prep cat train.tbf >train.csv
tabft-prep cat test.tbf >test.csv
{ [ "$(wc -l <test.csv)" = 28001 ] && [ "$(wc -l <train.csv)" = 112001 ]; } || bad 'split gives other sizes'
tail -n +2 test.csv | sort -c -t , -k 1 -n || bad 'split changes the order'
{ head -n 1 cat.csv; { tail -n +2 train.csv; tail -n +2 test.csv; } | sort -t , -k 1 -n; } | cmp -s - cat.csv || bad 'split loses rows'
# Each class gives a fifth of its rows, but for one row more or less.
awk -F , 'FNR == 1 { next } FNR == NR { test[$NF]++; next } { all[$NF]++ }
    END { for (y in all) { d = test[y] - all[y] / 5; if (d <= -1 || d >= 1) exit 1 } }' test.csv cat.csv || bad 'split does not keep the shares of the classes'
tabft-prep split --quiet --threads 2 --test 28000 --train-out train2.tbf --test-out test2.tbf all.tbf
tabft-prep cat test2.tbf | cmp -s - test.csv || bad 'split --test 28000 draws others than --test 0.2'
tabft-prep split --quiet --seed 1 --test 28000 --train-out train3.tbf --test-out test3.tbf all.tbf
tabft-prep cat test3.tbf | cmp -s - test.csv && bad 'another seed draws the same rows'
status=0
tabft-prep split --test 140000 --train-out t4.tbf --test-out u4.tbf all.tbf 2>err || status=$?
{ [ "$status" = 3 ] && [ ! -e t4.tbf ] && [ ! -e u4.tbf ]; } || bad "split of all rows: status $status"

# A changed byte anywhere in the middle is found by verify.
size=$(wc -c <one.tbf)
for at in 100 $((size / 2)) $((size - 100)); do
    { head -c "$at" one.tbf; printf '\377\376'; tail -c +$((at + 3)) one.tbf; } >changed.tbf
    cmp -s one.tbf changed.tbf && continue
    for threads in 1 3; do # as many inflate at a time; what they say is the same
        status=0
        tabft-prep verify --threads $threads changed.tbf >out 2>err.$threads || status=$?
        { [ "$status" = 3 ] && [ ! -s out ] && [ "$(wc -l <err.$threads)" = 1 ]; } ||
            bad "verify with byte $at changed, $threads threads: status $status, $(cat out err.$threads)"
    done
    cmp err.1 err.3 || bad "verify with byte $at changed: $(cat err.1 err.3)"
done
# They do inflate at a time.
strace -f -qq -o trace -e trace=clone,clone3 tabft-prep verify --threads 3 all.tbf >out 2>err || echo 'no strace here, or it may not trace'
[ ! -s trace ] || [ "$(grep -c 'clone' trace)" -ge 2 ] || bad 'verify starts no threads'
# Nothing at all on stderr when the reader of a pipe has seen enough.
tabft-prep cat all.tbf 2>err | head -n 1 >out
[ ! -s err ] || bad "cat | head says $(cat err)"
exit "$failed"
