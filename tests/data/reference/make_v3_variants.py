"""Makes networks of v3 and v3.5 whose every choice differs from the published ones', and their vectors, on a table of
fewer columns than a cell reaches, with constant, missing and infinite numbers:
  v3_variant_cls      grouped key-value heads, other ones for query rows, a scaled decoder, no indicators, no rotation
  v3_5_variant        grouped key-value heads for all rows, a decoder that does not scale, ranks counted by fewer edges
                      than there are rows; vectors v3_5_variant_cls and _reg, whose buckets are the network's own
and one block where the published networks have three. Gradients are computed in float64 and kept in float32, as in the
vectors of v3_cls, v3_reg, v3_5_cls and v3_5_reg beside them.
Needs `pip install tabpfn==9.2.0`."""
import copy
import dataclasses
import pathlib
import sys
import torch
from safetensors.torch import save_file
from tabpfn.architectures import ARCHITECTURES
from tabpfn.architectures.interface import PerformanceOptions
from tabpfn.architectures.shared.bar_distribution import FullSupportBarDistribution
from tabpfn.checkpoint import save_as_safetensors

OUT = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent
CONTEXT, QUERY = 29, 7
BOTH = {
    "embed_dim": 24, "dist_embed_num_blocks": 1, "dist_embed_num_heads": 2, "dist_embed_num_inducing_points": 5,
    "feature_group_size": 4, "feat_agg_num_blocks": 1, "feat_agg_num_cls_tokens": 2, "nlayers": 2, "icl_num_heads": 4,
    "icl_num_kv_heads": 2, "decoder_head_dim": 4, "decoder_num_heads": 3, "ff_factor": 1,
    "softmax_scaling_mlp_hidden_dim": 6}
V3 = BOTH | {
    "feat_agg_num_heads": 8, "use_rope": False, "icl_num_kv_heads_test": 1, "decoder_use_softmax_scaling": True,
    "use_nan_indicators": False, "max_num_classes": 10}
V3_5 = BOTH | {
    "feat_agg_num_heads": 4, "icl_num_kv_heads_test": None, "decoder_use_softmax_scaling": False,
    "fourier_encoding_num_frequencies": 5, "cell_ecdf_num_frequencies": 3, "cell_ecdf_num_buckets": 7,
    "max_num_classes": 5, "num_buckets": 12}


def network(architecture, settings):
    """The network, its generator for what else is drawn, and a table without gaps."""
    module = ARCHITECTURES[architecture]
    config, unused = module.parse_config(settings)
    assert not unused
    model, generator = module.get_architecture(config), torch.Generator().manual_seed(21)
    with torch.no_grad():
        for p in model.parameters():
            noise = torch.randn(p.shape, generator=generator)
            p.copy_(1 + 0.1 * noise if p.dim() == 1 and bool((p == 1).all()) else 0.7 * noise / p.shape[-1] ** 0.5)
    return model, config, generator, torch.randn(CONTEXT + QUERY, 1, 3, generator=generator)


def spoil(x, generator):
    x[torch.rand(x.shape, generator=generator) < 0.05] = float("nan")
    x[:, 0, 1] = 2.0
    x[3, 0, 2], x[31, 0, 2] = float("inf"), float("-inf")


def vectors(name, model, x, y, is_regression=False, **which):
    exact = copy.deepcopy(model).double().train()
    logits = exact(x.double(), y[:CONTEXT].double()[:, None], only_return_standard_out=True, categorical_inds=[[]],
                   performance_options=PerformanceOptions(force_recompute_layer=False), **which)
    if is_regression:
        loss = FullSupportBarDistribution(exact.regression_borders)(logits[:, 0], y[CONTEXT:].double()).mean()
    else:
        loss = torch.nn.functional.cross_entropy(logits[:, 0, :3], y[CONTEXT:].long())
    loss.backward()
    tensors = {"x": x, "y_context": y[:CONTEXT].float()[:, None], "y_query": y[CONTEXT:].float(),
               "logits": logits.detach(), "loss": loss.detach().reshape(1)}
    tensors |= {"grad." + k: p.grad.float() for k, p in exact.named_parameters() if p.grad is not None}
    save_file({k: v.contiguous() for k, v in tensors.items()}, OUT / f"{name}.vectors.safetensors")


def save(name, architecture, model, config):
    save_as_safetensors({"state_dict": model.state_dict(), "config": dataclasses.asdict(config),
                         "architecture_name": architecture}, OUT / f"{name}.model.safetensors")


model, config, generator, x = network("tabpfn_v3", V3)
y = (x[:, 0, 0] > 0).float() + (x[:, 0, 0] > 1)
spoil(x, generator)
vectors("v3_variant_cls", model, x, y)
save("v3_variant_cls", "tabpfn_v3", model, config)

model, config, generator, x = network("tabpfn_v3_5", V3_5)
score = x[:, 0, 0] - x[:, 0, 2]
spoil(x, generator)
x[33, 0, 2] = 7.5
vectors("v3_5_variant_cls", model, x, (score > 0).float() + (score > 1), task_type="multiclass")
vectors("v3_5_variant_reg", model, x, score / score.std(), True, task_type="regression")
save("v3_5_variant", "tabpfn_v3_5", model, config)
