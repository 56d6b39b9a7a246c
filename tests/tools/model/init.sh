#!/bin/sh
# tabft-model init: random networks of a configuration, the same for the same seed, whole, with the names TabPFN has.
set -eu
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
failed=0
bad() {
    echo "$*"
    failed=1
}
cd -- "$work"
cat >config.json <<'EOF'
{"emsize": 32, "nlayers": 3, "nhead": 2, "features_per_group": 3, "num_thinking_rows": 4, "max_num_classes": 10}
EOF
tabft-model init --arch tabpfn_v2_6 --config config.json --seed 5 a.safetensors
tabft-model init --arch tabpfn_v2_6 --config - --seed 5 b.safetensors <config.json
tabft-model init --arch tabpfn_v2_6 --config config.json --seed 6 c.safetensors
cmp a.safetensors b.safetensors || bad 'the same seed gives another file'
status=0
tabft-model diff a.safetensors c.safetensors >text || status=$?
[ "$status" = 1 ] || bad 'another seed gives the same weights'
tabft-model verify a.safetensors | grep -q 'tabpfn_v2_6' || bad 'init writes what verify does not know'
tabft-model info a.safetensors | grep -q '^config: .*"nlayers": 3' || bad 'the configuration is not recorded'

# refuse STATUS TEXT ARGUMENT...: no file is left, one line has TEXT.
refuse() {
    want=$1 text=$2
    shift 2
    status=0
    tabft-model init "$@" new.safetensors >out 2>err </dev/null || status=$?
    { [ "$status" = "$want" ] && grep -q -- "$text" err && [ "$(wc -l <err)" = 1 ]; } ||
        bad "init $*: status $status, $(cat err)"
    [ ! -e new.safetensors ] || bad "init $*: leaves a file"
    rm -f new.safetensors
}
refuse 3 tabpfn_v9 --arch tabpfn_v9
echo '{"emsize": 33}' >odd.json
refuse 3 '' --arch tabpfn_v2_6 --config odd.json
echo '{"emsize": ' >cut.json
refuse 3 '' --arch tabpfn_v2_6 --config cut.json
printf '{}\0' >nul.json
refuse 3 NUL --arch tabpfn_v2_6 --config nul.json
refuse 3 nowhere.json --arch tabpfn_v2_6 --config nowhere.json

# An existing file stays unless told.
cp a.safetensors kept.safetensors
status=0
tabft-model init --arch tabpfn_v2_6 --config config.json --seed 6 kept.safetensors 2>err || status=$?
{ [ "$status" = 2 ] && cmp a.safetensors kept.safetensors; } || bad "an existing file: status $status"
tabft-model init --arch tabpfn_v2_6 --config config.json --seed 6 --force kept.safetensors
cmp c.safetensors kept.safetensors || bad '--force does not replace'
[ "$(find . -name '.*' -type f | wc -l)" = 0 ] || bad 'temporary files are left'
exit "$failed"
