#!/bin/sh
# R30: inputs that grow beyond measure when they are unpacked or read are refused with status 3 and one line that names the
# limit, within bounded memory and without the time that all of it would take.
set -eu
# shellcheck source=tests/faults/writers.sh
. "${top_srcdir:?}/tests/faults/writers.sh"
# AddressSanitizer reserves terabytes of addresses.
limit=262144
! grep -q __asan_init "$sample" || limit=unlimited

# refused FILE TEXT: by pack.
refused() {
    status=0
    (
        # dash and bash have it.
        # shellcheck disable=SC3045
        ulimit -v "$limit"
        # shellcheck disable=SC3045
        ulimit -t 60
        exec tabft-prep pack --quiet --threads 2 -o new.tbf "$1"
    ) >said 2>&1 || status=$?
    [ "$status" = 3 ] || fail "$1: status $status"
    [ "$(wc -l <said)" = 1 ] || fail "$1: not one line"
    grep -qE -- "$2" said || fail "$1: no '$2' in the message"
    [ ! -e new.tbf ] || fail "$1: a file is left"
}

# repeat N FILE: FILE that often, as one file of many gzip members.
repeat() {
    i=0
    while [ "$i" -lt "$1" ]; do
        cat -- "$2"
        i=$((i + 1))
    done
}
head -c 10000000 /dev/zero | gzip -9n >zeros.gz
head -c 10000000 /dev/zero | tr '\0' , | gzip -9n >commas.gz
head -c 10000000 /dev/zero | tr '\0' 7 | gzip -9n >digits.gz
head -c 10000000 /dev/zero | tr '\0' '\n' | gzip -9n >lines.gz
echo 'a,b' | gzip -n >header.gz
printf '1,"' | gzip -n >quote.gz

long='the record at byte [0-9]* of the text has more than 16777216 bytes'
repeat 30 zeros.gz >name.csv.gz # 300 MB in 300 KB
refused name.csv.gz "$long"
repeat 30 commas.gz >columns.csv.gz
refused columns.csv.gz "$long"
{ cat header.gz; repeat 30 digits.gz; } >field.csv.gz
refused field.csv.gz "$long"
{ cat header.gz quote.gz; repeat 30 digits.gz; } >quoted.csv.gz
refused quoted.csv.gz "$long"
repeat 30 lines.gz >lines.csv.gz
refused lines.csv.gz 'no header'
{ cat header.gz quote.gz; repeat 30 lines.gz; } >inside.csv.gz
refused inside.csv.gz "$long"
# None of these took its space on disk; a file size limit would have been met.
limit_disk() {
    (
        # shellcheck disable=SC3045
        ulimit -f "$1"
        shift
        exec "$@"
    )
}
for bomb in name columns field quoted lines inside; do
    status=0
    limit_disk 40960 tabft-prep pack --quiet -o new.tbf "$bomb.csv.gz" >said 2>&1 || status=$?
    [ "$status" = 3 ] || fail "$bomb: 20 MiB on disk do not suffice to refuse it: status $status: $(cat said)"
done
# Rows without end are a table as good as any: what they unpack to is bounded, and the bound is the user's.
head -c 1000000 /dev/zero | sed 's/\x00/1,2\n/g' | gzip -9n >rows.gz
{ cat header.gz; repeat 30 rows.gz; } >rows.csv.gz # 120 MB
status=0
limit_disk 40960 tabft-prep pack --quiet --unpacked 10M -o new.tbf rows.csv.gz >said 2>&1 || status=$?
[ "$status" = 3 ] || fail "rows: status $status: $(cat said)"
grep -q 'unpack to more than 10485760; if that is right, allow it with --unpacked SIZE' said || fail "rows: $(cat said)"
[ ! -e new.tbf ] || fail 'rows: a file is left'
{ cat header.gz rows.gz; } >good.csv.gz
tabft-prep pack --quiet --unpacked 10M -o new.tbf good.csv.gz
