#!/bin/sh
# R10: an error of any system call that matters ends a writer with status 4 and one line with path and cause, and leaves
# nothing, not under the final name nor under a temporary one. What can be repeated or done otherwise does not show.
set -eu
# shellcheck source=tests/faults/writers.sh
. "${top_srcdir:?}/tests/faults/writers.sh"
need_strace

# run WRITER CALL WHEN FAULT: the writer with that fault in its system calls of this name (WHEN as strace has it).
run() {
    rm -f out
    status_of write_by "$1" out strace -qq -o trace -e trace=%file,%desc -e "inject=$2:$4:when=$3"
}

# fails WRITER CALL WHEN ERRNO TEXT: status 4, the text, no file; fsync is never tried again.
fails() {
    run "$1" "$2" "$3" "error=$4"
    [ "$status" = 4 ] || fail "$1, $2 $3 $4: status $status"
    grep -qF -- "out: " said || fail "$1, $2 $3 $4: the path is not in the message"
    grep -qF -- "$5" said || fail "$1, $2 $3 $4: no '$5' in the message"
    [ "$(wc -l <said)" = 1 ] || fail "$1, $2 $3 $4: not one line"
    [ ! -e out ] || fail "$1, $2 $3 $4: a file is left"
    [ "$(temporaries .)" = 0 ] || fail "$1, $2 $3 $4: a temporary file is left"
    [ "$2" != fsync ] || ! grep -A99 INJECTED trace | sed 1d | grep -q '^fsync([03-9]' || fail "$1, $2 $3 $4: fsync was tried again"
}

# hidden WRITER CALL WHEN FAULT: the same file as without it.
hidden() {
    run "$1" "$2" "$3" "$4"
    [ "$status" = 0 ] || fail "$1, $2 $3 $4: status $status"
    grep -q INJECTED trace || fail "$1, $2 $3 $4: nothing was injected"
    cmp out "right.$1" || fail "$1, $2 $3 $4: another file"
    [ "$(temporaries .)" = 0 ] || fail "$1, $2 $3 $4: a temporary file is left"
}

for writer in $writers; do
    calls_of "$writer" >calls
    write_by "$writer" "right.$writer" >/dev/null 2>&1 || fail "$writer does not work"
    # The writes that are the file's: all but those to stdout and stderr.
    run "$writer" write 1 delay_enter=0
    writes=$(grep -c '^write([3-9]' trace)
    for n in 1 "$writes"; do
        fails "$writer" write "$n" ENOSPC 'No space left on device; free space'
        fails "$writer" write "$n" EDQUOT 'quota'
        fails "$writer" write "$n" EIO 'Input/output error'
        fails "$writer" write "$n" EFBIG 'file size limit'
        # A write that says it took less than it was given, and took nothing: the length is checked.
        run "$writer" write "$n" retval=1
        { [ "$status" = 4 ] && [ ! -e out ]; } || fail "$writer: a write that went nowhere is not seen"
    done
    hidden "$writer" write 1..3 error=EINTR
    fails "$writer" fsync 1 EIO 'cannot write to storage: Input/output error'
    fails "$writer" fsync 1 EDQUOT 'quota'
    fails "$writer" fsync 1 ENOSPC 'No space left on device'
    fails "$writer" fsync 2 EIO 'cannot write its folder to storage: Input/output error'
    hidden "$writer" fsync 2 error=EINVAL
    # The close of the temporary file, by its place in the trace.
    closing=$(sed -n '/O_EXCL/s/.* = //p' trace)
    n=$(grep '^close(' trace | grep -n "^close($closing)" | sed 's/:.*//' | tail -n 1)
    fails "$writer" close "$n" EDQUOT 'cannot close: Disk quota exceeded'
    fails "$writer" close "$n" EIO 'cannot close: Input/output error'
    fails "$writer" renameat2 1 EXDEV 'cannot rename the finished file'
    fails "$writer" renameat2 1 ENOENT 'cannot rename the finished file'
    hidden "$writer" renameat2 1 error=EINVAL # link instead
    hidden "$writer" renameat2 1 error=ENOSYS
    n=$(grep '^openat(' trace | grep -n O_EXCL | sed 's/:.*//')
    fails "$writer" openat "$n" EMFILE 'ulimit -n'
    fails "$writer" openat "$n" ENOSPC 'No space left'
    fails "$writer" openat "$n" EROFS 'Read-only'
    fails "$writer" openat "$((n - 1))" EMFILE 'cannot open its folder'
done

# No renameat2 flags and no links: refused, and told what would do.
rm -f out
status_of write_by sample out strace -qq -o trace -e inject=renameat2:error=EINVAL -e inject=linkat:error=EPERM
{ [ "$status" = 4 ] && [ ! -e out ] && grep -q 'use --force' said; } || fail "without link: status $status"
[ "$(temporaries .)" = 0 ] || fail 'without link: a temporary file is left'

# Reserving space: no space is an error, a file system that cannot reserve is not.
status_of write_by init out strace -qq -o trace -e inject=fallocate:error=ENOSPC
{ [ "$status" = 4 ] && [ ! -e out ] && grep -q 'cannot reserve its space: No space left' said; } || fail "fallocate: status $status"
hidden init fallocate 1 error=EOPNOTSUPP
hidden init fallocate 1 error=EINTR

