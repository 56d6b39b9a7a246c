"""Records what numpy and torch draw, for tests/unit/base/test_random.c. Needs numpy and torch.

A line: call seed n k count hash first... ; values are integers (doubles as their bits), `hash` is FNV-1a over all of
them, `first` are up to six. One generator makes all calls of a seed in the order of the lines, so kept half words and
positions in the stream count as well.
"""
import numpy as np
import torch
from torch.utils.data import DataLoader


def bits(values):
    return np.asarray(values, dtype=np.float64).view(np.uint64).tolist()


def line(call, seed, n, k, values):
    values = [int(v) for v in values]
    h = 0xCBF29CE484222325
    for v in values:
        h = ((h ^ v) * 0x100000001B3) % 2**64
    print(call, seed, n, k, len(values), h, *values[:6])


for seed in (0, 1, 17, 42, 12345, 2**31 - 2, 2**32 - 1, 2**32, 2**40 + 7, 2**63 - 3, 2**64 - 1):
    g = np.random.default_rng(seed)
    line("pcg_integer", seed, 0, 1000, [g.integers(0, 1000) for _ in range(7)])
    line("pcg_double", seed, 9, 0, bits(g.random(9)))
    line("pcg_permutation", seed, 37, 0, g.permutation(37))
    line("pcg_integer", seed, 0, 2**63 - 1, g.integers(0, np.iinfo(np.int64).max, 3))
    line("pcg_integer", seed, 0, 2**31 - 1, g.integers(0, np.iinfo(np.int32).max, 5))
    line("pcg_integer", seed, -5, 2**32 - 5, g.integers(-5, 2**32 - 5, 3))
    line("pcg_choice", seed, 8, 8, g.choice(8, size=8, replace=False))
    line("pcg_choice", seed, 5000, 41, g.choice(5000, size=41, replace=False))
    line("pcg_choice", seed, 20000, 5000, g.choice(20000, size=5000, replace=False))
    line("pcg_choice", seed, 20000, 400, g.choice(20000, size=400, replace=False))
    line("pcg_choice", seed, 20000, 401, g.choice(20000, size=401, replace=False))
    line("pcg_choice", seed, 10001, 10001, g.choice(10001, size=10001, replace=False))
    line("pcg_choice_repeated", seed, 20, 7, g.choice(20, size=7, replace=True))
    line("pcg_choice_repeated", seed, 3, 1, [g.choice(3)])
    items = list(range(11))
    g.shuffle(items)
    line("pcg_permutation", seed, 11, 0, items)
    line("pcg_permutation", seed, 70000, 0, g.permutation(70000))
    line("pcg_permutation", seed, 1, 0, g.permutation(1))

for seed in (0, 1, 17, 42, 2**31, 2**32 - 1):
    r = np.random.RandomState(seed)
    line("mt_permutation", seed, 53, 0, r.permutation(53))
    line("mt_double", seed, 5, 0, bits(r.random_sample(5)))
    line("mt_bounded", seed, 2**31 - 2, 4, [r.randint(0, 2**31 - 1) for _ in range(4)])
    line("mt_bounded", seed, 2**40, 4, [r.randint(0, 2**40 + 1, dtype=np.int64) for _ in range(4)])
    items = np.arange(30)
    r.shuffle(items)
    line("mt_permutation", seed, 30, 0, items)
    line("mt_permutation", seed, 4000, 0, r.permutation(4000))
    line("mt_choice", seed, 9, 4, r.choice(np.arange(9), size=4, replace=False))
    line("mt_permutation", seed, 1, 0, r.permutation(1))

for seed in (0, 3, 17, 2**32 - 1, 2**33 + 5):
    for n in (1, 2, 13, 1000):
        g = torch.Generator().manual_seed(seed)
        line("torch_permutation", seed, n, 0, torch.randperm(n, generator=g).tolist())
        g = torch.Generator().manual_seed(seed)
        if n >= 13:  # tenths: torch's own logarithms and angles are approximate
            normals = torch.randn(n + 7, generator=g) * 10
            line("torch_normals", seed, n + 7, 0, torch.floor(normals).to(torch.int64) + 2**20)
        g = torch.Generator().manual_seed(seed)
        line("torch_loader", seed, n, 0, [int(b) for b in DataLoader(list(range(n)), batch_size=1, shuffle=True, generator=g)])
