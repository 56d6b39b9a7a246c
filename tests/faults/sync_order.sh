#!/bin/sh
# R9: a power cut loses, or garbles, whatever was written and not yet synced, and may keep a rename that came after it. So for
# each file that gets a final name: every byte was written before its last fsync, that came before the rename, and the folder
# is synced after it; what was there before is never removed nor cut first. Whatever moment the power goes at, the name then
# stands for nothing, the old file, or all of the new one. Read off the calls that each writer and a training run make.
set -eu
# shellcheck source=tests/faults/writers.sh
. "${top_srcdir:?}/tests/faults/writers.sh"
need_strace
calls=openat,write,pwrite64,writev,fsync,fdatasync,close,rename,renameat,renameat2,link,linkat,unlink,unlinkat,truncate,ftruncate,creat,open

# in_order WHAT: ./trace (strace -f) keeps the rules. Descriptors are a process's; threads share them.
in_order() {
    awk -v what="$1" '
        function bad(text) { print what ": " text ": " $0; failed = 1 }
        function name_of(line, n,   part) { split(line, part, "\""); return part[2 * n] }
        function descriptor(line,   rest) { rest = line; sub(/^[a-z0-9]*\(/, "", rest); return rest + 0 }
        { process = $1; sub(/^[0-9]+ +/, "") }
        # A call during which another thread made one comes in two lines.
        / <unfinished \.\.\.>$/ { sub(/ <unfinished \.\.\.>$/, ""); begun[process] = $0; next }
        /^<\.\.\. [a-z0-9]+ resumed>/ { sub(/^<\.\.\. [a-z0-9]+ resumed>/, ""); $0 = begun[process] $0 }
        / = -1 / { next }
        /^open\("\/proc\/self\/[a-z]+", O_RDONLY/ { next } # the sanitizers
        /^(open|creat)\(/ { bad("a file is opened by another way than openat") }
        /^openat\(/ {
            fd = $NF + 0; name = name_of($0, 1)
            if ($0 ~ /O_DIRECTORY/) folder[fd] = 1; else delete folder[fd]
            delete dirty[fd]; delete file[fd]
            if ($0 ~ /O_(WRONLY|RDWR)/ && name !~ /^\/(dev|proc)\//) {
                if ($0 ~ /O_TRUNC/) bad("a file is cut before the new one is there")
                if ($0 ~ /O_TMPFILE/) next
                file[fd] = name; state[name] = "open"; if ($0 ~ /O_EXCL/) made[name] = 1
            }
        }
        /^(write|pwrite64|writev)\(/ { fd = descriptor($0); if (fd in file) state[file[fd]] = "written" }
        /^f?truncate\(/ { fd = descriptor($0); if (fd in file) state[file[fd]] = "written" }
        /^f(data)?sync\(/ {
            fd = descriptor($0)
            if (fd in folder) { due = 0; synced++ } else if (fd in file) state[file[fd]] = "synced"
        }
        /^close\(/ { fd = descriptor($0); delete file[fd]; delete folder[fd] }
        /^(rename|renameat|renameat2|link|linkat)\(/ {
            from = name_of($0, 1); to = name_of($0, 2); published[to]++
            # What carries another name already (PATH.partial of a log) is one of ours too.
            if (!(from in state)) bad("something is renamed that was not written here")
            else if (state[from] != "synced") bad("renamed while " state[from])
            if (to ~ /\.tmp$/) bad("renamed to a temporary name")
            state[to] = state[from]; due = 1
        }
        /^unlink(at)?\(/ {
            name = name_of($0, 1)
            if (!(name in made) && !(name in state) && ENVIRON["MAY_REMOVE"] == "") bad("something is removed that is not ours")
        }
        END {
            if (due) { print what ": the last rename is not followed by an fsync of the folder"; failed = 1 }
            for (to in published) n++
            if (n == 0) { print what ": nothing was published"; failed = 1 }
            exit failed
        }' trace || fail "$1"
}
look() { # COMMAND...: under strace
    strace -f -qq -s 4096 -o trace -e "trace=$calls" "$@"
}

for writer in $writers split; do
    write_by "$writer" out strace -f -qq -s 4096 -o trace -e "trace=$calls" >said 2>&1 || fail "$writer does not work"
    in_order "$writer"
    rm -f out out.first
done
# Over an older file.
for command in 'tabft-prep pack --quiet --force --target y -o over table.csv' \
    'tabft-prep merge --quiet --force -o over part0.tbf part1.tbf' \
    "tabft-model convert --force $top_srcdir/tests/data/ckpt/odd.ckpt over"; do
    : >over
    # Words on purpose.
    # shellcheck disable=SC2086
    look $command >said 2>&1 || fail "$command"
    in_order "$command"
done
# A training run: weights, their checksum, the log and the record, in a new folder and over an older run, which goes first.
network=$top_srcdir/tests/data/reference/v2_6_cls.model.safetensors
for turn in new over; do
    [ "$turn" = new ] || MAY_REMOVE=yes
    export MAY_REMOVE="${MAY_REMOVE-}"
    look tabft-train --model "$network" --data train.tbf --out run --epochs 1 --estimators 1 --threads 1 --lr 1e-3 \
        --validation-split 0 --force >said 2>&1 || fail "training, $turn"
    in_order "training, $turn"
    # run.json says that the run is whole: it is the last to get its name.
    [ "$(grep -E '^[0-9]* *(rename|link)' trace | tail -n 1 | grep -c '"run.json"')" = 1 ] || fail "training, $turn: run.json is not the last"
done
