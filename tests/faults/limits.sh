#!/bin/sh
# R13: limits of file size, open files and memory end a writer with status 4 and one line, never by a signal, and nothing is left.
set -eu
# shellcheck source=tests/faults/writers.sh
. "${top_srcdir:?}/tests/faults/writers.sh"

# limited WRITER LETTER VALUE: runs under `ulimit -LETTER VALUE`.
limited() {
    writer=$1 letter=$2 value=$3
    # The limit holds for this subshell alone.
    (
        # dash and bash have all three, POSIX only -f.
        # shellcheck disable=SC3045
        ulimit "-$letter" "$value"
        write_by "$writer" out
    )
}

# ends_well WHAT: status 4 with one line of ours.
ends_well() {
    [ "$status" = 4 ] || fail "$1: status $status"
    [ "$(wc -l <said)" = 1 ] || fail "$1: not one line"
    { [ ! -e out ] && [ "$(temporaries .)" = 0 ]; } || fail "$1: a file is left"
}

for writer in $writers; do
    write_by "$writer" right >/dev/null 2>&1
    blocks=$(($(wc -c <right) / 512))
    rm -f right
    for value in 1 $((blocks / 2)) "$blocks"; do
        [ "$value" -gt 0 ] || continue
        # What the message is written to counts as well: it goes to a pipe.
        status=0
        limited "$writer" f "$value" 2>&1 >/dev/null | cat >said
        { [ ! -e out ] && [ "$(temporaries .)" = 0 ]; } || fail "$writer, -f $value: a file is left"
        grep -q 'File too large; the file size limit' said || fail "$writer, -f $value: the limit is not named"
        status_of limited "$writer" f "$value"
        ends_well "$writer, -f $value"
    done
    # The loader of a program that is not static (with sanitizers, say) meets these limits first, in its own way.
    if ! grep -q 'libc\.so' "$sample"; then
        status_of limited "$writer" n 3
        ends_well "$writer, -n 3"
        grep -q 'ulimit -n' said || fail "$writer, -n 3: the limit is not named"
        # The program itself starts, its buffers do not fit.
        refused=0
        for value in 3000 4000 6000 8000 12000 16000 24000 40000 80000 160000 320000; do
            status_of limited "$writer" v "$value"
            case $status in
            0) whole "$writer" out && rm -f out; break ;;
            4)
                ends_well "$writer, -v $value"
                refused=$((refused + 1))
                ;;
            *)
                # Too little for the program to be started at all.
                { [ "$refused" = 0 ] && [ ! -e out ] && [ "$(temporaries .)" = 0 ]; } || fail "$writer, -v $value: status $status"
                ;;
            esac
        done
    fi
done
