#!/bin/sh
# With a Python that has TabPFN: what we write loads in safetensors and in TabPFN, with TabPFN's names, shapes and
# metadata;
# TabPFN's own file of the same content has the same bytes.
set -eu
: "${top_srcdir:?}"
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
