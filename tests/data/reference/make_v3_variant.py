"""Makes v3_variant_cls.model.safetensors and its vectors: a v3 classifier whose every choice differs from the published
network's (grouped key-value heads, other ones for query rows, scaled decoder, no indicators, no rotation, one block
where there are three), on a table of fewer columns than a cell reaches, with constant, missing and infinite numbers.
Gradients are computed in float64 and kept in float32, as in the vectors of v3_cls and v3_reg beside it.
Needs `pip install tabpfn==9.2.0`."""
import copy
import dataclasses
import pathlib
import torch
from safetensors.torch import save_file
from tabpfn.architectures import ARCHITECTURES
from tabpfn.architectures.interface import PerformanceOptions
from tabpfn.checkpoint import save_as_safetensors

here = pathlib.Path(__file__).parent
module = ARCHITECTURES["tabpfn_v3"]
config, unused = module.parse_config({
    "embed_dim": 24, "dist_embed_num_blocks": 1, "dist_embed_num_heads": 2, "dist_embed_num_inducing_points": 5,
    "feature_group_size": 4, "feat_agg_num_blocks": 1, "feat_agg_num_heads": 8, "feat_agg_num_cls_tokens": 2,
    "use_rope": False, "nlayers": 2, "icl_num_heads": 4, "icl_num_kv_heads": 2, "icl_num_kv_heads_test": 1,
    "decoder_head_dim": 4, "decoder_num_heads": 3, "decoder_use_softmax_scaling": True, "ff_factor": 1,
    "softmax_scaling_mlp_hidden_dim": 6, "use_nan_indicators": False, "max_num_classes": 10})
assert not unused
model = module.get_architecture(config)
generator = torch.Generator().manual_seed(21)
with torch.no_grad():
    for p in model.parameters():
        noise = torch.randn(p.shape, generator=generator)
        p.copy_(1 + 0.1 * noise if p.dim() == 1 and bool((p == 1).all()) else 0.7 * noise / p.shape[-1] ** 0.5)
n_context, n_query = 29, 7
x = torch.randn(n_context + n_query, 1, 3, generator=generator)
y = (x[:, 0, 0] > 0).long() + (x[:, 0, 0] > 1).long()
x[torch.rand(x.shape, generator=generator) < 0.05] = float("nan")
x[:, 0, 1] = 2.0
x[3, 0, 2], x[31, 0, 2] = float("inf"), float("-inf")
exact = copy.deepcopy(model).double().train()
logits = exact(x.double(), y[:n_context].double()[:, None], only_return_standard_out=True, categorical_inds=[[]],
               performance_options=PerformanceOptions(force_recompute_layer=False))
loss = torch.nn.functional.cross_entropy(logits[:, 0, :3], y[n_context:])
loss.backward()
vectors = {"x": x, "y_context": y[:n_context].float()[:, None], "y_query": y[n_context:].float(),
           "logits": logits.detach(), "loss": loss.detach().reshape(1)}
vectors |= {"grad." + k: p.grad.float() for k, p in exact.named_parameters()}
save_file({k: v.contiguous() for k, v in vectors.items()}, here / "v3_variant_cls.vectors.safetensors")
checkpoint = {"state_dict": model.state_dict(), "config": dataclasses.asdict(config), "architecture_name": "tabpfn_v3"}
save_as_safetensors(checkpoint, here / "v3_variant_cls.model.safetensors")
