"""Makes constant_columns.vectors.safetensors: the logits of the v2 family's tiny networks, in float64, for a table with
constant, missing and infinite columns and a classifier's context of classes 1, 3 and 7.
Needs `pip install tabpfn==9.2.0`; reads the networks beside it."""
import pathlib
import torch
from safetensors.torch import save_file
from tabpfn.architectures import ARCHITECTURES
from tabpfn.architectures.interface import PerformanceOptions
from tabpfn.checkpoint import Checkpoint

here = pathlib.Path(__file__).parent
drawn = torch.randn


def randn(*shape, **options):
    """Column embeddings are float32 constants of a network: in a float64 run, too."""
    dtype = options.pop("dtype", None) or torch.get_default_dtype()
    return drawn(*shape, dtype=torch.float32, **options).to(dtype)


torch.randn = randn
generator = torch.Generator().manual_seed(5)
n_context, n_query = 30, 9
x = torch.randn(n_context + n_query, 1, 11, generator=generator)
x[torch.rand(x.shape, generator=generator) < 0.05] = float("nan")
x[:, 0, 0] = 2.0  # the first of a pair
x[:, 0, 4], x[:, 0, 5] = 7.0, -1.0  # a whole pair
x[:, 0, 7] = 0.0  # the second of a pair
x[:, 0, 8] = float("nan")
x[3, 0, 2], x[35, 0, 3] = float("inf"), float("-inf")
x[:n_context, 0, 10] = 4.0  # constant in the context alone
labels = torch.tensor([1.0, 3, 7])[torch.randint(0, 3, (n_context,), generator=generator)]
targets = {"cls": labels, "reg": torch.randn(n_context, generator=generator)}
out = {"x": x}
for task, y in targets.items():
    out[f"{task}.y_context"] = y[:, None]
    for case in ("v2", "v2_5", "v2_6"):
        file = Checkpoint(here / f"{case}_{task}.model.safetensors").load()
        module = ARCHITECTURES[file["architecture_name"]]
        model = module.get_architecture(module.parse_config(file["config"])[0])
        model.load_state_dict({k: v for k, v in file["state_dict"].items() if not k.startswith("criterion.")})
        model = model.double().eval()
        with torch.no_grad():
            logits = model(
                x.double(),
                y.double()[:, None],
                only_return_standard_out=True,
                categorical_inds=[[]],
                performance_options=PerformanceOptions(force_recompute_layer=False),
            )
        out[f"{case}_{task}.logits"] = logits[:, 0]
save_file({k: v.contiguous() for k, v in out.items()}, here / "constant_columns.vectors.safetensors")
