"""The Python side of vs-python, and its measuring.

vs_python.py step VERSION MODEL TRAIN.csv THREADS CHUNK_ROWS ESTIMATORS [DEVICE EPOCHS]
    Runs one epoch, or EPOCHS, of TabPFN's own fine-tuning on the CPU in float32, or on DEVICE (cuda) in the precision
    that it has by default, and prints, as JSON, the seconds of each step (from the chunk's preprocessing to the new
    weights), the losses, and this process's peak memory, or that of the GPU, when the last step ended. THREADS: 0 as
    many as torch takes.
vs_python.py predict MODEL TRAIN.csv TEST.csv THREADS ESTIMATORS PROBABILITIES.csv
    Fits TabPFN and predicts, as it is by default but on the CPU in float32; prints, as JSON, the seconds from before
    fit to the probabilities, and this process's peak memory.
vs_python.py measure COMMAND...
    Runs COMMAND and prints, as JSON, its peak memory and seconds. Its stdout goes to our stderr.
vs_python.py compare-steps PYTHON.json OURS.json METRICS.jsonl WEIGHTS FASTER MEMORY
vs_python.py compare-predictions PYTHON.json OURS.json PYTHON.csv OURS.csv WEIGHTS FASTER MEMORY
    Print both sides and the ratios; status 1 if ours is not FASTER times as fast or not within MEMORY bytes, or, as
    "1/3", within that share of Python's; "-": not asked. WEIGHTS: fresh, then both sides give the same numbers but for
    rounding; or trained, then the network sees the fingerprint columns too, in which a few rows hash other last bits,
    those of an SVD.
"""
import json
import os
import resource
import subprocess
import sys
import time


def read(table):
    import pandas

    # As float64: what is hashed into the fingerprint column are the numbers that the file says.
    rows = pandas.read_csv(table)
    return rows.drop(columns="y").to_numpy("float64"), rows["y"].to_numpy()


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def step(version, model, table, threads, chunk_rows, estimators, device="cpu", epochs="1"):
    import torch
    from tabpfn.constants import ModelVersion
    from tabpfn.finetuning import finetuned_base
    from tabpfn.finetuning.finetuned_classifier import FinetunedTabPFNClassifier

    if int(threads) > 0:
        torch.set_num_threads(int(threads))
    x, y = read(table)
    precision = dict(inference_precision=torch.float32) if device == "cpu" else {}
    trainer = FinetunedTabPFNClassifier(
        device=device, epochs=int(epochs), learning_rate=1e-5, validation_split_ratio=None, random_state=17,
        early_stopping=False,
        n_finetune_ctx_plus_query_samples=int(chunk_rows), finetune_ctx_query_split_ratio=0.2, use_lr_scheduler=False,
        n_estimators_finetune=int(estimators), n_estimators_validation=int(estimators),
        n_estimators_final_inference=int(estimators), save_checkpoint_interval=None, grad_clip_value=1.0,
        use_activation_checkpointing=True, model_version=ModelVersion(version),
        extra_classifier_kwargs=dict(model_path=model, ignore_pretraining_limits=True, **precision))

    # A step ends when the optimiser has stepped; an epoch's first begins where its chunks are made.
    begin, seconds, losses, peak = [0.0], [], [], [0]
    chunks = finetuned_base.get_preprocessed_dataset_chunks
    update = torch.optim.AdamW.step
    forward = FinetunedTabPFNClassifier._forward_with_loss

    def timed_chunks(*args, **kwargs):
        begin[0] = time.monotonic()
        return chunks(*args, **kwargs)

    def timed_update(*args, **kwargs):
        result = update(*args, **kwargs)
        if device != "cpu":
            torch.cuda.synchronize()
        now = time.monotonic()
        seconds.append(now - begin[0])
        begin[0] = now
        peak[0] = peak_bytes() if device == "cpu" else torch.cuda.max_memory_reserved()
        return result

    def seen_forward(self, batch):
        loss = forward(self, batch)
        losses.append(float(loss.detach()))
        return loss

    finetuned_base.get_preprocessed_dataset_chunks = timed_chunks
    torch.optim.AdamW.step = timed_update
    FinetunedTabPFNClassifier._forward_with_loss = seen_forward
    # What comes after the last step (fitting for prediction) is not of the step and not measured.
    trainer.fit(x, y)
    print(json.dumps({"seconds": seconds, "losses": losses, "peak_bytes": peak[0],
                      "torch": torch.__version__}))


