#!/bin/sh
# R7: a reader written from tbf(5) alone, in another language, finds in a file what the library wrote, and refuses the
# damage that gzip itself does not see.
set -eu
command -v python3 >/dev/null || { echo 'python3 is not installed'; exit 77; }
sample=${top_builddir:?}/tests/faults/tbf_sample
decode=${top_srcdir:?}/tests/attacks/decode_tbf.py
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
cd -- "$work"

for members in 0 1 2 60 65540; do
    "$sample" write "$members.tbf" "$members"
    gzip -t <"$members.tbf"
    "$sample" list "$members.tbf" >by-index
    "$sample" list - <"$members.tbf" >as-stream
    python3 "$decode" "$members.tbf" >decoded
    cmp by-index as-stream
    cmp by-index decoded
    [ "$(wc -l <decoded)" = $((members + 2)) ]
    [ "$members" != 60 ] || "$sample" verify 60.tbf
done

# refused FILE: by both readers, ours with status 3
refused() {
    if python3 "$decode" "$1" >/dev/null 2>&1; then echo "$1: the decoder takes it"; exit 1; fi
    for verb in list verify; do
        status=0
        "$sample" "$verb" "$1" >/dev/null 2>message || status=$?
        [ "$status" = 3 ] || { echo "$1: $verb ends with $status"; exit 1; }
        [ "$(wc -l <message)" = 1 ] || { echo "$1: not one line:"; cat message; exit 1; }
    done
}
size=$(wc -c <60.tbf)
first=$(od -An -tu4 -j16 -N4 60.tbf | tr -d ' ')
cat 60.tbf 60.tbf >twice.tbf
tail -c +$((first + 37)) 60.tbf >dropped.tbf
head -c $((size - 1)) 60.tbf >cut.tbf
{ cat 60.tbf; head -c 512 /dev/zero; } >zeros.tbf
gzip -n -c 60.tbf >packed-again.tbf
for name in twice dropped cut zeros packed-again; do refused "$name.tbf"; done
gzip -t <twice.tbf && gzip -t <dropped.tbf # what our numbers and end mark are for
