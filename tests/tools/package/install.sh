#!/bin/sh
# `make install DESTDIR=` gives a tree that works from wherever it is moved to: front, manuals, models, examples, job scripts,
# shell commands, plugins, modulefiles, completion; `make uninstall` takes all of it away again.
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
unset TABFT_PLUGIN_PATH MAKEFLAGS MFLAGS MAKELEVEL
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
failed=0
bad() {
    echo "install: $*"
    failed=1
}
make -s -C "$top_builddir" install DESTDIR="$work/first" prefix=/opt/tabft >"$work/log" 2>&1 || { cat -- "$work/log"; exit 1; }
mv -- "$work/first/opt/tabft" "$work/moved here"
home="$work/moved here"
# The tools of the build tree must not help.
PATH=$(printf '%s' "$PATH" | tr ':' '\n' | grep -vxF -e "$top_builddir/bin" -e "$top_srcdir/bin" | paste -s -d :)
cd -- "$work"

for tool in "$home"/bin/*; do
    "$tool" --version >"$work/out" 2>"$work/err" || { bad "$(basename -- "$tool") --version: status $?"; cat -- "$work/err"; }
    [ -s "$home/share/man/man1/$(basename -- "$tool").1" ] || bad "$(basename -- "$tool") has no manual page"
done
for file in models/tiny-v2_6-classifier.safetensors examples/parity_train.csv examples/parity_test.csv examples/iris.csv \
    examples/breast_cancer.csv sh/doctor sh/quickstart jobs/train.sbatch jobs/pipeline.sh; do
    [ -s "$home/share/tabft/$file" ] || bad "share/tabft/$file is missing"
done
"$home/bin/tabft" quickstart --help >"$work/out" || bad "tabft quickstart --help: status $?"
grep -q '^Usage: tabft quickstart' "$work/out" || bad 'quickstart was not found from where it lies'
if [ -x "$home/bin/tabft-train" ]; then
    (PATH=$home/bin:$PATH "$home/bin/tabft" doctor) >"$work/out" 2>&1 || { bad "tabft doctor: status $?"; cat -- "$work/out"; }
    # GPUs that can be used (those of the emulation), that cannot, and none. What stands for nvidia-smi says what it would.
    mkdir -- "$work/driver"
    printf '#!/bin/sh\necho "NVIDIA X, 81559 MiB, 580.1"\n' >"$work/driver/nvidia-smi"
    chmod +x "$work/driver/nvidia-smi"
    doctor_says() { # TEXT COMMAND...
        text=$1
        shift
        (PATH=$home/bin:$PATH "$@" "$home/bin/tabft" doctor) >"$work/out" 2>&1 || { bad "tabft doctor: status $?"; cat -- "$work/out"; }
        grep -q -e "$text" "$work/out" || { bad "tabft doctor: no '$text'"; cat -- "$work/out"; }
    }
    if [ -e "$top_builddir/tests/cuda/plugins/tabft-device-cuda.so" ]; then
        doctor_says '^ok  GPUs  *3 can be used: --device cuda' env TABFT_PLUGIN_PATH="$top_builddir/tests/cuda/plugins" CUDA_EMULATION_DEVICES=3
    fi
    if ! command -v nvidia-smi >/dev/null; then
        doctor_says '^--  GPUs  *none here' env
        doctor_says '^no  GPUs  *tabft-train can use none: .*\(configure --with-cuda\|nvidia-smi\)' env PATH="$work/driver:$home/bin:$PATH"
        grep -q '^--  nvidia-smi  *1 GPUs: NVIDIA X' "$work/out" || { bad 'tabft doctor does not say what nvidia-smi does'; cat -- "$work/out"; }
    fi
    # The plugins are found from where the program lies.
    for plugin in "$home"/lib/tabft/*.so; do
        [ -e "$plugin" ] || continue
        "$home/bin/tabft-train" --version 2>&1 | grep -qF "moved here" || bad 'tabft-train --version names no plugin of the moved tree'
    done
    # No file tells where it was built or was meant to lie.
    for tool in "$home"/bin/*; do
        ! grep -qF -e "$top_builddir" -e "$work/first" -- "$tool" || bad "$(basename -- "$tool") holds a path of the build"
    done
fi

# Modulefiles, with whichever system is here: the prefix is the moved one.
if [ -r /usr/lib/x86_64-linux-gnu/modulecmd.tcl ] && command -v tclsh >/dev/null; then
    # It prints shell code; "test 0" (or 1) is how it ends.
    MODULEPATH=$home/share/tabft/modules tclsh /usr/lib/x86_64-linux-gnu/modulecmd.tcl sh load tabft >"$work/out" 2>&1 || true
    (eval "$(cat -- "$work/out")" && [ "$TABFT_HOME" = "$home" ]) || { bad 'the Tcl modulefile does not set TABFT_HOME'; cat -- "$work/out"; }
    grep -q 'moved.* here/bin' "$work/out" || bad 'the Tcl modulefile does not set PATH'
fi

# Completion: verbs of the front, options of a tool.
if command -v bash >/dev/null; then
    PATH=$home/bin:$PATH bash -c '
        compopt() { :; }
        . "$1/share/bash-completion/completions/tabft-prep"
        COMP_WORDS=(tabft quick) COMP_CWORD=1
        _tabft
        [[ ${COMPREPLY[*]} == quickstart ]] || exit 1
        COMP_WORDS=(tabft quickstart --ra) COMP_CWORD=2
        _tabft
        [[ ${COMPREPLY[*]} == --ranks ]] || exit 1' bash "$home" || bad 'completion does not complete'
fi

make -s -C "$top_builddir" install DESTDIR="$work/second" prefix=/opt/tabft >"$work/log" 2>&1
make -s -C "$top_builddir" uninstall DESTDIR="$work/second" prefix=/opt/tabft >"$work/log" 2>&1 || cat -- "$work/log"
left=$(find "$work/second" ! -type d)
[ -z "$left" ] || bad "uninstall leaves $left"
exit "$failed"
