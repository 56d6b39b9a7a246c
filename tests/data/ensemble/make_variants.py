"""Records what TabPFN's estimators make of one untidy table under many inference_configs, for tests/unit/ensemble.

Needs `pip install tabpfn==9.2.0` and a small v2.6 classifier checkpoint:
    make_variants.py CLASSIFIER.ckpt [FIRST]
With FIRST only the variants from that number on are made anew, the others are those of the file that is there.
Writes variants.safetensors: raw.X [R,C], raw.y [R]; the first `context` rows are the context. text.X_context and
text.X_whole: a table with texts, as ranks among those of the context or of all rows; text.missing_rank: where a gap would
stand among them. For each variant i the metadata holds variant<i> (phase, table, estimators, seed, inference_config) and
the file v<i>.e<j>.x [rows,columns], .y [context].
"""
import json
import os
import sys
import warnings

os.environ["TABPFN_DISABLE_TELEMETRY"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
warnings.simplefilter("ignore")
import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from tabpfn import TabPFNClassifier
from tabpfn.architectures import tabpfn_v2_6
from tabpfn.constants import ModelVersion
from tabpfn.finetuning.data_util import get_preprocessed_dataset_chunks
from tabpfn.preprocessing import PreprocessorConfig

CHECKPOINT = sys.argv[1]
FIRST = int(sys.argv[2]) if len(sys.argv) > 2 else 0
N, M = 130, 40
r = np.random.default_rng(20)
X = r.standard_normal((N + M, 11))
X[:, 1] = np.exp(3 * X[:, 1])
X[:, 2] = r.integers(0, 3, N + M) * 2.5  # few values: a category
X[:, 3] = r.integers(0, 2, N + M)
X[:, 4] = r.integers(0, 10, N + M)  # many ties
X[:, 5] = np.where(r.random(N + M) < 0.9, 1.0, X[:, 5])  # quartiles fall together
X[:, 6] = r.standard_cauchy(N + M)
X[:, 7] = np.where(np.arange(N + M) < N, 4.0, X[:, 7])  # constant in the context alone
X[:, 8] = np.where(r.random(N + M) < 0.05, 1.0, -2.0)  # a category with a rare value
X[:, 9] = np.round(X[:, 9] * 4)
X[r.random(X.shape) < 0.06] = np.nan
X[:, 7] = np.where(np.arange(N + M) < N, 4.0, X[:, 7])
X[3] = X[4]  # equal rows
X[N + 1] = X[N] = X[5]
y = r.integers(0, 3, N + M)

# Texts as ranks among the sorted texts of the context; -1 for one that is not among them.
T = r.standard_normal((N + M, 5))
letters = np.array(list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789^~"))
towns = np.sort(np.array([f"{a}{b}" for a in letters for b in "xy"]))
T[:, 1] = r.integers(0, 70, N + M)  # many texts, with gaps that take a rank among them
T[:, 2] = r.integers(0, 4, N + M)  # few texts, with gaps
T[:, 3] = r.integers(0, 50, N + M)  # many texts without gaps
T[r.random(T.shape) < 0.1] = np.nan
T[:, 3] = np.where(np.isnan(T[:, 3]), 7, T[:, 3])
IS_TEXT = [False, True, True, True, False]


def texts():
    frame = np.empty(T.shape, dtype=object)
    ranks = T.copy()
    dictionaries = []
    for j in range(T.shape[1]):
        if not IS_TEXT[j]:
            frame[:, j] = T[:, j]
            continue
        picked = r.permutation(towns)[:80]
        cells = [None if np.isnan(v) else str(picked[int(v)]) for v in T[:, j]]
        known = sorted({c for c in cells[:N] if c is not None})
        frame[:, j] = cells
        ranks[:, j] = [np.nan if c is None else known.index(c) if c in known else -1 for c in cells]
        every = sorted({c for c in cells if c is not None})
        full = [np.nan if c is None else every.index(c) for c in cells]
        dictionaries.append((known, every, full))
    whole = ranks.copy()
    for j, (_, _, full) in zip((1, 2, 3), dictionaries):
        whole[:, j] = full
    gap = lambda which: [float(sum(t < "__MISSING__" for t in d[which])) for d in dictionaries]
    return frame, ranks, whole, gap(0), gap(1)


FRAME, RANKS, WHOLE, GAP_CONTEXT, GAP_WHOLE = texts()

ORDINAL = "ordinal_very_common_categories_shuffled"


def transform(name, **fields):
    return {"name": name, **fields}


VARIANTS = [
    ("finetuning", 4, {"PREPROCESS_TRANSFORMS": [
        transform("quantile_uni", categorical_name="numeric", max_features_per_estimator=680),
        transform("quantile_uni", categorical_name=ORDINAL, global_transformer_name="svd_quarter_components")]}),
    ("finetuning", 4, {"PREPROCESS_TRANSFORMS": [
        transform("squashing_scaler_max10", categorical_name="ordinal", append_original=True),
        transform("quantile_uni_fine", categorical_name="ordinal_common_categories_shuffled", append_original="auto",
                  global_transformer_name="svd")],
        "FEATURE_SHIFT_METHOD": "rotate", "CLASS_SHIFT_METHOD": "rotate"}),
    ("finetuning", 3, {"PREPROCESS_TRANSFORMS": [
        transform("none", categorical_name="ordinal_shuffled"),
        transform("squashing_scaler_default", categorical_name="none", append_original=False),
        transform("quantile_uni_coarse", categorical_name="numeric", append_original=True)],
        "FEATURE_SHIFT_METHOD": None, "CLASS_SHIFT_METHOD": None, "FINGERPRINT_FEATURE": False}),
    ("finetuning", 7, {"PREPROCESS_TRANSFORMS": [
        transform("none", categorical_name="numeric", max_features_per_estimator=7),
        transform("squashing_scaler_default", categorical_name=ORDINAL, max_features_per_estimator=9,
                  global_transformer_name="svd")],
        "FEATURE_SUBSAMPLING_METHOD": "balanced"}),
    ("prediction", 5, {"PREPROCESS_TRANSFORMS": [
        transform("none", categorical_name="numeric", max_features_per_estimator=7),
        transform("squashing_scaler_default", categorical_name=ORDINAL, max_features_per_estimator=9,
                  global_transformer_name="svd", append_original="auto")],
        "FEATURE_SUBSAMPLING_METHOD": "balanced", "OUTLIER_REMOVAL_STD": 3.0}),
    ("prediction", 5, {"PREPROCESS_TRANSFORMS": [
        transform("quantile_uni", categorical_name="numeric", max_features_per_estimator=8),
        transform("none", categorical_name=ORDINAL, max_features_per_estimator=6)],
        "FEATURE_SUBSAMPLING_METHOD": "constant_and_balanced", "FEATURE_SUBSAMPLING_CONSTANT_FEATURE_COUNT": 2,
        "SUBSAMPLE_SAMPLES": 61, "SAMPLE_SUBSAMPLING_METHOD": "auto"}),
    ("prediction", 3, {"PREPROCESS_TRANSFORMS": [transform("none", categorical_name="numeric")],
        "FEATURE_SUBSAMPLING_METHOD": "auto", "SUBSAMPLE_SAMPLES": 0.7, "SAMPLE_SUBSAMPLING_METHOD": "balanced",
        "OUTLIER_REMOVAL_STD": None, "MIN_UNIQUE_FOR_NUMERICAL_FEATURES": 12,
        "MIN_NUMBER_SAMPLES_FOR_CATEGORICAL_INFERENCE": 50}),
    ("prediction", 2, {"PREPROCESS_TRANSFORMS": [
        transform("none", categorical_name=ORDINAL), transform("none", categorical_name="none")],
        "FEATURE_SUBSAMPLING_METHOD": "random", "MIN_UNIQUE_FOR_NUMERICAL_FEATURES": 12}),
    ("finetuning", 4, {"PREPROCESS_TRANSFORMS": [
        transform("safepower", categorical_name="onehot"),
        transform("quantile_uni", append_original=True, categorical_name=ORDINAL, global_transformer_name="svd")]}),
    ("prediction", 3, {"PREPROCESS_TRANSFORMS": [
        transform("power", categorical_name="onehot", max_onehot_cardinality=3),
        transform("robust", categorical_name="onehot", append_original=True, global_transformer_name="svd"),
        transform("safepower", categorical_name="numeric")],
        "FEATURE_SUBSAMPLING_METHOD": "random", "MIN_UNIQUE_FOR_NUMERICAL_FEATURES": 12}),
    ("finetuning", 3, {"PREPROCESS_TRANSFORMS": [
        transform("quantile_uni", categorical_name="numeric", max_features_per_estimator=680),
        transform("none", categorical_name=ORDINAL, append_original="auto", max_features_per_estimator=40)],
        "POLYNOMIAL_FEATURES": 10}),
    ("prediction", 2, {"PREPROCESS_TRANSFORMS": [
        transform("none", categorical_name="numeric"),
        transform("squashing_scaler_default", categorical_name=ORDINAL, max_features_per_estimator=50)],
        "POLYNOMIAL_FEATURES": "all", "FEATURE_SUBSAMPLING_METHOD": "random"}),
]


# Many columns: sets of column numbers that are not in ascending order.
BROAD_VARIANTS = [
    ("finetuning", 3, {"PREPROCESS_TRANSFORMS": [transform("none", categorical_name="numeric")],
                       "POLYNOMIAL_FEATURES": limit}) for limit in (40, 150)]
BROAD = np.random.default_rng(21).standard_normal((N + M, 70)).astype(np.float32).astype(np.float64)
TEXT_VARIANTS = [
    (phase, 4, {"PREPROCESS_TRANSFORMS": [
        transform("none", categorical_name=ORDINAL), transform("squashing_scaler_default", categorical_name="numeric",
                                                              append_original=True, max_features_per_estimator=9)],
        "FEATURE_SUBSAMPLING_METHOD": "random"})
    for phase in ("finetuning", "prediction")]
INFINITE = X.copy()
s = np.random.default_rng(22)
for j, share in ((0, 0.05), (1, 0.03), (2, 0.04), (4, 0.1), (5, 0.02)):
    INFINITE[:, j] = np.where(s.random(N + M) < share, np.where(s.random(N + M) < 0.5, np.inf, -np.inf), X[:, j])
INFINITE[N + 3, 9] = np.inf  # in the query alone
INFINITE[:, 10] = np.where(s.random(N + M) < 0.3, np.inf, 6.0)  # one number otherwise
INFINITE[:, 3] = np.where(np.arange(N + M) % 3 == 0, -np.inf, np.inf)  # nothing else
INFINITE_VARIANTS = [
    (phase, 3, {"PREPROCESS_TRANSFORMS": [
        transform("quantile_uni", categorical_name="numeric", append_original=True),
        transform("squashing_scaler_default", categorical_name="ordinal_shuffled",
                  global_transformer_name="svd_quarter_components"),
        transform("none", categorical_name="onehot")],
        "PASSTHROUGH_INF": True, "OUTLIER_REMOVAL_STD": std, "POLYNOMIAL_FEATURES": polynomials,
        "FEATURE_SUBSAMPLING_METHOD": "random"})
    for phase, std, polynomials in (("finetuning", None, "no"), ("prediction", None, "no"), ("prediction", 12.0, 5))]

# Torch does the second half of a pipeline, in float32: what checkpoints of v3 and v3.5 ask for.
SQUASHED = transform("squashing_scaler_max10", categorical_name=ORDINAL, global_transformer_name="svd_quarter_components")
EXTRAPOLATED = transform("quantile_uni_extrapolate", categorical_name="numeric", append_original="auto")
SINGLE = [
    ("raw", 4, {"PREPROCESS_TRANSFORMS": [
        dict(SQUASHED, name="squashing_scaler_default"), transform("quantile_uni", categorical_name="numeric")]}),
    ("raw", 2, {"PREPROCESS_TRANSFORMS": [SQUASHED, transform("none", categorical_name="numeric")],
                "SUBSAMPLE_SAMPLES": 90, "OUTLIER_REMOVAL_STD": None}),
    ("raw", 4, {"PREPROCESS_TRANSFORMS": [
        EXTRAPOLATED, transform("quantile_uni_coarse", categorical_name=ORDINAL, append_original=True),
        transform("quantile_uni_fine", categorical_name="onehot"),
        transform("none", categorical_name="ordinal_shuffled")], "OUTLIER_REMOVAL_STD": 3.0}),
    ("raw", 2, {"PREPROCESS_TRANSFORMS": [
        transform("safepower", categorical_name="onehot"),
        transform("robust", categorical_name="ordinal", append_original=True, global_transformer_name="svd")],
        "POLYNOMIAL_FEATURES": 10}),
    ("text", 3, {"PREPROCESS_TRANSFORMS": [transform("none", categorical_name="ordinal_shuffled")],
                 "OUTLIER_REMOVAL_STD": 12.0}),
    ("infinite", 3, {"PREPROCESS_TRANSFORMS": [
        SQUASHED, transform("none", categorical_name="ordinal_shuffled", global_transformer_name="svd"),
        transform("squashing_scaler_default", categorical_name="numeric", append_original=True)],
        "PASSTHROUGH_INF": True}),
]
SINGLE_VARIANTS = [(table, ("prediction", n, dict(config, ENABLE_GPU_PREPROCESSING=True))) for table, n, config in SINGLE]
# Where every column is important, or a step's own columns leave no room for them, importance is not asked for.
GINI = {"FEATURE_SUBSAMPLING_METHOD": "gini_feature_importance"}
GINI_VARIANTS = [("prediction", 3, dict(GINI, PREPROCESS_TRANSFORMS=[transform("none", max_features_per_estimator=n)], **more))
                 for n, more in ((7, {}), (7, {"FEATURE_SUBSAMPLING_IMPORTANCE_TOP_K_COUNT": 1.0}),
                                 (11, {"FEATURE_SUBSAMPLING_IMPORTANCE_TOP_K_COUNT": 3}))]
# Numbers whose squares, and whose sums, float32 cannot hold: nothing is clipped, or nothing is left.
LARGE = X.copy()
LARGE[:, 0] = np.where(s.random(N + M) < 0.05, 1e25, X[:, 0])
LARGE[:, 1] = X[:, 6] * 1e18
LARGE[:, 3] = X[:, 3] * 1e25  # a category
LARGE[:, 4] = np.abs(X[:, 9]) * 1e37
LARGE[:, 5] = X[:, 10] * 1e-30
LARGE_VARIANTS = [("prediction", 2, {"PREPROCESS_TRANSFORMS": [
    transform("none", categorical_name="numeric"), transform("none", categorical_name="ordinal_shuffled")],
    "ENABLE_GPU_PREPROCESSING": single}) for single in (False, True)]
# Gaps that only the rows to predict have: in a category they are one more value that was not seen.
LATE = X.copy()
for j, values in ((2, (0, 2.5, 5)), (3, (0, 1)), (8, (1, -2))):
    LATE[:N, j] = np.where(np.isnan(X[:N, j]), values[0], X[:N, j])
    LATE[N + 5:N + 9, j] = np.nan
LATE_VARIANTS = [(phase, 3, {"PREPROCESS_TRANSFORMS": [
    transform("none", categorical_name="numeric"), transform("quantile_uni", categorical_name="none"),
    transform("none", categorical_name="ordinal_shuffled")]}) for phase in ("prediction", "finetuning")]
EXTRAPOLATED_VARIANTS = [(phase, 2, {"PREPROCESS_TRANSFORMS": [
    EXTRAPOLATED, dict(EXTRAPOLATED, append_original=False, global_transformer_name="svd")]})
    for phase in ("finetuning", "prediction")]


def estimator(n, seed, config):
    config = dict(config, PREPROCESS_TRANSFORMS=[PreprocessorConfig(**p) for p in config["PREPROCESS_TRANSFORMS"]])
    return TabPFNClassifier.create_default_for_version(
        ModelVersion.V2_6, model_path=CHECKPOINT, n_estimators=n, device="cpu", random_state=seed,
        ignore_pretraining_limits=True, memory_saving_mode=False, inference_config=config,
        fit_mode="batched" if n < 0 else "fit_preprocessors")


def finetuning(n, seed, config, X):
    clf = estimator(n, seed, config)
    clf.fit_mode = "batched"
    split = lambda X, y, stratify=None: (X[:N], X[N:], y[:N], y[N:])
    data = get_preprocessed_dataset_chunks(clf, X, y, split, None, "classifier", equal_split_size=False,
                                           data_shuffle_seed=0, preprocessing_random_state=seed)
    item = data[0]
    return [(np.concatenate([np.asarray(c), np.asarray(q)]), np.asarray(l))
            for c, q, l in zip(item.X_context, item.X_query, item.y_context)]


def prediction(n, seed, config, X):
    calls, forward = [], tabpfn_v2_6.TabPFNV2p6.forward

    def spy(self, x, yy, *a, **k):
        xx = x["main"] if isinstance(x, dict) else x
        ll = yy["main"] if isinstance(yy, dict) else yy
        calls.append((xx.detach().float()[:, 0].numpy().copy(), ll.detach().float().reshape(-1).numpy().copy()))
        return forward(self, x, yy, *a, **k)

    tabpfn_v2_6.TabPFNV2p6.forward = spy
    try:
        clf = estimator(n, seed, config)
        clf.fit(X[:N], y[:N])
        clf.predict_proba(X[N:])
    finally:
        tabpfn_v2_6.TabPFNV2p6.forward = forward
    return calls


tensors = {"raw.X": X, "text.X_context": RANKS, "text.X_whole": WHOLE, "raw.y": y.astype(np.int64),
           "text.missing_rank": np.array([[0, *g, 0] for g in (GAP_CONTEXT, GAP_WHOLE)])}
tensors["broad.X"] = BROAD.astype(np.float32)
tensors["infinite.X"], tensors["large.X"], tensors["late.X"] = INFINITE, LARGE, LATE
every = ([("raw", X, v) for v in VARIANTS] + [("text", FRAME, v) for v in TEXT_VARIANTS]
         + [("broad", BROAD, v) for v in BROAD_VARIANTS]
         + [("infinite", INFINITE, v) for v in INFINITE_VARIANTS]
         + [("raw", X, v) for v in EXTRAPOLATED_VARIANTS + GINI_VARIANTS]
         + [(table, {"raw": X, "text": FRAME, "infinite": INFINITE}[table], v) for table, v in SINGLE_VARIANTS]
         + [("large", LARGE, v) for v in LARGE_VARIANTS] + [("late", LATE, v) for v in LATE_VARIANTS])
metadata = {"context": str(N), "variants": str(len(every))}
if FIRST > 0:
    old = safe_open("variants.safetensors", "numpy")
    is_kept = lambda key, prefix: key.startswith(prefix) and key[len(prefix):].split(".")[0].isdigit() \
        and int(key[len(prefix):].split(".")[0]) < FIRST
    for key in old.keys():
        assert key not in tensors or np.array_equal(old.get_tensor(key), tensors[key], equal_nan=True), key
    tensors |= {key: old.get_tensor(key) for key in old.keys() if is_kept(key, "v")}
    metadata |= {key: value for key, value in old.metadata().items() if is_kept(key, "variant")}
for i in range(FIRST, len(every)):
    table, data, (phase, n, config) = every[i]
    seed = 100 + i
    calls = (finetuning if phase == "finetuning" else prediction)(n, seed, config, data)
    assert len(calls) == n, (i, len(calls))
    metadata[f"variant{i}"] = json.dumps({"phase": phase, "table": table, "estimators": n, "seed": seed,
                                          "inference_config": config})
    for j, (x, label) in enumerate(calls):
        tensors[f"v{i}.e{j}.x"], tensors[f"v{i}.e{j}.y"] = (np.ascontiguousarray(v, np.float32) for v in (x, label))
    print(i, phase, [x.shape for x, _ in calls], file=sys.stderr)
save_file(tensors, "variants.safetensors", metadata)
