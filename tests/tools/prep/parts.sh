#!/bin/sh
# pack --part: each task reads its own bytes or files, cuts at records whatever quotes hold, and merge makes of any number of
# parts, bit for bit, what one process makes; where a part alone could not know a kind, merge says what to pack again.
set -eu
# shellcheck source=tests/tools/prep/common.sh
. "$(dirname -- "$0")/common.sh"
cd -- "$work"
# parts N OPTION... INPUT...: part0.tbf ... of N
parts() {
    n=$1
    shift
    rm -f part*.tbf merged.tbf
    part=0
    while [ "$part" -lt "$n" ]; do
        tabft-prep pack --quiet --part "$part/$n" -o "part$part.tbf" "$@" 2>err || { cat err; bad "part $part/$n of $*"; }
        part=$((part + 1))
    done
}
# same N OPTION... INPUT...: so many parts are one table
same() {
    n=$1
    shift
    tabft-prep pack --quiet --force -o whole.tbf "$@" 2>err || { cat err; bad "pack $*"; }
    parts "$n" "$@"
    tabft-prep merge --quiet -o merged.tbf part*.tbf 2>err || { cat err; bad "merge of $n parts of $*"; return; }
    cmp -s whole.tbf merged.tbf || bad "$n parts of $* are another table"
}
# refused TEXT: merge of all parts ends with 3 and says so.
refused_merge() {
    status=0
    tabft-prep merge -o merged.tbf part*.tbf >out 2>err || status=$?
    { [ "$status" = 3 ] && grep -qe "$1" err && [ ! -e merged.tbf ]; } || { cat err; bad "merge: status $status, not '$1'"; }
}

# Six blocks of 256 KiB. Cells that look like records of this table, quotes in quotes, empty quoted cells, CR LF here and there,
# text that is dense here and missing there, labels.
awk 'BEGIN {
    printf "id,note,value,sparse,y\r\n"
    for (i = 0; i < 40000; i++) {
        if (i % 7 == 0) note = "\"1,\"\"x\"\",2,3,a\n5,\"\"\"\",6,7,b\r\n8,,9,1,c\""
        else if (i % 5 == 0) note = "\"\""
        else note = i % 3 == 0 ? "\"say \"\"" i "\"\", twice\"" : "plain" i % 50
        if (i % 900 == 0) { note = "\""; for (k = 0; k < 600; k++) note = note k ",z,0.5,,a\n"; note = note "\"" }
        printf("%d,%s,%s,%s,%s%s\n", i, note, (i % 11 ? i / 8 : ""), (i > 30000 && i % 2 ? "late" i % 9 : ""),
            substr("abc", i % 3 + 1, 1), (i % 4 ? "" : "\r"))
    }
}' >notes.csv
[ "$(wc -c <notes.csv)" -gt 1000000 ] || bad 'the text is too small to be cut'
for n in 1 2 3 5 9; do same "$n" --target y notes.csv; done
# Blocks that hold numbers alone, in several files, one of them empty but for its header.
awk 'BEGIN { print "a,b,c,y"; for (i = 0; i < 60000; i++) print i "," i / 8 "," (i % 9 ? i % 200 - 100 : "NA") "," i % 2 }' >one.csv
awk 'BEGIN { print "a,b,c,y"; for (i = 0; i < 20000; i++) print 70000 + i * 40000 "," i "," i % 40000 "," i % 2 }' >two.csv
printf 'a,b,c,y\n' >none.csv
for n in 2 4 7; do same "$n" --target y one.csv none.csv two.csv; done
tail -n +2 two.csv >bare.csv
same 3 --target x3 --no-header --text x0 bare.csv
# A record longer than a block, and more parts than records: some parts have no record.
awk 'BEGIN { print "t,y"; for (r = 0; r < 4; r++) { printf "\""; for (i = 0; i < 60000; i++) printf "cell,%d\n", i; print "\"," r % 2 } }' >long.csv
for n in 3 8 20; do same "$n" --target y long.csv; done
# Gzipped: whole files.
gzip -k one.csv two.csv
for n in 1 2; do same "$n" --target y one.csv.gz two.csv.gz; done
status=0
tabft-prep pack --part 0/3 -o p.tbf one.csv.gz two.csv.gz 2>err || status=$?
{ [ "$status" = 2 ] && grep -q 'gzipped inputs are packed a file a part' err; } || bad "more parts than gzipped files: $status, $(cat err)"
status=0
tabft-prep pack --part 0/3 -o p.tbf - <one.csv 2>err || status=$?
{ [ "$status" = 2 ] && grep -q 'regular files' err; } || bad "a part of stdin: $status, $(cat err)"

