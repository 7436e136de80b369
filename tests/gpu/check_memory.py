# SPDX-License-Identifier: Apache-2.0
"""Measures the GPU memory of Python programs that use a GPU if there is one: unguarded, with an empty
CUDA_VISIBLE_DEVICES, and below `cudaguard run`. README's table has these numbers."""

import os
import re
import threading
import time

from check_torch import find_python

MIB = 2**20
LINE = re.compile(r"test_\d\.py:4\b")  # of TESTS
STAY = "import time; time.sleep(1)\n"  # until the memory was read
TESTS = """
import time
import torch
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
def test_product():
    ones = torch.ones(64, 64, device=DEVICE)
    assert (ones @ ones).sum().item() == 64**3
    time.sleep(1)
"""
WORKERS = """
import multiprocessing, sys, time
import torch
def work(barrier):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    assert torch.ones(8, device=device).sum().item() == 8
    barrier.wait(100)
    time.sleep(1)
if __name__ == "__main__":
    if "trainer" in sys.argv:
        trained = torch.ones(8, device="cuda" if torch.cuda.is_available() else "cpu")
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(8)
    workers = [spawn.Process(target=work, args=(barrier,)) for _ in range(8)]
    for worker in workers: worker.start()
    for worker in workers: worker.join()
    assert not any(worker.exitcode for worker in workers)
"""
JAX = "import jax\nassert float(jax.numpy.ones(8).sum()) == 8\nprint('on=' + jax.default_backend())\n"
TRAINER = """
import torch, transformers as t
config = t.BertConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                      intermediate_size=37, num_labels=2)
rows = [{"input_ids": torch.arange(8), "labels": torch.tensor(i % 2)} for i in range(32)]
arguments = t.TrainingArguments("trained", max_steps=5, report_to=[], save_strategy="no")
t.Trainer(t.BertForSequenceClassification(config), arguments, train_dataset=rows).train()
"""
LIGHTNING = """
import torch, lightning as l
class Model(l.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)
    def training_step(self, batch, _):
        return self.layer(batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
data = torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=8)
l.Trainer(max_steps=5, logger=False, enable_checkpointing=False, enable_progress_bar=False).fit(
    Model(), data)
"""
PROGRAMS = (  # key, what, modules it needs, its text
    ("pytest", "PyTorch, pytest -n 8", ("torch", "pytest", "xdist"), None),
    ("spawn", "PyTorch, 8 spawned workers", ("torch",), WORKERS),
    ("jax", "JAX, the first array", ("jax", "jaxlib", "jax_cuda13_plugin"), JAX + STAY),
    ("trainer", "transformers, Trainer", ("torch", "transformers", "accelerate"), TRAINER + STAY),
    ("lightning", "Lightning, Trainer", ("torch", "lightning"), LIGHTNING + STAY),
)


class Peak:
    """The highest use of each GPU while it is entered, and the use before, in MiB."""

    def __init__(self, box):
        self.box = box
        self.before = box.used_memory()
        self.highest = list(self.before or [])
        self.ended = threading.Event()
        self.reader = threading.Thread(target=self.read, daemon=True)

    def read(self):
        while not self.ended.is_set():
            now = self.box.used_memory() or self.highest
            self.highest = [max(pair) for pair in zip(self.highest, now)]
            self.ended.wait(0.1)

    def __enter__(self):
        self.reader.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.reader.join()

    def grown(self):
        return max(high - low for high, low in zip(self.highest, self.before)) / MIB


def settled(box):
    """Waits until processes that ended have given their memory back."""
    used = box.used_memory()
    for _ in range(20):
        time.sleep(0.2)
        used, last = box.used_memory(), used
        if used == last:
            return


def measure(box, command, env=None, launcher=()):
    settled(box)
    with Peak(box) as peak:
        run = box.run([*launcher, *command], env=env, timeout=120, cwd=box.scratch)
    return run, peak.grown()


