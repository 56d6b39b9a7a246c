#!/bin/sh
# With a Python that has TabPFN: what we write loads in safetensors and in TabPFN, with TabPFN's names, shapes and
# metadata; TabPFN's own file of the same content has the same bytes; and what we fine-tuned predicts there what it
# predicts here, for classifiers and regressors of every architecture.
set -eu
: "${top_srcdir:?}" "${TABFT_DATA:?}"
[ -n "${TABFT_PYTHON-}" ] || { echo 'TABFT_PYTHON names no Python with TabPFN'; exit 77; }
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
tabft-model init --arch tabpfn_v2_6 --seed 5 --config - "$work/small.safetensors" <<'EOF'
{"emsize": 32, "nlayers": 3, "nhead": 2, "features_per_group": 3, "num_thinking_rows": 4, "max_num_classes": 10}
EOF
export TABPFN_DISABLE_TELEMETRY=1 HF_HUB_OFFLINE=1
"$TABFT_PYTHON" - "$work/small.safetensors" "$top_srcdir/share/models/tiny-v2_6-classifier.safetensors" "$work" <<'EOF'
import pathlib, sys, numpy as np, torch
from safetensors.torch import load_file
from tabpfn import TabPFNClassifier
from tabpfn.architectures import tabpfn_v2_6
from tabpfn.checkpoint import Checkpoint, save_as_safetensors
from tabpfn.constants import ModelVersion
small, tiny, work = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
for path in small, tiny:
    tensors = load_file(path)
    checkpoint = Checkpoint(path).load()
    assert checkpoint["architecture_name"] == "tabpfn_v2_6", checkpoint["architecture_name"]
    config, unknown = tabpfn_v2_6.parse_config(checkpoint["config"])
    assert not unknown, unknown
    network = tabpfn_v2_6.get_architecture(config)
    network.load_state_dict(checkpoint["state_dict"], strict=True)
    expected = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    assert expected == {name: tuple(value.shape) for name, value in tensors.items()}
    assert all(torch.isfinite(t).all() for t in tensors.values())
    # The order of metadata in a file of the library is arbitrary, so one of few attempts has ours.
    ours = pathlib.Path(path).read_bytes()
    for attempt in range(64):
        save_as_safetensors(checkpoint, work / "theirs.safetensors")
        if (work / "theirs.safetensors").read_bytes() == ours: break
    else: sys.exit(f"{path}: TabPFN writes other bytes for it")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 4)); y = (x[:, 0] > 0).astype(int)
    options = dict(model_path=path, device="cpu", n_estimators=2)
    model = TabPFNClassifier.create_default_for_version(ModelVersion.V2_6, **options)
    assert np.isfinite(model.fit(x[:40], y[:40]).predict_proba(x[40:])).all()
EOF

# Fine-tuned here, loaded there, each with all that its version's presets do to a table (python_runs.sh: what is left
# without them, from .ckpt files).
cd -- "$work"
for task in cls reg; do
    for part in train test; do
        cp "$TABFT_DATA/reference/predict_numeric_v2_6_$task.$part.csv" "$task-$part.csv"
    done
done
tabft-prep pack --quiet --target y --task classification -o cls-train.tbf cls-train.csv
tabft-prep pack --quiet --target y --task regression -o reg-train.tbf reg-train.csv
for task in cls reg; do tabft-prep pack --quiet --schema "$task-train.tbf" -o "$task-test.tbf" "$task-test.csv"; done
# v2's presets hash numbers whose last bits are the decomposition's own; these models of it go without that hash.
"$TABFT_PYTHON" - "$TABFT_DATA/reference" . <<'EOF'
import dataclasses, sys
from tabpfn.checkpoint import Checkpoint, save_as_safetensors
from tabpfn.constants import ModelVersion
from tabpfn.inference_config import InferenceConfig
for task, name in ("cls", "multiclass"), ("reg", "regression"):
    checkpoint = Checkpoint(f"{sys.argv[1]}/v2_{task}.model.safetensors").load()
    config = InferenceConfig.get_default(name, ModelVersion.V2)
    checkpoint["inference_config"] = {**dataclasses.asdict(config), "FINGERPRINT_FEATURE": False}
    save_as_safetensors(checkpoint, f"{sys.argv[2]}/v2_{task}.model.safetensors")
EOF
for name in v2_5 v2_5_mlp v2_6 v3; do cp "$TABFT_DATA/reference/$name"_*.model.safetensors .; done
cp "$TABFT_DATA/reference/v3_5.model.safetensors" .
# tune NAME MODEL TASK: fine-tunes a model and predicts with it.
tune() {
    tabft-train --model "$2.model.safetensors" --data "$3-train.tbf" --out "run-$1" --epochs 2 \
        --lr 1e-3 --estimators 2 --seed 4 --validation-split 0 --threads 1 >said 2>&1 || { cat said; return 1; }
    tabft-eval predict --model "run-$1/model.safetensors" --train "$3-train.tbf" --test "$3-test.tbf" --estimators 4 \
        --seed 3 --threads 1 -o "pred-$1.tbf" 2>said || { cat said; return 1; }
    tabft-prep cat "pred-$1.tbf" >"pred-$1.csv"
}
for name in v2 v2_5 v2_5_mlp v2_6 v3; do
    for task in cls reg; do tune "${name}_$task" "${name}_$task" "$task"; done
done
for task in cls reg; do tune "v3_5_$task" v3_5 "$task"; done
"$TABFT_PYTHON" - <<'EOF'
import sys, warnings
warnings.simplefilter("ignore")
import numpy as np, pandas as pd, torch
from tabpfn import TabPFNClassifier, TabPFNRegressor
from tabpfn.constants import ModelVersion
failed = 0
for name in "v2", "v2_5", "v2_5_mlp", "v2_6", "v3", "v3_5":
    version = getattr(ModelVersion, name.upper().removesuffix("_MLP"))
    for task, maker in ("cls", TabPFNClassifier), ("reg", TabPFNRegressor):
        train, test = (pd.read_csv(f"{task}-{part}.csv", float_precision="round_trip") for part in ("train", "test"))
        options = dict(model_path=f"run-{name}_{task}/model.safetensors", device="cpu", n_estimators=4, random_state=3,
                       inference_precision=torch.float32)  # by itself it takes bfloat16 where the processor has it
        model = maker.create_default_for_version(version, **options)
        model.fit(train.drop(columns="y"), train["y"])
        x = test.drop(columns="y")
        theirs = model.predict_proba(x) if task == "cls" else model.predict(x)
        table = pd.read_csv(f"pred-{name}_{task}.csv", float_precision="round_trip")
        ours = table[list(map(str, model.classes_))].to_numpy() if task == "cls" else table["mean"].to_numpy()
        scale = 1.0 if task == "cls" else float(np.std(train["y"]))
        worst = float(np.abs(ours - theirs).max()) / scale
        print(f"{name} {task}: largest difference {worst:.2g}, spread {float(np.std(ours)):.2g}")
        if not worst <= 1e-5: failed = 1
sys.exit(failed)
EOF