# ---- only its own bytes ----
if command -v strace >/dev/null && strace -o /dev/null true 2>/dev/null; then
    size=$(wc -c <one.csv)
    blocks=$(((size + 262143) / 262144))
    # LeakSanitizer does not work under ptrace.
    ASAN_OPTIONS=${ASAN_OPTIONS+$ASAN_OPTIONS:}detect_leaks=0
    export ASAN_OPTIONS
    for part in 0 1 2; do
        strace -f -y -e trace=pread64,read,mmap -o trace tabft-prep pack --quiet --force --target y --part "$part/3" -o p.tbf one.csv ||
            bad "part $part/3 under strace"
        first=$((blocks * part / 3)) last=$((blocks * (part + 1) / 3))
        begin=$((first * 262144)) end=$((last * 262144))
        # The header and the first look at quotes take 64 KiB each; where a record begins 64 KiB more, or a cell at most.
        grep 'one\.csv' trace | grep pread64 | sed 's/.*, \([0-9]*\), \([0-9]*\)) *= \([0-9]*\)$/\2 \3/' |
            awk -v begin="$begin" -v end="$((end + 1310720))" 'NF != 2 { exit 2 }
                $1 + $2 > 65536 && $1 < begin - 1 || $1 + $2 > end { print; bad = 1 }
                END { exit bad }' >beyond ||
            { cat beyond; bad "part $part reads beyond its bytes $begin to $end"; }
    done
fi

# ---- alone and again ----
parts 3 --target y notes.csv
cp part1.tbf before.tbf
tabft-prep pack --quiet --force --target y --part 1/3 -o part1.tbf notes.csv
cmp -s before.tbf part1.tbf || bad 'a part that is packed again is another'
rm part1.tbf
refused_merge 'part 1 of 3 is missing; pack it (--part 1/3)'
# Damage: in the index, which the other parts must tell, and in a page.
head -c 5000 before.tbf >part1.tbf
refused_merge 'of 3 parts these must be packed again: 1'
size=$(wc -c <before.tbf)
cp before.tbf part1.tbf
printf 'damage' | dd of=part1.tbf bs=1 seek=$((size * 3 / 4)) conv=notrunc status=none
refused_merge 'part 1 must be packed again (--part 1/3).*part1.tbf'
# Another run: options, another number of parts, an input that has changed.
tabft-prep pack --quiet --force --target y --na-text none --part 1/3 -o part1.tbf notes.csv
refused_merge 'part1.tbf: is no part of the table'
tabft-prep pack --quiet --force --target y --part 1/4 -o part1.tbf notes.csv
refused_merge 'is no part of the table'
{ cat notes.csv; printf '1,x,1,,a\n'; } >longer.csv
mkdir other
cp longer.csv other/notes.csv
tabft-prep pack --quiet --force --target y --part 1/3 -o part1.tbf other/notes.csv
refused_merge 'is no part of the table'

# ---- kinds that only the whole table tells ----
# Numbers up to the last block, where words come; integers that are decimals and beyond 64 bits elsewhere; 007 in one place.
awk 'BEGIN { print "word,big,code,y"
    for (i = 0; i < 60000; i++)
        print (i == 59000 ? "seven" : i % 70 ".50") "," (i == 3 ? "99999999999999999999" : i > 50000 ? i / 4 : i) "," \
            (i == 30000 ? "007" : i % 1000) "," i % 2 }' >late.csv
tabft-prep pack --quiet --force --target y -o whole.tbf late.csv 2>err
parts 3 --target y late.csv
refused_merge 'column word is text in the whole table.*--survey .*: 0 1'
again=$(sed -n 's/.*other parts: \([0-9 ]*\)$/\1/p' err)
cp part0.tbf old0.tbf
cp part1.tbf old1.tbf
cp part2.tbf old2.tbf
for part in $again; do
    tabft-prep pack --quiet --force --target y --part "$part/3" --survey old0.tbf --survey old1.tbf --survey old2.tbf \
        -o "part$part.tbf" late.csv 2>err || { cat err; bad "part $part with --survey"; }
done
tabft-prep merge --quiet -o merged.tbf part*.tbf 2>err || { cat err; bad 'merge after --survey'; }
cmp -s whole.tbf merged.tbf || bad 'parts with --survey are another table'
# A target of few whole numbers in each part, many in all.
awk 'BEGIN { print "a,y"; for (i = 0; i < 120000; i++) print i "," int(i / 5000) }' >steps.csv
tabft-prep pack --quiet --force --target y -o whole.tbf steps.csv
parts 3 --target y steps.csv
refused_merge 'the target y is for regression in the whole table.*--task regression: 0 1 2'
parts 3 --target y --task regression steps.csv
tabft-prep merge --quiet -o merged.tbf part*.tbf
cmp -s whole.tbf merged.tbf || bad 'parts for regression are another table'
exit "$failed"
