#!/bin/sh
# TabPFN's .ckpt becomes TabPFN's .safetensors, and the network in it is whole; wrong uses are refused and write nothing.
set -eu
: "${TABFT_DATA:?}"
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
ckpt=$TABFT_DATA/ckpt/v2_6_cls.ckpt expected=$TABFT_DATA/reference/v2_6_cls.model.safetensors
failed=0
bad() {
    echo "$*"
    failed=1
}
# refuse STATUS TEXT ARGUMENT...: that exit status, one line with TEXT, no file written.
refuse() {
    expect=$1 text=$2
    shift 2
    status=0
    tabft-model "$@" >"$work/stdout" 2>"$work/stderr" || status=$?
    [ "$status" = "$expect" ] || bad "$*: status $status"
    { [ "$(wc -l <"$work/stderr")" = 1 ] && grep -qF -- "$text" "$work/stderr"; } || bad "$*: $(cat "$work/stderr")"
    { [ ! -s "$work/stdout" ] && [ ! -e "$work/new.safetensors" ]; } || bad "$*: wrote something"
}
tabft-model convert "$ckpt" "$work/out.safetensors" >"$work/stdout"
[ ! -s "$work/stdout" ] || bad 'convert prints on stdout'
tabft-model diff "$work/out.safetensors" "$expected" >"$work/stdout" || bad "not TabPFN's: $(cat "$work/stdout")"
tabft-model verify "$work/out.safetensors" >"$work/stdout"
grep -q 'tabpfn_v2_6' "$work/stdout" || bad "verify: $(cat "$work/stdout")"
tabft-model convert "$ckpt" - | cmp - "$work/out.safetensors" || bad 'another file on stdout'
tabft-model convert "$expected" "$work/again.safetensors"
tabft-model diff "$work/again.safetensors" "$expected" >"$work/stdout" || bad "again: $(cat "$work/stdout")"

refuse 2 'exists' convert "$ckpt" "$work/out.safetensors"
tabft-model convert --force "$ckpt" "$work/out.safetensors"
refuse 2 'ends in .safetensors' convert "$ckpt" "$work/new.ckpt"
refuse 2 'needs a file to read' convert "$ckpt"
refuse 2 'needs a file to read' convert "$ckpt" "$work/new.safetensors" more
refuse 3 'nowhere.ckpt' convert "$work/nowhere.ckpt" "$work/new.safetensors"
refuse 3 'tabft-model convert' info "$ckpt"
refuse 3 'tabft-model convert' verify "$ckpt"
head -c 100000 "$ckpt" >"$work/cut.ckpt"
refuse 3 'cut short' convert "$work/cut.ckpt" "$work/new.safetensors"
: >"$work/empty.ckpt"
refuse 3 'cut short' convert "$work/empty.ckpt" "$work/new.safetensors"
exit "$failed"
