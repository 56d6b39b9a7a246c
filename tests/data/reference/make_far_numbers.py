"""Makes far_numbers.vectors.safetensors: the logits of all versions' tiny networks, in float32, for a table with columns whose
squares, or the sum of them, are beyond float32, or vanish in it.
Needs `pip install tabpfn==9.2.0`; reads the networks beside it."""
import pathlib
import sys
import torch
from safetensors.torch import save_file
from tabpfn.architectures import ARCHITECTURES
from tabpfn.architectures.interface import PerformanceOptions
from tabpfn.checkpoint import Checkpoint

here = pathlib.Path(__file__).parent
out_folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here
generator = torch.Generator().manual_seed(6)
n_context, n_query = 30, 9
x = torch.randn(n_context + n_query, 1, 8, generator=generator)
x[torch.rand(x.shape, generator=generator) < 0.05] = float("nan")
for column, scale in ((1, 1e25), (3, 1e-25), (4, 9e18), (6, 1e-20), (7, 1e-36)):
    x[:, 0, column] *= scale
labels = torch.randint(0, 3, (n_context,), generator=generator).float()
targets = {"cls": labels, "reg": torch.randn(n_context, generator=generator)}
out = {"x": x}
for task, y in targets.items():
    out[f"{task}.y_context"] = y[:, None]
    for case in (f"v2_{task}", f"v2_5_{task}", f"v2_6_{task}", f"v3_{task}", "v3_5"):
        file = Checkpoint(here / f"{case}.model.safetensors").load()
        module = ARCHITECTURES[file["architecture_name"]]
        model = module.get_architecture(module.parse_config(file["config"])[0])
        model.load_state_dict({k: v for k, v in file["state_dict"].items() if not k.startswith("criterion.")})
        which = {"task_type": "multiclass" if task == "cls" else "regression"} if case == "v3_5" else {}
        with torch.no_grad():
            logits = model.eval()(x, y[:, None], only_return_standard_out=True, categorical_inds=[[]],
                                  performance_options=PerformanceOptions(force_recompute_layer=False), **which)
        out[f"{case.removesuffix('_' + task)}_{task}.logits"] = logits[:, 0]
save_file({k: v.contiguous() for k, v in out.items()}, out_folder / "far_numbers.vectors.safetensors")
