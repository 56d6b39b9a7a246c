"""Makes bar_losses.vectors.safetensors: each term of a regressor's loss by TabPFN, in float64, with its gradient.
Needs `pip install tabpfn==9.2.0`."""
import pathlib
import torch
from safetensors.torch import save_file
from tabpfn.architectures.shared.bar_distribution import FullSupportBarDistribution
from tabpfn.finetuning.finetuned_regressor import _compute_regression_loss as compute

generator = torch.Generator().manual_seed(3)
borders = torch.tensor([-3, -1.5, -1, -0.25, 0, 0.5, 0.75, 1.5, 2, 4])
logits = 1.5 * torch.randn((1, 24, 9), generator=generator)
targets = 2 * torch.randn((1, 24), generator=generator)
targets[0, :4] = torch.tensor([-3, 0.5, 4, float("nan")])  # on borders, and missing
targets[0, 4:6] = torch.tensor([-6.0, 7])  # beyond both ends
out = {"borders": borders, "logits": logits[0], "targets": targets[0]}
for term in ("ce", "crps", "crls", "mse", "mae"):
    weights = {f"{t}_loss_weight": float(t == term) for t in ("ce", "crps", "crls", "mse", "mae")}
    z = logits.double().requires_grad_()
    loss = compute(
        logits_BQL=z / 0.9,
        targets_BQ=targets.double(),
        bardist_loss_fn=FullSupportBarDistribution(borders.double()),
        mse_loss_clip=4.0,
        mae_loss_clip=1.5,
        **weights,
    )
    loss.backward()
    out[term + ".loss"] = loss.detach().reshape(1)
    missing = targets[0].isnan()
    assert z.grad[0][~missing].isfinite().all()
    z.grad[0][missing] = 0  # of mse and mae it is NaN there, though the loss is not
    out[term + ".gradient"] = z.grad[0]
save_file(
    {k: v.contiguous() for k, v in out.items()}, pathlib.Path(__file__).parent / "bar_losses.vectors.safetensors"
)
