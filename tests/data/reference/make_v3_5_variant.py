"""Makes v3_5_variant.model.safetensors and its vectors, v3_5_variant_cls and _reg: a v3.5 network whose every choice
differs from the published one's (grouped key-value heads for all rows, a decoder that does not scale, one block where
there are three, ranks counted by fewer edges than there are rows), on a table of fewer columns than a cell reaches,
with constant, missing and infinite numbers. A regressor's buckets are the network's own.
Gradients are computed in float64 and kept in float32, as in v3_5_cls and v3_5_reg.
Needs `pip install tabpfn==9.2.0`."""
import copy
import dataclasses
import pathlib
import torch
from safetensors.torch import save_file
from tabpfn.architectures import ARCHITECTURES
from tabpfn.architectures.interface import PerformanceOptions
from tabpfn.architectures.shared.bar_distribution import FullSupportBarDistribution
from tabpfn.checkpoint import save_as_safetensors

here = pathlib.Path(__file__).parent
module = ARCHITECTURES["tabpfn_v3_5"]
config, unused = module.parse_config({
    "embed_dim": 24, "dist_embed_num_blocks": 1, "dist_embed_num_heads": 2, "dist_embed_num_inducing_points": 5,
    "feature_group_size": 4, "feat_agg_num_blocks": 1, "feat_agg_num_heads": 4, "feat_agg_num_cls_tokens": 2,
    "nlayers": 2, "icl_num_heads": 4, "icl_num_kv_heads": 2, "icl_num_kv_heads_test": None, "decoder_head_dim": 4,
    "decoder_num_heads": 3, "decoder_use_softmax_scaling": False, "ff_factor": 1, "softmax_scaling_mlp_hidden_dim": 6,
    "fourier_encoding_num_frequencies": 5, "cell_ecdf_num_frequencies": 3, "cell_ecdf_num_buckets": 7,
    "max_num_classes": 5, "num_buckets": 12})
assert not unused
model = module.get_architecture(config)
generator = torch.Generator().manual_seed(21)
with torch.no_grad():
    for p in model.parameters():
        noise = torch.randn(p.shape, generator=generator)
        p.copy_(1 + 0.1 * noise if p.dim() == 1 and bool((p == 1).all()) else 0.7 * noise / p.shape[-1] ** 0.5)
n_context, n_query = 29, 7
x = torch.randn(n_context + n_query, 1, 3, generator=generator)
score = x[:, 0, 0] - x[:, 0, 2]
x[torch.rand(x.shape, generator=generator) < 0.05] = float("nan")
x[:, 0, 1] = 2.0
x[3, 0, 2], x[31, 0, 2], x[33, 0, 2] = float("inf"), float("-inf"), 7.5
for task, y in ("cls", (score > 0).float() + (score > 1)), ("reg", score / score.std()):
    exact = copy.deepcopy(model).double().train()
    logits = exact(x.double(), y[:n_context].double()[:, None], only_return_standard_out=True, categorical_inds=[[]],
                   performance_options=PerformanceOptions(force_recompute_layer=False),
                   task_type="multiclass" if task == "cls" else "regression")
    if task == "cls":
        loss = torch.nn.functional.cross_entropy(logits[:, 0, :3], y[n_context:].long())
    else:
        loss = FullSupportBarDistribution(exact.regression_borders)(logits[:, 0], y[n_context:].double()).mean()
    loss.backward()
    vectors = {"x": x, "y_context": y[:n_context].float()[:, None], "y_query": y[n_context:].float(),
               "logits": logits.detach(), "loss": loss.detach().reshape(1)}
    vectors |= {"grad." + k: p.grad.float() for k, p in exact.named_parameters() if p.grad is not None}
    save_file({k: v.contiguous() for k, v in vectors.items()}, here / f"v3_5_variant_{task}.vectors.safetensors")
checkpoint = {"state_dict": model.state_dict(), "config": dataclasses.asdict(config), "architecture_name": "tabpfn_v3_5"}
save_as_safetensors(checkpoint, here / "v3_5_variant.model.safetensors")
