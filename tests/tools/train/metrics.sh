# Sourced by tests that watch or compare runs of tabft-train; they have a function fail.
# shellcheck shell=sh

# untimed FILE...: lines of metrics without times and memory.
untimed() { sed 's/"seconds":[^,}]*,\{0,1\}//; s/"phases":{[^}]*},//; s/"peak_bytes":[^,}]*//' -- "$@"; }
# course RUN: losses and norms of all steps, scores of all validations.
course() { untimed "$1/metrics.jsonl"; }
# waits_for FILE LINES: until the run in the background has written so many.
waits_for() {
    tries=0
    until [ "$(cat -- "$1" 2>/dev/null | wc -l)" -ge "$2" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 6000 ] || fail "no line $2 in $1"
        sleep 0.05
    done
}
# same_run RUN OTHER [WHAT]: weights, losses and scores have the same bits.
same_run() {
    cmp -- "$1/model.safetensors" "$2/model.safetensors" || fail "${3-$2}: other weights than $1"
    course "$1" >want
    course "$2" >got
    diff want got || fail "${3-$2}: other losses than $1"
}
