"""The Python side of vs-python, and its measuring.

vs_python.py step MODEL TRAIN.csv THREADS CHECKPOINTING CHUNK_ROWS ESTIMATORS
    Runs one epoch of TabPFN's own fine-tuning on the CPU in float32 and prints, as JSON, the seconds of each step (from
    the chunk's preprocessing to the new weights), the losses, and this process's peak memory when the last step ended.
vs_python.py measure COMMAND...
    Runs COMMAND and prints, as JSON, its peak memory and seconds. Its stdout goes to our stderr.
vs_python.py compare PYTHON.json OURS.json METRICS.jsonl FASTER MEMORY
    Prints both sides and the ratios; status 1 if ours is not FASTER times as fast within MEMORY bytes ("-": not asked).
"""
import json
import os
import resource
import subprocess
import sys
import time


def step(model, table, threads, checkpointing, chunk_rows, estimators):
    os.environ.setdefault("TABPFN_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import pandas
    import torch
    from tabpfn.constants import ModelVersion
    from tabpfn.finetuning import finetuned_base
    from tabpfn.finetuning.finetuned_classifier import FinetunedTabPFNClassifier

    torch.set_num_threads(int(threads))
    rows = pandas.read_csv(table)
    # As float64: what is hashed into the fingerprint column are the numbers that the file says.
    x, y = rows.drop(columns="y").to_numpy("float64"), rows["y"].to_numpy()
    trainer = FinetunedTabPFNClassifier(
        device="cpu", epochs=1, learning_rate=1e-5, validation_split_ratio=None, random_state=17, early_stopping=False,
        n_finetune_ctx_plus_query_samples=int(chunk_rows), finetune_ctx_query_split_ratio=0.2, use_lr_scheduler=False,
        n_estimators_finetune=int(estimators), n_estimators_validation=int(estimators),
        n_estimators_final_inference=int(estimators), save_checkpoint_interval=None, grad_clip_value=1.0,
        use_activation_checkpointing=checkpointing == "on", model_version=ModelVersion("v2.6"),
        extra_classifier_kwargs=dict(model_path=model, ignore_pretraining_limits=True, inference_precision=torch.float32))

    # A step ends when the optimiser has stepped; the first begins where the epoch's chunks are made.
    ends, losses, peak = [], [], [0]
    chunks = finetuned_base.get_preprocessed_dataset_chunks
    update = torch.optim.AdamW.step
    forward = FinetunedTabPFNClassifier._forward_with_loss

    def timed_chunks(*args, **kwargs):
        ends.append(time.monotonic())
        return chunks(*args, **kwargs)

    def timed_update(*args, **kwargs):
        result = update(*args, **kwargs)
        ends.append(time.monotonic())
        peak[0] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
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
    print(json.dumps({"seconds": [b - a for a, b in zip(ends, ends[1:])], "losses": losses, "peak_bytes": peak[0],
                      "torch": torch.__version__}))


def measure(command):
    begin = time.monotonic()
    child = subprocess.Popen(command, stdout=sys.stderr)
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"vs_python.py: {command[0]} ended with wait status {status}")
    print(json.dumps({"peak_bytes": usage.ru_maxrss * 1024, "seconds": time.monotonic() - begin}))


def compare(python, ours, metrics, faster, memory):
    with open(python) as file:
        theirs = json.load(file)
    with open(ours) as file:
        measured = json.load(file)
    with open(metrics) as file:
        steps = [line for line in map(json.loads, file) if "loss" in line and "grad_norm" in line]
    seconds, losses = [s["seconds"] for s in steps], [s["loss"] for s in steps]
    if len(seconds) != len(theirs["seconds"]):
        sys.exit(f"vs_python.py: {len(theirs['seconds'])} steps of Python against {len(seconds)} of ours")
    ratio = min(theirs["seconds"]) / min(seconds)
    gb = 1e9
    line = "  {:<8} {:>8.2f} s a step   {:>6.2f} GB peak   steps {}   losses {}".format
    print(line("python", min(theirs["seconds"]), theirs["peak_bytes"] / gb, [round(s, 2) for s in theirs["seconds"]],
               [round(x, 6) for x in theirs["losses"]]))
    print(line("TabFT", min(seconds), measured["peak_bytes"] / gb, [round(s, 2) for s in seconds],
               [round(x, 6) for x in losses]))
    print("  {:.2f} times as fast, {:.2f} of the memory".format(ratio, measured["peak_bytes"] / theirs["peak_bytes"]))
    # The same work, or the comparison means nothing.
    apart = max(abs(a - b) for a, b in zip(theirs["losses"], losses))
    held = apart <= 2e-3
    if not held:
        print(f"  NOT THE SAME WORK: losses {apart:.1e} apart, at most 2e-3 is accepted")
    if faster != "-":
        fast, small = ratio >= float(faster), measured["peak_bytes"] <= float(memory)
        print(f"  promised {faster} times as fast: {'held' if fast else 'NOT HELD'}; "
              f"within {float(memory) / gb:g} GB: {'held' if small else 'NOT HELD'}")
        held = held and fast and small
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    verb, rest = sys.argv[1], sys.argv[2:]
    if verb == "measure":
        measure(rest)
    else:
        {"step": step, "compare": compare}[verb](*rest)
