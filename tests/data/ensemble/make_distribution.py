"""Records how TabPFN turns logits of target buckets into predictions, for tests/unit/ensemble/test_regression.c.

Needs `pip install tabpfn==9.2.0`. Writes distribution.safetensors: y [N] skewed targets; for each grid: <grid>.borders,
<grid>.logits [E,Q,B] (estimators 0, 2 see y as it is, 1, 3 through safepower), <grid>.own_borders and <grid>.mask of
those with safepower, <grid>.probability [Q,B], <grid>.mean [Q], <grid>.quantiles [9,Q] in units of y.
"""
import os

os.environ["TABPFN_DISABLE_TELEMETRY"] = "1"
import numpy as np
import torch
from safetensors.numpy import save_file
from tabpfn.architectures.shared.bar_distribution import FullSupportBarDistribution
from tabpfn.preprocessing.steps import reshape_feature_distribution_step as step
from tabpfn.utils import transform_borders_one, translate_probs_across_borders

r = np.random.default_rng(6)
N, Q, E, T = 90, 7, 4, 0.9
y = np.exp(1.5 * r.standard_normal(N)) * 100 - 20
mean, std = np.mean(y), np.std(y) + 1e-20
z = (y - mean) / std
out = {"y": y}
grids = {
    "wide": np.concatenate([[-60.0], np.sort(r.normal(0, 1.5, 39)), [80.0]]),  # reaches where the inverse breaks
    "narrow": np.linspace(-0.4, 0.4, 13),
    "quantiles": np.concatenate([[-5.0], np.quantile(z, np.linspace(0, 1, 30)), [9.0]]),
}
for name, borders in grids.items():
    borders = borders.astype(np.float32).astype(np.float64)
    logits = 3 * r.standard_normal((E, Q, len(borders) - 1)).astype(np.float32)
    total = 0
    for e in range(E):
        scaled = torch.tensor(logits[e].astype(np.float64)) / T
        own = borders
        if e % 2:
            power = step.get_all_reshape_feature_distribution_preprocessors(N)["safepower"].fit(z.reshape(-1, 1))
            mask, descending, own = transform_borders_one(borders, power, repair_nan_borders_after_transform=True)
            assert not descending
            mask = np.zeros(len(borders) - 1, bool) if mask is None else mask
            scaled[:, torch.tensor(mask)] = -torch.inf
            out[f"{name}.own_borders"], out[f"{name}.mask"] = own, mask.astype(np.uint8)
        total = total + translate_probs_across_borders(scaled, frm=torch.tensor(own), to=torch.tensor(borders))
    probability = total / E
    bars = FullSupportBarDistribution(torch.tensor(borders))
    out[f"{name}.borders"], out[f"{name}.logits"], out[f"{name}.probability"] = borders, logits, probability.numpy()
    out[f"{name}.mean"] = bars.mean(probability.log()).numpy() * std + mean
    deciles = [bars.icdf(probability.log(), q / 10).numpy() for q in range(1, 10)]
    out[f"{name}.quantiles"] = np.stack(deciles) * std + mean
    print(name, len(borders), out[f"{name}.mask"].sum())
save_file({k: np.ascontiguousarray(v) for k, v in out.items()}, "distribution.safetensors")
