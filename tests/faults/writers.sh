# shellcheck shell=sh
# What the tests of faults share; sourced. Works in a folder of its own, in which table.csv and config.json lie.
# writers: the programs under test. Each writes one file; all go through lib/file. split writes out.first before it; part is one
# part of a prediction, join puts two of them together.
# writers is used by what sources this.
# shellcheck disable=SC2034
writers='sample pack merge cat init convert predict join report'
sample=${top_builddir:?}/tests/faults/tbf_sample
work=$(mktemp -d) && work=$(cd -- "$work" && pwd -P)
trap 'rm -rf -- "$work"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
cd -- "$work" || exit 1
printf 'a,b,y\n1,2.5,u\n3,,v\n2,1e-3,u\n' >table.csv
echo '{"emsize": 32, "nlayers": 1, "nhead": 2, "features_per_group": 3, "num_thinking_rows": 4, "max_num_classes": 10}' >config.json

cp -- "${top_srcdir:?}/tests/data/ckpt/odd.ckpt" . # under a name without a folder, as strace takes paths by their text
head -n 31 "${top_srcdir:?}/share/examples/parity_train.csv" >train.csv
tabft-prep pack --quiet --target y -o train.tbf train.csv || exit 1
model=$top_srcdir/share/models/tiny-v2_6-classifier.safetensors
part=0
while [ "$part" -lt 2 ]; do
    tabft-prep pack --quiet --target y --task classification --part "$part/2" -o "part$part.tbf" table.csv || exit 1
    tabft-eval predict --threads 1 --estimators 1 --model "$model" --train train.tbf --test train.tbf --part "$part/2" \
        -o "predicted$part.tbf" || exit 1
    part=$((part + 1))
done

mkdir logged
printf '{"kind":"step","step":%s,"epoch":1,"loss":0.5,"seconds":2.5}\n' 1 2 3 >logged/metrics.jsonl.partial
fail() {
    printf 'FAILED: %s\n' "$*" >&2
    [ ! -s said ] || sed 's/^/  said: /' said >&2
    exit 1
}

# may_trace: faults come through strace, which reaches static programs too.
may_trace() {
    # Leaks at exit are looked for elsewhere: LeakSanitizer does not work under ptrace.
    ASAN_OPTIONS=detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
    export ASAN_OPTIONS
    command -v strace >/dev/null && strace -qq -o /dev/null true 2>/dev/null
}
need_strace() {
    may_trace || { echo 'strace is not installed or may not trace here'; exit 77; }
}

# write_by WRITER OUT [COMMAND...]: runs the writer, as arguments of COMMAND.
write_by() {
    writer=$1 out=$2
    shift 2
    case $writer in
    sample) "$@" "$sample" write "$out" 30 ;;
    pack) "$@" tabft-prep pack --quiet --threads 1 --target y -o "$out" table.csv ;;
    merge) "$@" tabft-prep merge --quiet --threads 1 -o "$out" part0.tbf part1.tbf ;;
    cat) "$@" tabft-prep cat --threads 1 -o "$out" train.tbf ;;
    split) rm -f "$out.first" && "$@" tabft-prep split --quiet --threads 1 --test 0.3 --train-out "$out.first" --test-out "$out" train.tbf ;;
    convert) "$@" tabft-model convert odd.ckpt "$out" ;;
    init) "$@" tabft-model init --arch tabpfn_v2_6 --config config.json --seed 1 "$out" ;;
    predict) "$@" tabft-eval predict --threads 1 --estimators 1 --model "$model" --train train.tbf --test train.tbf -o "$out" ;;
    part)
        "$@" tabft-eval predict --threads 1 --estimators 1 --model "$model" --train train.tbf --test train.tbf --part 1/2 -o "$out"
        ;;
    join) "$@" tabft-eval merge --threads 1 -o "$out" predicted0.tbf predicted1.tbf ;;
    report) "$@" tabft-eval report -o "$out" logged ;;
    esac
}

# stop_at CALL WHEN COMMAND...: starts the command in the background, under strace ($tracer), and comes back when it has stopped
# itself at that call, or has ended without. go_on: lets it go on.
stop_at() {
    call=$1 when=$2
    shift 2
    rm -f trace
    strace -qq -o trace -e "trace=$call" -e "inject=$call:signal=SIGSTOP:when=$when" "$@" >said 2>&1 &
    tracer=$!
    until grep -q 'stopped by SIGSTOP' trace 2>/dev/null; do
        kill -0 "$tracer" 2>/dev/null || return 0
        sleep 0.02
    done
}
go_on() {
    stopped=$(cat "/proc/$tracer/task/$tracer/children" 2>/dev/null) || stopped=
    # strace's one child.
    # shellcheck disable=SC2086
    [ -z "$stopped" ] || kill -CONT $stopped 2>/dev/null || :
    status=0
    wait "$tracer" || status=$?
}

# status_of COMMAND...: its exit status in $status, what it printed in ./said.
status_of() {
    status=0
    "$@" >said 2>&1 || status=$?
}

# whole WRITER FILE: the file is complete, by its own reader.
whole() {
    case $1 in
    sample) "$sample" verify "$2" ;;
    pack | merge | predict | join) tabft-prep verify "$2" >/dev/null ;;
    part) cmp -s predicted1.tbf "$2" ;;
    cat) tabft-prep cat train.tbf | cmp -s - "$2" ;;
    split) tabft-prep verify "$2" >/dev/null && tabft-prep verify "$2.first" >/dev/null ;;
    convert) tabft-model diff "$top_srcdir/tests/data/ckpt/odd.safetensors" "$2" >/dev/null ;;
    init) tabft-model verify "$2" >/dev/null ;;
    report) tabft-eval report -o - logged | cmp -s - "$2" ;;
    esac
}

# temporaries FOLDER: how many files with a writer's temporary name lie there.
temporaries() {
    find "$1" -maxdepth 1 -name '.*.tmp' | wc -l
}

# calls_of WRITER: the system calls on files that it makes, "NAME COUNT" a line, without those of its start.
calls_of() {
    rm -f probe
    write_by "$1" probe strace -qq -o trace -e trace=%file,%desc >said 2>&1 || fail "$1 does not work under strace"
    rm -f probe
    sed -n 's/^\([a-z_0-9]*\)(.*/\1/p' trace | grep -vE '^(execve|readlink|mmap)$' | sort | uniq -c | awk '{ print $2, $1 }'
}
