#!/bin/sh
# With a Python that has TabPFN: its checkpoints (.ckpt) become ours, are fine-tuned here, and what comes out is loaded
# there and predicts what we predict, for every architecture and task. The preprocessing is one whose every bit is
# defined (no SVD, no fingerprints).
set -eu
: "${TABFT_DATA:?}"
[ -n "${TABFT_PYTHON-}" ] || { echo 'TABFT_PYTHON names no Python with TabPFN'; exit 77; }
export TABPFN_DISABLE_TELEMETRY=1 HF_HUB_OFFLINE=1
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
cd -- "$work"
cat >make.py <<'EOF'
# Tables, and the reference networks with another inference_config as TabPFN's own .ckpt files.
import dataclasses, pathlib, sys, numpy as np, torch
from tabpfn.checkpoint import Checkpoint
from tabpfn.inference_config import InferenceConfig
from tabpfn.preprocessing import PreprocessorConfig
data = pathlib.Path(sys.argv[1]) / "reference"
rng = np.random.default_rng(4)
x = rng.standard_normal((90, 5)); x[rng.random(x.shape) < 0.05] = np.nan
score = np.nan_to_num(x[:, 0] - x[:, 1])
targets = {"cls": np.digitize(score, [-0.7, 0.7]), "reg": np.exp(score)}
for task, y in targets.items():
    for part, rows in ("train", slice(0, 70)), ("test", slice(70, 90)):
        lines = ["a,b,c,d,e,y"] + [",".join(["" if v != v else repr(float(v)) for v in r] + [repr(t.item())])
                                   for r, t in zip(x[rows], y[rows])]
        pathlib.Path(f"{part}_{task}.csv").write_text("\n".join(lines) + "\n")
steps = [PreprocessorConfig("none", categorical_name="numeric", max_features_per_estimator=500),
         PreprocessorConfig("quantile_uni", categorical_name="numeric", max_features_per_estimator=500)]
config = InferenceConfig(PREPROCESS_TRANSFORMS=steps, FINGERPRINT_FEATURE=False, POLYNOMIAL_FEATURES="no",
                         OUTLIER_REMOVAL_STD=None, FEATURE_SHIFT_METHOD="shuffle", CLASS_SHIFT_METHOD="shuffle")
for name in sys.argv[2:]:
    for task in targets:
        file = data / f"{name}_{task}.model.safetensors"
        if not file.exists(): file = data / f"{name}.model.safetensors"
        torch.save(Checkpoint(file).load() | {"inference_config": dataclasses.asdict(config)}, f"{name}_{task}.ckpt")
EOF
cat >check.py <<'EOF'
# In float32: left alone, TabPFN computes in 16 bits on processors that can.
import csv, sys, numpy as np, pandas as pd, torch
from tabpfn import TabPFNClassifier, TabPFNRegressor
from tabpfn.constants import ModelVersion
failed = 0
for task, kind in ("cls", TabPFNClassifier), ("reg", TabPFNRegressor):
    train, test = pd.read_csv(f"train_{task}.csv"), pd.read_csv(f"test_{task}.csv")
    for name in sys.argv[1:]:
        model = kind.create_default_for_version(
            ModelVersion(name.replace("_", ".")), model_path=f"{name}_{task}/model.safetensors", device="cpu",
            n_estimators=3, random_state=5, ignore_pretraining_limits=True, inference_precision=torch.float32)
        model.fit(train.drop(columns="y"), train.y)
        rows = list(csv.DictReader(open(f"{name}_{task}.csv")))
        if task == "cls":
            theirs = model.predict_proba(test.drop(columns="y"))
            ours = np.array([[float(r[str(c)]) for c in model.classes_] for r in rows])
        else:
            theirs = model.predict(test.drop(columns="y")) / train.y.std()
            ours = np.array([float(r["mean"]) for r in rows]) / train.y.std()
        worst = np.abs(theirs - ours).max()
        print(f"{name}_{task}: within {worst:.1e}")
        failed |= ours.shape != theirs.shape or not worst <= 1e-5
sys.exit(int(failed))
EOF
set -- v2 v2_5 v2_6 v3 v3_5
"$TABFT_PYTHON" make.py "$TABFT_DATA" "$@"
for task in cls reg; do
    kind=classification
    [ "$task" = cls ] || kind=regression
    tabft-prep pack --quiet --target y --task "$kind" -o "train_$task.tbf" "train_$task.csv"
    tabft-prep pack --quiet --schema "train_$task.tbf" -o "test_$task.tbf" "test_$task.csv"
    for name; do
        tabft-model convert "${name}_$task.ckpt" "${name}_$task.safetensors"
        tabft-train --model "${name}_$task.safetensors" --data "train_$task.tbf" --out "${name}_$task" --epochs 2 \
            --lr 1e-3 --estimators 2 --seed 3 --threads 1 --validation-split 0 2>>said
        tabft-model diff "${name}_$task.safetensors" "${name}_$task/model.safetensors" >differs &&
            { echo "${name}_$task: fine-tuning changed nothing"; exit 1; }
        tabft-eval predict --model "${name}_$task/model.safetensors" --train "train_$task.tbf" --test "test_$task.tbf" \
            --estimators 3 --seed 5 -o "${name}_$task.tbf"
        tabft-prep cat "${name}_$task.tbf" >"${name}_$task.csv"
    done
done
"$TABFT_PYTHON" check.py "$@"
