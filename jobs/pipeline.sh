#!/bin/sh
# Submits the whole chain to Slurm, each job waiting for those it needs, and prints "NAME JOBID" lines:
# prep (an array), merge, test-prep, train, eval (with --eval-parts predict, an array, then eval); with --parity also train-1 (the same on one rank) and parity.
set -eu
jobs=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

usage() {
    cat <<'EOF'
Usage: pipeline.sh --model M.safetensors --target COL --out DIR [OPTION]...
                   TRAIN.csv TEST.csv [-- TRAIN-OPTION...]
Packs TRAIN.csv in parts, merges them, packs TEST.csv alike, fine-tunes M,
predicts TEST.csv and scores the predictions; prints "NAME JOBID" a job.

Options:
  --model M       the model to fine-tune
  --target COL    the label's column
  --out DIR       new folder for all files and the jobs' output
  --parts N       tasks of the job array that packs (default: 4)
  --ranks N       ranks that train (default: 4)
  --eval-parts N  predict in a job array of N tasks (default: in one job)
  --estimators E  members of the ensemble, in training and eval (default: 8)
  --seed N        seed of both (default: 0)
  --parity        train on one rank too and compare the two runs
  --help          this text

Partition, account and the like go into sbatch's own variables: SBATCH_PARTITION,
SBATCH_ACCOUNT, SBATCH_TIMELIMIT.
Exit status: 0 all are submitted, 2 wrong use, else sbatch's.
EOF
}

fail() {
    printf 'pipeline.sh: %s\n' "$(printf '%s' "$2" | tr '[:cntrl:]' '?')" >&2
    exit "$1"
}

model='' target='' out='' parts=4 ranks=4 eval_parts='' estimators=8 seed=0 parity=no train='' test=''
while [ $# -gt 0 ]; do
    case $1 in
    --help) usage; exit 0 ;;
    --parity) parity=yes; shift; continue ;;
    --) shift; break ;;
    --model | --target | --out | --parts | --ranks | --eval-parts | --estimators | --seed)
        [ $# -ge 2 ] || fail 2 "option '$1' needs a value; see pipeline.sh --help"
        case $1 in
        --model) model=$2 ;;
        --target) target=$2 ;;
        --out) out=$2 ;;
        --parts) parts=$2 ;;
        --ranks) ranks=$2 ;;
        --eval-parts) eval_parts=${2:-none} ;;
        --estimators) estimators=$2 ;;
        --seed) seed=$2 ;;
        esac
        shift 2
        continue
        ;;
    -*) fail 2 "unrecognized option '$1'; see pipeline.sh --help" ;;
    esac
    if [ -z "$train" ]; then
        train=$1
    elif [ -z "$test" ]; then
        test=$1
    else
        fail 2 "'$1': only two tables are taken; options of tabft-train go after --"
    fi
    shift
done
case $seed in
'' | *[!0-9]*) fail 2 "--seed '$seed': not a whole number" ;;
esac
for number in "$parts" "$ranks" "$estimators" "${eval_parts:-1}"; do
    case $number in
    '' | *[!0-9]* | 0*) fail 2 "'$number': not a whole number of 1 or more" ;;
    esac
done
if [ -z "$model" ] || [ -z "$target" ] || [ -z "$out" ] || [ -z "$test" ]; then
    fail 2 'needs --model, --target, --out and two tables; see pipeline.sh --help'
fi
mkdir -- "$out" || fail 4 "$out: the folder must be new"
out=$(CDPATH='' cd -- "$out" && pwd)

# submit NAME AFTER SCRIPT [SBATCH-OPTION]... -- ARGUMENT...: prints the line and leaves the job's number in $id. AFTER is
# the numbers of jobs that must end well, with colons between, or nothing; if one fails the job is removed, not left waiting.
submit() {
    name=$1 after=$2 script=$jobs/$3
    shift 3
    if [ -n "$after" ]; then
        set -- --dependency="afterok:$after" --kill-on-invalid-dep=yes "$@"
    fi
    # sbatch takes its options before the script and the script's arguments after it: the script goes where -- is.
    count=$#
    placed=no
    while [ "$count" -gt 0 ]; do
        if [ "$1" = -- ] && [ "$placed" = no ]; then
            set -- "$@" "$script"
            placed=yes
        else
            set -- "$@" "$1"
        fi
        shift
        count=$((count - 1))
    done
    id=$(sbatch --parsable --job-name="tabft-$name" "$@")
    id=${id%%;*} # on a federation: number;cluster
    printf '%s %s\n' "$name" "$id"
}

data=$out/train.tbf
submit prep '' prep-array.sbatch --array="0-$((parts - 1))" --output="$out/prep-%a.out" -- \
    "$out/parts" --target "$target" "$train"
submit merge "$id" merge.sbatch --output="$out/merge.out" -- "$data" "$out/parts" "$parts"
merge=$id
submit test-prep "$merge" prep-array.sbatch --array=0-0 --output="$out/test-prep.out" -- \
    "$out/test" --target "$target" --schema "$data" "$test"
tested=$id
# With the training's settings of the ensemble; what else is set for training goes last.
set -- --estimators "$estimators" --seed "$seed" "$@"
submit train "$merge" train.sbatch --ntasks="$ranks" --output="$out/train.out" -- \
    --model "$model" --data "$data" --out "$out/run" "$@"
trained=$id
test=$out/test/part-0-of-1.tbf
if [ -z "$eval_parts" ]; then
    submit eval "$tested:$trained" eval.sbatch --output="$out/eval.out" -- \
        "$out/run" "$data" "$test" "$out/predictions.tbf" --estimators "$estimators" --seed "$seed"
else
    submit predict "$tested:$trained" predict-array.sbatch --array="0-$((eval_parts - 1))" \
        --output="$out/predict-%a.out" -- "$out/predicted" --model "$out/run/model.safetensors" --train "$data" \
        --test "$test" --estimators "$estimators" --seed "$seed"
    submit eval "$id" predict-merge.sbatch --output="$out/eval.out" -- "$out/predictions.tbf" "$out/predicted"
fi
[ "$parity" = yes ] || exit 0
submit train-1 "$merge" train.sbatch --ntasks=1 --output="$out/train-1.out" -- \
    --model "$model" --data "$data" --out "$out/run-1" "$@"
submit parity "$tested:$trained:$id" parity.sbatch --output="$out/parity.out" -- \
    --tolerance exact --test "$test" "$out/run-1" "$out/run"
