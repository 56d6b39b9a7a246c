"""Records TabPFN's predictions of a table with everything that tables hold, for tests/unit/eval/test_recorded.c.

Needs `pip install tabpfn==9.2.0` and the folder with the small models (<arch>_<task>.model.ckpt):
    make_untidy.py MODELS [NAME...]
With names only those predictions are recorded. Writes predict_untidy_<task>.train.csv and .test.csv, and for each model and inference_config
predict_untidy_<name>.vectors.safetensors: call<i>.x [rows, estimators, columns] and call<i>.y as the network got them,
proba or mean, and in the metadata the model's name and the inference_config, where it is not the version's own. v3.5's
inputs are v3's, so only its predictions are kept, in predict_untidy_v3_5.safetensors.
"""
import functools
import json
import os
import pathlib
import sys
import warnings

os.environ["TABPFN_DISABLE_TELEMETRY"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
warnings.simplefilter("ignore")
import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file, save_file
from tabpfn import TabPFNClassifier, TabPFNRegressor
from tabpfn.architectures import tabpfn_v2, tabpfn_v2_5, tabpfn_v2_6, tabpfn_v3, tabpfn_v3_5
from tabpfn.constants import ModelVersion
from tabpfn.preprocessing import PreprocessorConfig

MODELS = pathlib.Path(sys.argv[1])
N, M, SEED, ESTIMATORS = 130, 40, 11, 4
r = np.random.default_rng(31)
n = N + M
train = np.arange(n) < N


def gaps(values, share):
    return pd.Series(values, dtype=object).where(r.random(n) >= share, None)


towns = np.array([c + str(k) for k in range(14) for c in "aQ^_z"])  # on both sides of the text for a gap
X = pd.DataFrame({
    "tail": gaps(r.standard_cauchy(n), 0.1),
    "plain": r.standard_normal(n).round(3),
    "income": np.exp(r.normal(10, 2, n)).round(2),
    "yes": r.random(n) < 0.4,
    "maybe": gaps(r.random(n) < 0.6, 0.15),
    "three": np.where(train, r.integers(0, 3, n), r.integers(0, 5, n)),  # values that only the test has
    "ten": gaps(r.integers(0, 10, n), 0.05),
    "colour": gaps(np.where(train, r.choice(["red", "green", "Blue"], n), r.choice(["red", "violet", "Blue"], n)), 0.1),
    "town": gaps(r.choice(towns, n), 0.1),  # more than 30 texts, with gaps
    "street": r.choice(towns, n),  # and without
    "same": np.where(train, 5.0, r.standard_normal(n)),  # constant, and then not
    "same_text": np.where(train, "here", r.choice(["here", "there"], n)),
    "empty": pd.Series(np.where(train, None, r.standard_normal(n)), dtype=object),
    "there": pd.Series(np.where(r.random(n) < 0.3, None, 7), dtype=object),  # one value, or none
    "large": r.integers(0, 10**7, n),
    "ties": np.where(r.random(n) < 0.85, 1.0, r.standard_normal(n)),  # quartiles fall together
})
score = X.plain + (X.colour == "red") + 2 * X.yes - np.log(X.income) / 4 + r.normal(0, 0.3, n)
X.loc[4] = X.loc[3]  # equal rows
X.loc[N + 1] = X.loc[N] = X.loc[7]
TARGETS = {"cls": np.array(["low", "mid", "top"])[np.searchsorted(np.quantile(score, [0.5, 0.85]), score)],
           "reg": np.exp(score.astype(float)).round(6)}
for task, y in TARGETS.items():
    table = X.assign(y=y)
    table[:N].to_csv(f"predict_untidy_{task}.train.csv", index=False)
    table[N:].to_csv(f"predict_untidy_{task}.test.csv", index=False)

ORDINAL = "ordinal_very_common_categories_shuffled"
QUANTILES = [{"name": "quantile_uni", "categorical_name": "numeric", "max_features_per_estimator": 680},
             {"name": "quantile_uni", "categorical_name": ORDINAL, "global_transformer_name": "svd_quarter_components"}]
SQUASHED = [{"name": "squashing_scaler_max10", "categorical_name": ORDINAL,
             "global_transformer_name": "svd_quarter_components"}, {"name": "none", "categorical_name": "numeric"}]
# The versions' own presets, and what checkpoints were seen to carry.
RUNS = [(f"{m}_{t}", f"{m}_{t}", None) for m in ("v2", "v2_5", "v3", "v3_5") for t in ("cls", "reg")]
RUNS += [
    ("v2_6_cls_own", "v2_6_cls", {"PREPROCESS_TRANSFORMS": QUANTILES, "OUTLIER_REMOVAL_STD": None}),
    ("v2_6_reg_own", "v2_6_reg", {"PREPROCESS_TRANSFORMS": [QUANTILES[0], dict(QUANTILES[1], append_original="auto")],
                                  "REGRESSION_Y_PREPROCESS_TRANSFORMS": [None], "POLYNOMIAL_FEATURES": 10,
                                  "OUTLIER_REMOVAL_STD": None}),
    ("v3_cls_own", "v3_cls", {"PREPROCESS_TRANSFORMS": SQUASHED, "FEATURE_SUBSAMPLING_METHOD": "auto",
                              "FEATURE_SUBSAMPLING_IMPORTANCE_TOP_K_COUNT": 150, "SOFTMAX_TEMPERATURE": 0.8,
                              "MAX_NUMBER_OF_CLASSES": 160, "SUBSAMPLE_SAMPLES": 0.75}),
    ("v3_reg_own", "v3_reg", {"PREPROCESS_TRANSFORMS": SQUASHED, "FEATURE_SUBSAMPLING_METHOD": "auto",
                              "SUBSAMPLE_SAMPLES": 90}),
]
# What the published checkpoints of v3 and v3.5 have torch compute, in float32.
TORCH = {"ENABLE_GPU_PREPROCESSING": True, "FEATURE_SUBSAMPLING_METHOD": "auto"}
PLAIN = [{"name": "none", "categorical_name": "ordinal_shuffled", "max_features_per_estimator": 768}]
V3_5 = dict(TORCH, PREPROCESS_TRANSFORMS=PLAIN, OUTLIER_REMOVAL_STD=12.0, SOFTMAX_TEMPERATURE=1.0)
RUNS += [(f"v3_5_{t}_torch", f"v3_5_{t}", V3_5) for t in ("cls", "reg")]
RUNS += [
    ("v3_cls_torch", "v3_cls", dict(TORCH, PREPROCESS_TRANSFORMS=[
        dict(SQUASHED[0], name="squashing_scaler_default"), {"name": "quantile_uni", "categorical_name": "numeric"}])),
    ("v3_reg_torch", "v3_reg", dict(TORCH, PREPROCESS_TRANSFORMS=[
        {"name": "quantile_uni_extrapolate", "categorical_name": "numeric", "append_original": "auto"}, SQUASHED[0]])),
]
if len(sys.argv) > 2:
    RUNS = [run for run in RUNS if run[0] in sys.argv[2:]]
CLASSES = {"v2": tabpfn_v2.TabPFNV2, "v2_5": tabpfn_v2_5.TabPFNV2p5, "v2_6": tabpfn_v2_6.TabPFNV2p6,
           "v3": tabpfn_v3.TabPFNV3, "v3_5": tabpfn_v3_5.TabPFNV3p5}
VERSIONS = {"v2": ModelVersion.V2, "v2_5": ModelVersion.V2_5, "v2_6": ModelVersion.V2_6, "v3": ModelVersion.V3,
            "v3_5": ModelVersion.V3_5}
v3_5 = {}
for name, model, config in RUNS:
    architecture, task = model.rsplit("_", 1)
    tables = [pd.read_csv(f"predict_untidy_{task}.{part}.csv") for part in ("train", "test")]
    if config is not None and "POLYNOMIAL_FEATURES" in config:  # TabFT leaves columns that tell nothing out of products
        tables = [t.drop(columns=["same", "same_text", "empty"]) for t in tables]
    network, calls = CLASSES[architecture], []
    forward = network.forward

    @functools.wraps(forward)  # what it takes is looked up
    def spy(self, x, y, *rest, **more):
        both = (v["main"] if isinstance(v, dict) else v for v in (x, y))
        calls.append([v.detach().float().clone().contiguous() for v in both])
        return forward(self, x, y, *rest, **more)

    arguments = {}
    if config is not None:
        transforms = [PreprocessorConfig(**p) for p in config["PREPROCESS_TRANSFORMS"]]
        arguments["inference_config"] = dict(config, PREPROCESS_TRANSFORMS=transforms)
    kind = TabPFNClassifier if task == "cls" else TabPFNRegressor
    estimator = kind.create_default_for_version(
        VERSIONS[architecture], model_path=str(MODELS / f"{model}.model.ckpt"), device="cpu", n_estimators=ESTIMATORS,
        random_state=SEED, ignore_pretraining_limits=True, fit_mode="fit_preprocessors", memory_saving_mode=False,
        inference_precision=torch.float32, **arguments)
    network.forward = spy
    try:
        estimator.fit(tables[0].drop(columns="y"), tables[0].y)
        predict = estimator.predict_proba if task == "cls" else estimator.predict
        out = np.asarray(predict(tables[1].drop(columns="y")), dtype=np.float64)
    finally:
        network.forward = forward
    if architecture == "v3_5" and config is None:
        same = load_file(f"predict_untidy_v3_{task}.vectors.safetensors")
        for i, both in enumerate(calls):
            for part, values in zip("xy", both):
                assert np.array_equal(values.numpy(), same[f"call{i}.{part}"].numpy(), equal_nan=True), (name, i)
        v3_5[name] = torch.tensor(out)
        continue
    tensors = {"proba" if task == "cls" else "mean": torch.tensor(out)}
    for i, (x, y) in enumerate(calls):
        tensors[f"call{i}.x"], tensors[f"call{i}.y"] = x, y
    metadata = {"model": model.removesuffix(f"_{task}") if architecture == "v3_5" else model, "n_estimators": str(ESTIMATORS), "random_state": str(SEED)}
    if config is not None:
        metadata["inference_config"] = json.dumps(config)
    save_file(tensors, f"predict_untidy_{name}.vectors.safetensors", metadata)
    print(name, [tuple(x.shape) for x, _ in calls], out.reshape(-1)[:3].round(4))
if v3_5:
    save_file(v3_5, "predict_untidy_v3_5.safetensors")
