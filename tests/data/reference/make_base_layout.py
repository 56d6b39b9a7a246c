"""Makes v2_base_cls and v2_5_base_reg: the networks v2_cls and v2_5_mlp_reg with the names and layouts that TabPFN's
published v2 and v2.5 checkpoints have, which name no architecture or "base". Checks that TabPFN reads them back.
Needs `pip install tabpfn==9.2.0`; reads the networks beside it."""
import pathlib
import torch
from tabpfn.architectures import ARCHITECTURES
from tabpfn.checkpoint import Checkpoint, save_as_safetensors

here = pathlib.Path(__file__).parent
attentions = {
    "per_sample_attention_between_features": "self_attn_between_features",
    "per_column_attention_between_cells": "self_attn_between_items",
}


def base_layout(state, n_heads, encoder, y_encoder):
    out = {}
    for name, value in state.items():
        part = name.split(".")
        if part[0] == "blocks":
            layer = f"transformer_encoder.layers.{part[1]}."
            if part[2] == "mlp":
                out[layer + "mlp." + {"0": "linear1", "2": "linear2"}[part[3]] + ".weight"] = value
            elif part[3] == "q_projection":
                begin = name[: -len("q_projection.weight")]
                heads = [state[begin + f"{p}_projection.weight"].unflatten(0, (n_heads, -1)) for p in "qkv"]
                out[layer + attentions[part[2]] + "._w_qkv"] = torch.stack(heads)
            elif part[3] == "out_projection":
                out[layer + attentions[part[2]] + "._w_out"] = value.T.unflatten(0, (n_heads, -1)).contiguous()
        elif name == "feature_group_embedder.weight":
            out[f"encoder.{encoder}.layer.weight"] = value
        elif part[0] == "feature_group_embedder":
            out[f"encoder.{encoder}.mlp.{part[1]}.weight"] = value
        elif part[0] == "target_embedder":
            out[f"y_encoder.{y_encoder}.layer.{part[1]}"] = value
        elif part[0] == "output_projection":
            out["decoder_dict.standard." + ".".join(part[1:])] = value
        elif part[0] == "add_thinking_rows":
            out["add_thinking_tokens.row_token_values"] = value
        else:
            out[name] = value
    return out


for case, name, architecture, encoder, y_encoder in (
    ("v2_cls", "v2_base_cls", None, 6, 2),
    ("v2_5_mlp_reg", "v2_5_base_reg", "base", 5, 1),
):
    file = Checkpoint(here / f"{case}.model.safetensors").load()
    module = ARCHITECTURES[file["architecture_name"]]
    model = module.get_architecture(module.parse_config(file["config"])[0])
    state = base_layout(file["state_dict"], file["config"]["nhead"], encoder, y_encoder)
    model.load_state_dict({k: v for k, v in state.items() if not k.startswith("criterion.")})
    for k, v in model.state_dict().items():
        assert torch.equal(v, file["state_dict"][k]), k
    out = {"state_dict": state, "config": file["config"]}
    if architecture is not None:
        out["architecture_name"] = architecture
    save_as_safetensors(out, here / f"{name}.model.safetensors")
