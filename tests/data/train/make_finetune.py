"""Packs the ten recorded fine-tuning runs of TabPFN 9.2.0 (finetune_<case>.vectors.safetensors, made from the tiny models
<case>.model.safetensors) into finetune.safetensors:

  make_finetune.py FOLDER_OF_THE_RUNS finetune.safetensors

A column of a network's input mostly is a column of another one's too, whatever the estimator or the version, so each stands once
in columns.context [n,160] and columns.query [n,40]. What an estimator saw in a step is <case>.inputs.<step>.<estimator>, the
numbers of its columns; the last one is what it was asked for: labels of the context as the network saw them and labels of the
query as they are, or targets in the estimator's space. <case>.weights.<parameter> is what four steps added to the base model's
weights, in units of 2^-26; <case>.{loss,grad_norm,lr} are [4]. raw.* are the rows that all runs were given.
"""
import sys, pathlib, json
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

FOLDER = pathlib.Path(sys.argv[1])
STEPS, ESTIMATORS, UNIT = 4, 5, 2.0**-26
out, columns = {}, {}


def number(context, query):
    key = (context.astype(np.float32).tobytes(), query.astype(np.float32).tobytes())
    return columns.setdefault(key, len(columns))


for version in ("v2", "v2_5", "v2_6", "v3", "v3_5"):
    for task in ("cls", "reg"):
        case = f"{version}_{task}"
        with safe_open(FOLDER / f"finetune_{case}.vectors.safetensors", "np") as run, \
                safe_open(FOLDER / f"{case}.model.safetensors", "np") as base:
            get = run.get_tensor
            for name, tensor in (("raw.X_train", get("raw.X_train")), ("raw.X_test", get("raw.X_test")),
                                 (f"raw.y_{task}", get("raw.y_train").astype(np.float32))):
                assert name not in out or np.array_equal(out[name], tensor)
                out[name] = tensor
            for s in range(STEPS):
                for e in range(ESTIMATORS):
                    p = f"step{s}.est{e}."
                    context, query = get(p + "X_context"), get(p + "X_query")
                    asked = get(p + "targets") if task == "reg" else get(f"step{s}.y_query")
                    numbers = [number(context[:, j], query[:, j]) for j in range(context.shape[1])]
                    out[f"{case}.inputs.{s}.{e}"] = np.array(numbers + [number(get(p + "y_context"), asked)], np.int32)
                    if task == "cls":
                        permutation = get(p + "class_permutation").astype(np.int32)
                        assert s == 0 or np.array_equal(out[f"{case}.permutation.{e}"], permutation)
                        out[f"{case}.permutation.{e}"] = permutation
            for name in ("loss", "grad_norm", "lr"):
                out[f"{case}.{name}"] = np.array([get(f"step{s}.{name}")[0] for s in range(STEPS)], np.float64)
            out[f"{case}.predicted"] = get("predict.proba" if task == "cls" else "predict.mean")
            for key in run.keys():
                if not key.startswith("final."):
                    continue
                was = base.get_tensor(key[6:]).astype(np.float64)
                moved = (get(key).astype(np.float64) - was) / UNIT
                assert np.isfinite(was).all() and (np.abs(moved) < 32767).all(), key
                out[f"{case}.weights.{key[6:]}"] = np.rint(moved).astype(np.int16)
out["columns.context"] = np.stack([np.frombuffer(c, np.float32) for c, _ in columns])
out["columns.query"] = np.stack([np.frombuffer(q, np.float32) for _, q in columns])
save_file(out, sys.argv[2])
