#!/bin/sh
# R2: a bit of every third byte of a packed table turned over (flipped_bytes.sh: of every byte). A verb that reads it ends with
# status 3 and one line with the file's name, and never by a signal; so it does for a packed table that is cut.
set -eu
# shellcheck source=tests/faults/writers.sh
. "${top_srcdir:?}/tests/faults/writers.sh"
tabft-prep pack --quiet --threads 1 --target y -o good.tbf table.csv
size=$(wc -c <good.tbf)

# refused WHAT COMMAND...
refused() {
    what=$1
    shift
    status=0
    "$@" >out 2>said </dev/null || status=$?
    [ "$status" = 3 ] || fail "$what: $* ends with $status"
    { [ "$(wc -l <said)" = 1 ] && grep -qF bad.tbf said; } || fail "$what: $* has not one line with the name"
}
tabft-prep pack --quiet --schema good.tbf -o right.tbf table.csv
cp good.tbf bad.tbf
byte=0
while [ "$byte" -lt "$size" ]; do
    bit=$((byte * 8 + byte % 8))
    "$sample" flip bad.tbf "$bit"
    case $((byte % 4)) in
    0) refused "bit $bit" tabft-prep cat bad.tbf ;;
    1)
        # Values are not read for a schema: damage in them may pass, and changes nothing.
        status_of tabft-prep pack --quiet --schema bad.tbf -o new.tbf table.csv
        if [ "$status" = 0 ]; then cmp new.tbf right.tbf && rm new.tbf; fi
        case $status in 0 | 3) ;; *) fail "bit $bit: pack --schema ends with $status" ;; esac
        ;;
    *) refused "bit $bit" tabft-prep verify bad.tbf ;;
    esac
    "$sample" flip bad.tbf "$bit"
    byte=$((byte + ${FLIP_STEP-3}))
done
cmp good.tbf bad.tbf
[ ! -e new.tbf ] || fail 'a file was made from damage'

for n in 0 1 27 28 35 36 100 $((size / 2)) $((size - 8)) $((size - 1)); do
    head -c "$n" good.tbf >bad.tbf
    for verb in verify cat info; do refused "cut at $n" tabft-prep "$verb" bad.tbf; done
    grep -q "$n bytes" said || fail "cut at $n: the bytes found are not named"
done
cat good.tbf good.tbf >bad.tbf
for verb in verify cat info; do refused 'twice in one file' tabft-prep "$verb" bad.tbf; done