def predict(model, train, test, threads, estimators, out):
    import torch
    from tabpfn import TabPFNClassifier

    torch.set_num_threads(int(threads))
    (x, y), (x_test, _) = read(train), read(test)
    begin = time.monotonic()
    classifier = TabPFNClassifier(
        model_path=model, device="cpu", n_estimators=int(estimators), random_state=17, ignore_pretraining_limits=True,
        inference_precision=torch.float32)
    probabilities = classifier.fit(x, y).predict_proba(x_test)
    seconds = time.monotonic() - begin
    with open(out, "w") as file:
        for row in probabilities:
            print(*row, sep=",", file=file)
    print(json.dumps({"seconds": seconds, "peak_bytes": peak_bytes(), "torch": torch.__version__}))


def measure(command):
    begin = time.monotonic()
    child = subprocess.Popen(command, stdout=sys.stderr)
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"vs_python.py: {command[0]} ended with wait status {status}")
    print(json.dumps({"peak_bytes": usage.ru_maxrss * 1024, "seconds": time.monotonic() - begin}))


def load(path):
    with open(path) as file:
        return json.load(file)


def row(name, what, seconds, bytes_, rest):
    print(f"    {name:<8} {seconds:>8.2f} s {what}   {bytes_ / 1e9:>6.2f} GB peak   {rest}")


def verdict(theirs, ours, theirs_bytes, ours_bytes, faster, memory):
    """Prints the ratios and whether what was promised held."""
    ratio = theirs / ours
    print(f"    {ratio:.2f} times as fast, {ours_bytes / theirs_bytes:.2f} of the memory")
    promises = []
    if faster != "-":
        promises.append((f"{faster} times as fast", ratio >= float(faster)))
    if memory.startswith("1/"):
        promises.append((f"within {memory} of the memory", ours_bytes <= theirs_bytes / int(memory[2:])))
    elif memory != "-":
        promises.append((f"within {float(memory) / 1e9:g} GB", ours_bytes <= float(memory)))
    for what, held in promises:
        print(f"    promised {what}: {'held' if held else 'NOT HELD'}")
    return all(held for _, held in promises)


def same(what, apart, most):
    """The same work, or the comparison means nothing."""
    if apart <= most:
        return True
    print(f"    NOT THE SAME WORK: {what} {apart:.1e} apart, at most {most:.0e} is accepted")
    return False


def compare_steps(python, ours, metrics, weights, faster, memory):
    theirs, measured = load(python), load(ours)
    with open(metrics) as file:
        steps = [line for line in map(json.loads, file) if "loss" in line and "grad_norm" in line]
    seconds, losses = [s["seconds"] for s in steps], [s["loss"] for s in steps]
    if len(seconds) != len(theirs["seconds"]):
        sys.exit(f"vs_python.py: {len(theirs['seconds'])} steps of Python against {len(seconds)} of ours")
    told = "steps {}   losses {}".format
    row("python", "a step", min(theirs["seconds"]), theirs["peak_bytes"],
        told([round(s, 2) for s in theirs["seconds"]], [round(x, 6) for x in theirs["losses"]]))
    row("TabFT", "a step", min(seconds), measured["peak_bytes"],
        told([round(s, 2) for s in seconds], [round(x, 6) for x in losses]))
    held = same("losses", max(abs(a - b) for a, b in zip(theirs["losses"], losses)),
                2e-3 if weights == "trained" else 1e-4)
    return verdict(min(theirs["seconds"]), min(seconds), theirs["peak_bytes"], measured["peak_bytes"], faster,
                   memory) and held


def compare_predictions(python, ours, python_csv, ours_csv, weights, faster, memory):
    theirs, measured = load(python), load(ours)
    with open(python_csv) as file:
        expected = [[float(x) for x in line.split(",")] for line in file]
    with open(ours_csv) as file:
        found = [[float(x) for x in line.split(",")[2:]] for line in file.readlines()[1:]]
    if [len(line) for line in expected] != [len(line) for line in found]:
        sys.exit("vs_python.py: the two predictions have different numbers of rows or classes")
    apart = [abs(a - b) for p, q in zip(expected, found) for a, b in zip(p, q)]
    row("python", "from fit to probabilities", theirs["seconds"], theirs["peak_bytes"], f"{len(expected)} rows")
    row("TabFT", "the whole process", measured["seconds"], measured["peak_bytes"],
        f"probabilities at most {max(apart):.1e} apart")
    held = same("probabilities, on average,", sum(apart) / len(apart), 1e-2 if weights == "trained" else 1e-5)
    return verdict(theirs["seconds"], measured["seconds"], theirs["peak_bytes"], measured["peak_bytes"], faster,
                   memory) and held


if __name__ == "__main__":
    os.environ.setdefault("TABPFN_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    verb, rest = sys.argv[1], sys.argv[2:]
    if verb == "measure":
        measure(rest)
    elif verb in ("step", "predict"):
        {"step": step, "predict": predict}[verb](*rest)
    else:
        held = {"compare-steps": compare_steps, "compare-predictions": compare_predictions}[verb](*rest)
        sys.exit(0 if held else 1)
