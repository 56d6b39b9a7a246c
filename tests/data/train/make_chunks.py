"""Makes chunks.txt: how TabPFN 9.2.0 shuffles, chunks, orders and splits rows (pip install tabpfn==9.2.0).
A case: task rows labels rule chunk_rows ratio seed epoch. Labels follow `label` below, which the test repeats.
A chunk, in the order steps take it: its number, rows of context and query, and FNV-1a hashes of the row numbers as
decimal text with blanks. A validation split likewise. Usage: make_chunks.py > chunks.txt"""
import os
os.environ["TABPFN_DISABLE_TELEMETRY"] = "1"
import numpy as np, torch
from tqdm.auto import tqdm
from sklearn.model_selection import train_test_split
from tabpfn.finetuning.data_util import shuffle_and_chunk_data
from tabpfn.finetuning.finetuned_base import _ratio_ctx_query_split

def label(rule, i, n, labels):
    if rule == "mixed": return (i * 7919 + i // 3) % labels
    if rule == "skewed": return min(labels - 1, (i * 2654435761 % 4294967296) * 3 // 4294967296 + (i % 11 == 0))
    if rule == "rare": return 1 if i == n // 2 else 2 if i in (3, 5) else 0

def fnv(rows):
    h = 14695981039346656037
    for b in " ".join(str(int(r)) for r in rows).encode(): h = (h ^ b) * 1099511628211 % 2**64
    return f"{h:016x}"

cases = [("cls", 400, 2, "mixed", 200, .2, 17, 0), ("cls", 400, 2, "mixed", 200, .2, 17, 1), ("cls", 2000, 2, "skewed", 1000, .2, 17, 1),
         ("cls", 9001, 3, "mixed", 3000, .2, 7, 2), ("cls", 9001, 3, "skewed", 3000, .37, 7, 0), ("cls", 7500, 4, "skewed", 2500, .2, 0, 29),
         ("cls", 6100, 5, "mixed", 4000, .1, 3, 1), ("cls", 500, 3, "rare", 100, .2, 5, 0), ("cls", 40, 3, "rare", 100, .2, 5, 1),
         ("cls", 500, 10, "mixed", 400, .2, 4294967290, 3), ("cls", 60, 10, "mixed", 30, .05, 1, 0),
         ("reg", 9001, 0, "none", 3000, .2, 7, 2), ("reg", 6100, 0, "none", 4000, .3, 7, 0), ("reg", 5000, 0, "none", 3500, .3, 7, 0)]
for task, n, labels, rule, rows, ratio, seed, epoch in cases:
    X = np.arange(n).reshape(-1, 1)
    y = np.array([label(rule, i, n, labels) for i in range(n)]) if task == "cls" else np.arange(n) * .5
    e = seed + epoch
    chunks, ys = shuffle_and_chunk_data(X, y, max_chunk_size=min(rows, n), equal_split_size=False, seed=e,
                                        task="multiclass" if task == "cls" else "regression")
    low = len(np.unique(y)) if task == "cls" else 1
    print("case", task, n, labels, rule, rows, ratio, seed, epoch, len(chunks))
    loader = torch.utils.data.DataLoader(list(range(len(chunks))), batch_size=1, shuffle=True, generator=torch.Generator().manual_seed(e))
    for i in (int(b) for b in tqdm(loader, disable=True)):  # as TabPFN's loop does: tqdm.auto starts an iterator more
        c, q, _, _ = _ratio_ctx_query_split(chunks[i], ys[i], query_ratio=ratio, min_query_size=low, random_state=e, stratify=ys[i] if task == "cls" else None)
        print("chunk", i, len(c), len(q), fnv(c[:, 0]), fnv(q[:, 0]))
    try:
        a, b, _, _ = train_test_split(X, y, test_size=max(int(n * .1), low), random_state=seed, stratify=y if task == "cls" else None)
        print("validation", len(a), len(b), fnv(a[:, 0]), fnv(b[:, 0]))
    except ValueError as err:
        print("validation refused", str(err).replace("\n", " ")[:60])