def write_program(box, key, text):
    """Returns the command's words after the interpreter."""
    if text is not None:
        path = os.path.join(box.scratch, "program_%s.py" % key)  # jax.py would hide the module
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
        return [path]
    suite = os.path.join(box.scratch, "suite")
    os.makedirs(suite, exist_ok=True)
    for number in range(8):
        with open(os.path.join(suite, "test_%d.py" % number), "w", encoding="utf-8") as stream:
            stream.write(TESTS)
    return ["-m", "pytest", "-q", "-n", "8", "-p", "no:cacheprovider", suite]


def program(box, report, python, key, what, words):
    name, what = "memory." + key, "GPU memory, whole program: " + what
    command = [python, *words]
    unguarded, size = measure(box, command)
    value = "unguarded %.0f MiB, %.1f s" % (size, unguarded.seconds)
    if unguarded.rc != 0 or size < 50:
        report.not_filled(name, what, "unguarded: exit code %s, %.0f MiB" % (unguarded.rc, size),
                          unguarded.short())
        return
    empty, taken = measure(box, command, {"CUDA_VISIBLE_DEVICES": ""})
    value += "; CUDA_VISIBLE_DEVICES= %.0f MiB, %.1f s (exit code %s)" % (taken, empty.seconds,
                                                                        empty.rc)
    guarded, taken = measure(box, command, launcher=[box.launcher, "run", "--"])
    value += "; guarded %.0f MiB, %.1f s (exit code %s), %d message(s)" % (
        taken, guarded.seconds, guarded.rc, len(guarded.lines()))
    report.check(name, what, value, guarded.rc == 0 and taken < size * 0.01 + 1,
                 {"unguarded": unguarded.short(), "empty": empty.short(),
                  "guarded": guarded.short()})


def children(box, report, python):
    name, what = "memory.children", "GPU memory of a PyTorch trainer and its 8 spawned workers"
    command = [python, *write_program(box, "children", WORKERS), "trainer"]
    unguarded, size = measure(box, command)
    guarded, taken = measure(box, command, launcher=[box.launcher, "run", "--gpus", "0",
                                                     "--children=cpu", "--"])
    report.check(name, what, "unguarded %.0f MiB, %.1f s; run --gpus 0 --children=cpu %.0f MiB, %.1f s" % (
        size, unguarded.seconds, taken, guarded.seconds),
        (unguarded.rc, guarded.rc) == (0, 0) and size / 12 < taken < size / 6,
        {"unguarded": unguarded.short(), "guarded": guarded.short()})


def verify(box, report, python):
    command = [box.launcher, "verify", "--", python, *write_program(box, "pytest", None)]
    run = box.run(command, timeout=120, cwd=box.scratch)
    named = LINE.findall(run.out + run.err)
    report.check("memory.verify", "verify -- pytest -n 8: it fails, and names the line",
                 "exit code %s; %s" % (run.rc, " ".join(named)), run.rc == 1 and named, run.short())


def rows(box, report):
    what = "GPU memory of Python programs, unguarded and guarded"
    reason = box.why_not()
    python = None if reason else find_python(box)
    if not reason and python is None:
        reason = "no python3 here has PyTorch"
    if not reason and box.used_memory() is None:
        reason = "NVML reports no memory"
    if reason:
        report.not_filled("memory", what, reason)
        return
    for key, name, modules, text in PROGRAMS:
        has = box.run([python, "-c", "import importlib.util as u; print('missing=' + ','.join(m for m "
                                     "in %r if u.find_spec(m) is None))" % (modules,)])
        missing = has.words.get("missing", "?")
        if missing or box.left() < 60:
            report.not_filled("memory." + key, what + ": " + name,
                              "not installed: " + missing if missing else "out of time")
            continue
        program(box, report, python, key, name, write_program(box, key, text))
    for more in (children, verify):
        if box.left() > 60:
            more(box, report, python)
