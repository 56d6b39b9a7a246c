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

repeat 30 zeros.gz >name.csv.gz # 200 MB in 200 KB
refused name.csv.gz '65535|NUL'
repeat 30 commas.gz >columns.csv.gz
refused columns.csv.gz 'columns'
{ cat header.gz; repeat 30 digits.gz; } >field.csv.gz
refused field.csv.gz 'bytes'
{ cat header.gz quote.gz; repeat 30 digits.gz; } >quoted.csv.gz
refused quoted.csv.gz 'bytes|quote'
repeat 30 lines.gz >lines.csv.gz
refused lines.csv.gz 'no header'