# A large file goes to storage while it grows, and out of the page cache when it is there, all but its end. What storage says
# then, fsync does not say again; a file system that cannot do it is no error.
echo '{"emsize": 384, "nlayers": 12, "nhead": 4, "features_per_group": 3, "num_thinking_rows": 4, "max_num_classes": 10}' >large.json
large() { # FAULT
    rm -f out
    status_of strace -qq -o trace -e trace=sync_file_range,fadvise64,fsync ${1:+-e "inject=sync_file_range:$1"} \
        tabft-model init --arch tabpfn_v2_6 --config large.json --seed 1 out
}
large ''
mv out right.large
begun=$(($(wc -c <right.large) >> 23))
[ "$begun" -gt 9 ] || fail 'large file: too small for this test'
[ "$(grep -c '^sync_file_range(.*, SYNC_FILE_RANGE_WRITE)' trace)" = "$begun" ] || fail 'large file: not sent as it grows'
awk '/WAIT_AFTER/ { at = $2; waited++ } /DONTNEED/ { if ($2 != at || $2 != (dropped++) * 8388608 ",") exit 1 }
    /^fsync/ { n++ } END { exit !(waited == dropped && dropped > 0 && n >= 2) }' trace || fail 'large file: dropped before it is on storage'
[ "$(grep -c DONTNEED trace)" = "$((begun - 8))" ] || fail 'large file: not all but its end leaves the page cache'
for fault in ENOSPC:1 EDQUOT:2 EIO:1 EIO:10; do # the last: while a stretch is waited for
    large "error=${fault%:*}:when=${fault#*:}"
    grep -q INJECTED trace || fail "large file, $fault: nothing was injected"
    { [ "$status" = 4 ] && [ ! -e out ] && grep -q '^tabft-model: out: cannot write to storage' said; } ||
        fail "large file, $fault: status $status"
    [ "$(temporaries .)" = 0 ] || fail "large file, $fault: a temporary file is left"
done
for fault in EINVAL ESPIPE ENOSYS EPERM EINTR:when=1..3; do
    large "error=$fault"
    { [ "$status" = 0 ] && cmp out right.large; } || fail "large file, $fault shows: status $status"
done
rm -f right.large out

# What is gzipped lies in a scratch file first: no space for it is an error, an interrupted write is not.
gzip -c table.csv >table.csv.gz
rm -f out
for fault in ENOSPC EINTR; do
    status_of strace -qq -o trace -e "inject=pwrite64:error=$fault:when=1" tabft-prep pack --quiet --target y -o out table.csv.gz
    grep -q INJECTED trace || fail "scratch file, $fault: nothing was injected"
    case $fault/$status in
    ENOSPC/4) { [ ! -e out ] && grep -q 'scratch file.*No space left on device' said; } || fail 'scratch file, ENOSPC: no clear end' ;;
    EINTR/0) whole pack out || fail 'scratch file, EINTR: a broken file' ;;
    *) fail "scratch file, $fault: status $status" ;;
    esac
done

# Reading: interrupted reads do not show, errors do.
for how in "list right.sample" "list - right.sample"; do
    # shellcheck disable=SC2086
    set -- $how
    "$sample" list right.sample >listed
    interrupted=
    for call in pread64 read; do
        status_of strace -qq -o trace -P "$PWD/right.sample" -e "inject=$call:error=EINTR:when=1+2" "$sample" list "$2" <right.sample
        { [ "$status" = 0 ] && cmp said listed; } || fail "$how: EINTR from $call shows"
        ! grep -q INJECTED trace || interrupted=$call
    done
    [ -n "$interrupted" ] || fail "$how: nothing was injected"
    status_of strace -qq -o trace -P "$PWD/right.sample" -e "inject=pread64,read:error=EIO:when=2+" "$sample" list "$2" <right.sample
    { [ "$status" = 4 ] && grep -q 'Input/output error' said; } || fail "$how: EIO while reading: status $status"
done

# And so by each tool: an input that cannot be read at any of its reads ends it with status 4 and one line with the input's name,
# and nothing is written; interrupted reads do not show.
for writer in pack merge cat convert predict join; do
    case $writer in
    pack) inputs=table.csv ;;
    merge) inputs='part0.tbf part1.tbf' ;;
    cat) inputs=train.tbf ;;
    convert) inputs=odd.ckpt ;;
    predict) inputs='train.tbf' ;;
    join) inputs='predicted0.tbf predicted1.tbf' ;;
    esac
    for input in $inputs; do
        case $input in /*) path=$input ;; *) path=$PWD/$input ;; esac
        rm -f out
        write_by "$writer" out strace -f -qq -o trace -P "$path" -e trace=pread64,read >said 2>&1 || fail "$writer does not work"
        reads=$(grep -c 'pread64(' trace)
        [ "$reads" -gt 0 ] || fail "$writer does not read $input"
        n=1
        while [ "$n" -le "$reads" ]; do
            rm -f out
            status_of write_by "$writer" out strace -f -qq -o trace -P "$path" -e trace=pread64,read -e "inject=pread64:error=EIO:when=$n"
            # Where only a report wanted to name a line, the file is the same.
            if [ "$status" = 0 ] && cmp -s out "right.$writer"; then
                n=$((n + 1))
                continue
            fi
            { [ "$status" = 4 ] && grep -qF "${input##*/}: " said && grep -q 'Input/output error' said && [ "$(wc -l <said)" = 1 ]; } ||
                fail "$writer, EIO at read $n of $input: status $status"
            { [ ! -e out ] && [ "$(temporaries .)" = 0 ]; } || fail "$writer, EIO at read $n of $input: a file is left"
            n=$((n + 1 + n / 6))
        done
        rm -f out
        status_of write_by "$writer" out strace -f -qq -o trace -P "$path" -e trace=pread64,read -e inject=pread64:error=EINTR:when=1+2
        { [ "$status" = 0 ] && grep -q INJECTED trace && cmp out "right.$writer"; } || fail "$writer: EINTR from reading $input shows"
    done
done
