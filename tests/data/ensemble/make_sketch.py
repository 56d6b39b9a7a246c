"""Records what TabPFN makes of tables that are large enough for a random sketch in place of an SVD, for
tests/unit/ensemble/test_sketch.c, which makes the tables again from the same whole numbers.

Needs `pip install tabpfn==9.2.0`. Writes sketch.safetensors: <shape>.x [rows shown, columns], the network's input of the
first rows of the context and of the rows to predict, and <shape>.exact, the same where nothing is random (as if by
torch.linalg.svd), which says how far off the sketch is.
"""
import os
import sys
import warnings

os.environ["TABPFN_DISABLE_TELEMETRY"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
warnings.simplefilter("ignore")
import numpy as np
import torch
from safetensors.numpy import save_file
from tabpfn import TabPFNClassifier
from tabpfn.architectures import tabpfn_v2_6
from tabpfn.constants import ModelVersion
from tabpfn.preprocessing import PreprocessorConfig

CHECKPOINT = sys.argv[1]
SHOWN, QUERY, FACTORS, SEED = 6, 6, 12, 5
SHAPES = {"tall": (2600, 400), "wide": (400, 2600)}


class InputSeen(Exception):
    pass


def uniform(n, salt):
    """Numbers in [-0.5, 0.5) from a counter."""
    k = np.arange(n, dtype=np.uint64) + np.uint64(salt << 32)
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53)):
        k = (k ^ k >> np.uint64(shift)) * np.uint64(factor)
    return (k >> np.uint64(40)).astype(np.float64) / 2**24 - 0.5


def table(rows, columns):
    """A few factors, ever weaker, and noise; a gap here and there."""
    x = uniform(rows * columns, 3).reshape(rows, columns) / 8
    a, b = uniform(rows * FACTORS, 1).reshape(rows, FACTORS), uniform(FACTORS * columns, 2).reshape(FACTORS, columns)
    for f in range(FACTORS):
        x = x + a[:, f:f + 1] * b[f] * 0.75**f
    x[uniform(rows * columns, 4).reshape(rows, columns) > 0.49] = np.nan
    return x


def inputs(X, n):
    calls, forward = [], tabpfn_v2_6.TabPFNV2p6.forward

    def spy(self, x, y, *rest, **more):
        calls.append((x["main"] if isinstance(x, dict) else x).detach().float()[:, 0].numpy().copy())
        raise InputSeen

    tabpfn_v2_6.TabPFNV2p6.forward = spy
    transform = PreprocessorConfig("squashing_scaler_default", categorical_name="numeric", max_features_per_estimator=9000,
                                   global_transformer_name="svd_quarter_components")
    clf = TabPFNClassifier.create_default_for_version(
        ModelVersion.V2_6, model_path=CHECKPOINT, n_estimators=1, device="cpu", random_state=SEED,
        ignore_pretraining_limits=True, memory_saving_mode=False, fit_mode="fit_preprocessors",
        inference_precision=torch.float32,
        inference_config={"PREPROCESS_TRANSFORMS": [transform], "ENABLE_GPU_PREPROCESSING": True,
                          "FEATURE_SHIFT_METHOD": None, "OUTLIER_REMOVAL_STD": None})
    try:
        clf.fit(X[:n], np.arange(n) % 2)
        clf.predict_proba(X[n:])
    except InputSeen:
        pass
    finally:
        tabpfn_v2_6.TabPFNV2p6.forward = forward
    return np.concatenate([calls[0][:SHOWN], calls[0][n:]])


out = {}
for name, (n, columns) in SHAPES.items():
    X = table(n + QUERY, columns)
    out[f"{name}.x"] = np.ascontiguousarray(inputs(X, n)[:, columns:])
    lowrank = torch.svd_lowrank
    torch.svd_lowrank = lambda x, **_: (lambda u, s, vh: (u, s, vh.T))(*torch.linalg.svd(x, full_matrices=False))
    out[f"{name}.exact"] = np.ascontiguousarray(inputs(X, n)[:, columns:])
    torch.svd_lowrank = lowrank
    print(name, out[f"{name}.x"].shape, np.abs(out[f"{name}.x"] - out[f"{name}.exact"])[:, :-1].max(0))
save_file(out, "sketch.safetensors")
