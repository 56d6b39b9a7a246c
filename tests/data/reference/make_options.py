"""Records what TabPFN's arguments for putting predictions together do, for tests/unit/eval/test_recorded.c.

Needs `pip install tabpfn==9.2.0`, the folder with the small models (v2_6_cls.model.ckpt, v2_6_reg.model.ckpt):
    make_options.py MODELS
Run beside the recorded tables predict_mixed_v2_6_cls.*.csv and predict_numeric_v2_6_reg.*.csv, whose network inputs must
be those that are recorded here too. Writes predict_options.safetensors: <table>.<option> [rows, classes] or [rows].
"""
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
from safetensors.numpy import load_file, save_file
from tabpfn import TabPFNClassifier, TabPFNRegressor
from tabpfn.architectures import tabpfn_v2_6
from tabpfn.constants import ModelVersion

MODELS = pathlib.Path(sys.argv[1])
OPTIONS = {
    "plain": {},
    "before": {"average_before_softmax": True},
    "balanced": {"balance_probabilities": True},
    "all": {"average_before_softmax": True, "balance_probabilities": True, "softmax_temperature": 0.5},
}
out = {}
for table, model, kind in (("mixed", "v2_6_cls", TabPFNClassifier), ("numeric", "v2_6_reg", TabPFNRegressor)):
    name = f"predict_{table}_{model}"
    train, test = (pd.read_csv(f"{name}.{part}.csv") for part in ("train", "test"))
    recorded = load_file(f"{name}.vectors.safetensors")
    for option, arguments in OPTIONS.items():
        arguments = dict(arguments)
        if kind is TabPFNRegressor:
            arguments.pop("balance_probabilities", None)
        calls, forward = [], tabpfn_v2_6.TabPFNV2p6.forward

        def spy(self, x, *rest, **more):
            calls.append((x["main"] if isinstance(x, dict) else x).detach().float().numpy())
            return forward(self, x, *rest, **more)

        tabpfn_v2_6.TabPFNV2p6.forward = spy
        estimator = kind.create_default_for_version(
            ModelVersion.V2_6, model_path=str(MODELS / f"{model}.model.ckpt"), device="cpu", n_estimators=4,
            random_state=3, ignore_pretraining_limits=True, fit_mode="fit_preprocessors", memory_saving_mode=False,
            inference_precision=torch.float32, **arguments)
        estimator.fit(train.drop(columns="y"), train.y)
        predict = estimator.predict if kind is TabPFNRegressor else estimator.predict_proba
        out[f"{name}.{option}"] = np.ascontiguousarray(predict(test.drop(columns="y")), dtype=np.float64)
        tabpfn_v2_6.TabPFNV2p6.forward = forward
        for i, x in enumerate(calls):
            assert np.array_equal(x, recorded[f"call{i}.x"], equal_nan=True), f"{name}: call {i} is not the recorded one"
    plain = recorded["mean" if kind is TabPFNRegressor else "proba"]
    print(name, "from the recorded prediction:", np.abs(out[f"{name}.plain"] - plain).max())
    del out[f"{name}.plain"]
    if kind is TabPFNRegressor:
        del out[f"{name}.balanced"]
save_file(out, "predict_options.safetensors")
print({k: v.reshape(-1)[:3] for k, v in out.items()})
