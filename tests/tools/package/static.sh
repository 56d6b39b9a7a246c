#!/bin/sh
# tabft-prep, tabft-model and tabft-eval are static: no loader, no library, and they work in an empty chroot. tabft-train
# needs the C library's family alone; everything else is opened at run time.
set -eu
: "${top_builddir:?}" "${top_srcdir:?}"
grep -q "^TABFT_SANITIZE=' *'\$\|^TABFT_SANITIZE=\$" "$top_builddir/config.log" || { echo 'a sanitizer build is not static'; exit 77; }
grep -q "^STATIC_TOOLS_TRUE=''" "$top_builddir/config.log" || { echo 'configured with --disable-static-tools'; exit 77; }
grep -q "^HAVE_CUDA_TRUE='#'" "$top_builddir/config.log" || { echo 'configured with CUDA: tabft-eval opens plugins'; exit 77; }
failed=0
bad() {
    echo "$*"
    failed=1
}
for tool in tabft-prep tabft-model tabft-eval; do
    program=$top_builddir/bin/$tool
    [ -x "$program" ] || { bad "$tool is not built"; continue; }
    readelf -lW -- "$program" | grep -q INTERP && bad "$tool asks for a loader"
    readelf -dW -- "$program" | grep NEEDED && bad "$tool needs a library"
done
# \0 does not occur in a soname, so a line is a library.
readelf -dW -- "$top_builddir/bin/tabft-train" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | while IFS= read -r library; do
    case $library in
    libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | ld-linux*.so.*) ;;
    *) echo "tabft-train needs $library"; exit 1 ;;
    esac
done || failed=1
[ "$failed" = 0 ] || exit 1

if [ "$(id -u)" != 0 ]; then
    echo 'readelf agrees; the empty chroot needs root'
    exit 77
fi
root=$(mktemp -d)
trap 'rm -rf -- "$root"' EXIT
if ! chroot "$root" /none 2>&1 | grep -q 'No such file'; then
    echo 'readelf agrees; this root may not chroot'
    exit 77
fi
cp -- "$top_builddir/bin/tabft-prep" "$top_builddir/bin/tabft-model" "$top_builddir/bin/tabft-eval" "$root/"
cp -- "$top_srcdir/share/examples/iris.csv" "$top_srcdir/share/models/tiny-v2_6-classifier.safetensors" "$root/"
for tool in tabft-prep tabft-model tabft-eval; do
    chroot "$root" "/$tool" --version >/dev/null || bad "$tool does not start in an empty chroot"
done
# Real work, not only --version: threads, locale and user data bases are what static programs miss.
chroot "$root" /tabft-prep pack --target target -o /iris.tbf /iris.csv || bad 'tabft-prep does not pack in an empty chroot'
chroot "$root" /tabft-prep cat /iris.tbf >"$root/again.csv" || bad 'tabft-prep does not cat in an empty chroot'
[ "$(wc -l <"$root/again.csv")" = 151 ] || bad 'tabft-prep in an empty chroot loses rows'
chroot "$root" /tabft-model verify /tiny-v2_6-classifier.safetensors >/dev/null || bad 'tabft-model does not verify in an empty chroot'
chroot "$root" /tabft-eval predict --model /tiny-v2_6-classifier.safetensors --train /iris.tbf --test /iris.tbf \
    --estimators 2 -o /pred.tbf || bad 'tabft-eval does not predict in an empty chroot'
exit "$failed"
