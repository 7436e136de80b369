# SPDX-License-Identifier: Apache-2.0
"""Checks NO_CONTEXT: queries are answered and hold no GPU memory, and no program makes a context."""

import sys

import box as machine
from check_contexts import MIB, grown
from check_torch import find_python

# Asks the driver and NVML for what queries need, waits, and tries to make a context.
ASK = """
import ctypes, sys
cuda, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
number, name, device = ctypes.c_int(-7), ctypes.create_string_buffer(99), ctypes.c_void_p()
by = ctypes.byref
answers = [cuda.cuInit(0)]
for _ in range(20):
    answers += [cuda.cuDeviceGetCount(by(number)), cuda.cuDeviceGetName(name, 99, 0)]
words = ["queries=%d" % max(answers), "count=%d" % number.value]
cuda.cuDeviceGetAttribute(by(number), 20, 0)
words.append("mode=%d" % number.value)
nvml.nvmlInit_v2()
nvml.nvmlDeviceGetHandleByIndex_v2(0, by(device))
nvml.nvmlDeviceGetComputeMode(device, by(number))
words.append("nvmlMode=%d" % number.value)
print(*words, flush=True)
sys.stdin.readline()
for call, arguments in (("cuDevicePrimaryCtxRetain", (0,)), ("cuCtxCreate_v2", (0, 0))):
    print("%s=%d" % (call, getattr(cuda, call)(by(ctypes.c_void_p()), *arguments)))
"""
FRAMEWORKS = {"torch": """
import torch
print("count=%d" % torch.cuda.device_count())
try:
    torch.ones(1, device="cuda")
    print("made=1")
except Exception as error:
    print("made=0 error=" + type(error).__name__)
""", "jax": """
import jax
try:
    print("made=%d" % (jax.numpy.ones(1).devices().pop().platform == "gpu"))
except Exception as error:
    print("made=0 error=" + type(error).__name__)
"""}
MODULES = {"torch": "torch", "jax": "jax_cuda13_plugin"}


def driver(box, report):
    before = box.used_memory()
    held = box.hold([box.launcher, "run", "--policy", "NO_CONTEXT", "--", sys.executable, "-c", ASK])
    words = machine.words_of(held.line(60) or "")
    after = box.used_memory()
    held.send("1")
    words.update(machine.words_of(held.end(60)))
    detail = {"words": words, "err": held.err()[:2000]}
    report.check("no_context.queries", "NO_CONTEXT: 20 queries are answered",
                 "worst answer %s, %s GPUs" % (words.get("queries"), words.get("count")),
                 words.get("queries") == "0" and words.get("count") == str(len(box.gpus)), detail)
    if before and after:
        report.check("no_context.memory", "NO_CONTEXT: GPU memory that these queries take",
                     "%.0f MiB" % grown(before, after), abs(grown(before, after)) * MIB < 16 * MIB)
    else:
        report.not_filled("no_context.memory", "NO_CONTEXT: GPU memory of queries",
                          "NVML reports no memory")
    answers = [words.get(call) for call in ("cuDevicePrimaryCtxRetain", "cuCtxCreate_v2")]
    report.check("no_context.driver", "NO_CONTEXT: the driver API makes no context",
                 "answers " + " ".join(map(str, answers)), answers == ["46", "46"], detail)
    modes = [words.get("mode"), words.get("nvmlMode")]
    report.check("no_context.mode", "NO_CONTEXT: compute mode of CUDA and NVML",
                 " ".join(map(str, modes)), modes == ["2", "2"], detail)


def runtimes(box, report):
    for major, kind, name in box.runtimes():
        row, what = "no_context.%s-%s" % (major, kind), "NO_CONTEXT: runtime %s, %s, counts" % (
            major, kind)
        # The fake runtime cannot copy.
        control = box.run([box.program(name), *(["copy=0"] if box.fake else [])])
        if control.number("count") != len(box.gpus):
            report.not_filled(row, what, "unguarded it does not count", control.short())
            continue
        run = box.run([box.launcher, "run", "--policy", "NO_CONTEXT", "--", box.program(name)])
        copies = [value for key, value in run.words.items() if key.startswith("copy")]
        report.check(row, what + ", and copies nothing", "count %s; copies: %s" % (
            run.words.get("count"), " ".join(copies)),
            run.number("count") == len(box.gpus) and "right" not in copies, run.short())


def frameworks(box, report):
    python = find_python(box)
    for name, program in FRAMEWORKS.items():
        row, what = "no_context." + name, "NO_CONTEXT: %s makes no context" % name
        asks = "import importlib.util as u; print('has=%%d' %% bool(u.find_spec('%s')))" % MODULES[name]
        if python is None or box.run([python, "-c", asks]).words.get("has") != "1":
            report.not_filled(row, what, "no python3 has it")
            continue
        run = box.run([box.launcher, "run", "--policy", "NO_CONTEXT", "--", python, "-c", program],
                      timeout=120)
        report.check(row, what, "count %s, made %s, %s" % tuple(
            run.words.get(key) for key in ("count", "made", "error")),
            run.words.get("made") == "0", run.short())


def rows(box, report):
    reason = box.why_not() or box.why_no_proxy()
    if reason:
        report.not_filled("no_context", "NO_CONTEXT: queries and contexts", reason)
        return
    driver(box, report)
    runtimes(box, report)
    frameworks(box, report)
