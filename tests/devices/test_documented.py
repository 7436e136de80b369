# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/devices.md and docs/workers.md do what the pages say, on a machine with eight
simulated GPUs. The program of a test is in place of the page's program."""

import os
import re
import shlex
import sys

import pytest

from lab import pages
from support import box, harness, messages

LAUNCHER = os.path.join(harness.BUILD, "bin", "cudaguard")
PLACEHOLDER = re.compile(r"python (?:train|serve)\.py")


def commands(page, heading=None, having=""):
    page = os.path.join(harness.SOURCE, "docs", page)
    block = pages.block(harness.read(page), heading, having)
    return [line.split("  #")[0] for line in block.splitlines()]


def followed(command, program, **more):
    """Runs the command with another program, and this build's launcher and guard."""
    command = PLACEHOLDER.sub(lambda _: shlex.join(program), command)
    command = re.sub(r"\bcudaguard run\b", shlex.join([LAUNCHER, "run"]), command)
    command = command.replace("LD_PRELOAD=libcudaguard.so", "LD_PRELOAD=" + harness.GUARD)
    return box.start(["sh", "-c", command], **more)


def seeing(*steps):
    return [box.program("open"), *steps]


NUMBERS = "A GPU number that does not exist"


def test_number_that_does_not_exist_fails_or_is_clamped(case):
    fails, clamps = commands("devices.md", NUMBERS, "--policy CLAMP")
    result = followed(fails, seeing("rt12.set=3", "rt12.current"))
    assert (result.answers["rt12.set"], result.answers["rt12.current"]) == ("101", "0:0"), str(result)
    line, = messages.find(result.err, "bad_index", device="3")
    result = followed(clamps, seeing("rt12.set=3", "rt12.current"))
    assert (result.answers["rt12.set"], result.answers["rt12.current"]) == ("0", "0:1"), str(result)
    (example,) = commands("devices.md", NUMBERS, "cudaguard[7]")
    (shown,) = messages.find(example, "bad_index")
    assert {name: shown[name] for name in ("call", "device", "visible", "gpus", "meant")} == {
        name: line[name] for name in ("call", "device", "visible", "gpus", "meant")}


def test_lists_show_their_gpus(case):
    by_index, by_uuid = commands("devices.md", having="nvidia-smi -L")
    case.sees(followed(by_index, seeing("cu.see", "nv.see")), cu=[2, 5], nv=[2, 5])
    result = followed(re.sub(r"GPU-\w+", box.uuid(4, 8), by_uuid), seeing("cu.see"))
    case.sees(result, cu=[4])


TRAINER = """
import ctypes, os, subprocess, sys
import torch._inductor
worker = os.path.join(os.path.dirname(torch._inductor.__file__), "compile_worker", "__main__.py")
subprocess.run([sys.executable, worker], check=True)
print("trainer", ctypes.CDLL("libcuda.so.1").cuInit(0))
"""
WORKER = "import ctypes; print('worker', ctypes.CDLL('libcuda.so.1').cuInit(0))\n"


def test_torch_compiles_workers_have_no_gpu(tmp_path):
    """The trainer starts them as PyTorch does, which is not installed."""
    worker = tmp_path / "torch" / "_inductor" / "compile_worker" / "__main__.py"
    worker.parent.mkdir(parents=True)
    worker.write_text(WORKER)
    (worker.parent.parent / "__init__.py").touch()
    (tmp_path / "train.py").write_text(TRAINER)
    program = [sys.executable, str(tmp_path / "train.py")]
    trainer, _ = commands("workers.md", having="--children=cpu -- python train.py\ncudaguard")
    result = followed("python train.py", program)
    assert result.out.split() == ["worker", "0", "trainer", "0"], str(result)  # the control
    result = followed(trainer, program)
    assert result.out.split() == ["worker", "100", "trainer", "0"], str(result)
    assert messages.find(result.err, "no_cuda", asked_by=re.compile("__main__.py:1 .*")), str(result)


def both(result):
    return box.seen(result.answers["cu.see"]), box.seen(result.answers["worker.cu.see"])


@pytest.mark.parametrize(("heading", "wanted"), [
    ("One trainer and its workers", (box.FASTEST, "!100")),
    ("A parent without a GPU", ("!100", box.FASTEST))])
def test_roles_are_as_the_page_says(heading, wanted):
    program = seeing("spawn=worker", "cu.see", "end", "cu.see")
    top = commands("workers.md", having="--children=cpu -- python train.py\ncudaguard")
    of_role = top["parent" in heading:][:1]
    for command in of_role + commands("workers.md", heading, "CUDAGUARD_CHILDREN="):
        assert both(followed(command, program)) == wanted, command
