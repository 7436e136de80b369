# SPDX-License-Identifier: Apache-2.0
"""If a python3 has PyTorch, checks import, is_available, device_count and a matrix product."""

import os
import sys

PROGRAM = r"""
import sys, warnings
warnings.simplefilter("ignore")
import torch
print("torch=" + torch.__version__, "cuda=%s" % torch.version.cuda)
print("available=%d" % torch.cuda.is_available(), "count=%d" % torch.cuda.device_count())
if torch.cuda.is_available():
    for i in range(torch.cuda.device_count()):
        print("uuid%d=GPU-%s" % (i, getattr(torch.cuda.get_device_properties(i), "uuid", "?")))
    torch.manual_seed(0)
    a, b = torch.randn(512, 512, dtype=torch.float64), torch.randn(512, 512, dtype=torch.float64)
    product = (a.cuda() @ b.cuda()).cpu()
    error = float((product - a @ b).norm() / (a @ b).norm())
    print("matmul=%s" % ("right" if error < 1e-10 else "wrong-%g" % error))
if "set99" in sys.argv:
    try:
        torch.cuda.set_device(99)
        print("set=%d" % torch.cuda.current_device())
    except Exception as error:
        print("set=" + type(error).__name__)
"""


def find_python(box):
    """Returns a python3 that has PyTorch with CUDA, or None."""
    for python in dict.fromkeys((os.environ.get("GPU_CHECK_PYTHON"), "python3", sys.executable)):
        if not python:
            continue
        run = box.run([python, "-c", "import importlib.util as u;"
                                     "print('has=%d' % (u.find_spec('torch') is not None))"])
        if run.words.get("has") == "1":
            return python
    return None


def run_torch(box, python, policy, extra=()):
    return box.run([python, "-c", PROGRAM, *extra], guard=policy is not None, env=policy,
                   timeout=120, watch=policy is not None and "FORCE_CPU" in policy.values())


def value_of(run):
    words = run.words
    return "available %s, %s device(s), matmul %s, %d line(s), %.1f s" % (
        words.get("available"), words.get("count"), words.get("matmul", "none"), len(run.lines()),
        run.seconds)


def rows(box, report):
    what = "PyTorch: import, is_available, device_count, a matrix product"
    if not box.may_enter or box.why_not_watched():
        report.not_filled("torch", what, box.why_not_watched() or "the driver is not entered here")
        return
    python = find_python(box)
    if python is None:
        report.not_filled("torch", what, "no python3 here has PyTorch")
        return
    if box.left() < 60:
        report.not_filled("torch", what, "out of time")
        return
    run = run_torch(box, python, {"CUDAGUARD_POLICY": "FORCE_CPU"})
    report.check("torch.force-cpu", what + ", FORCE_CPU", value_of(run) + ", %d opens" %
                 len(run.opens), run.words.get("available") == "0" and run.words.get("count") == "0"
                 and not run.opens and run.rc == 0, run.short())
    reason = box.why_not() or box.why_no_proxy()
    if reason:
        report.not_filled("torch", what + ", with GPUs", reason)
        return
    unguarded = run_torch(box, python, None)
    if unguarded.words.get("matmul") != "right":
        report.not_filled("torch.unguarded", what + ", unguarded",
                          "unguarded it does not work: " + value_of(unguarded),
                          unguarded.short())
        return
    value = "torch %s, CUDA %s; %s" % (unguarded.words.get("torch"), unguarded.words.get("cuda"),
                                       value_of(unguarded))
    report.info("torch.unguarded", what + ", unguarded", value, unguarded.short())
    uuids = box.uuids()
    for key, env, seen in (
            ("validate", {"CUDAGUARD_POLICY": "VALIDATE"}, unguarded.listed()),
            ("list", {"CUDAGUARD_VISIBLE_DEVICES": "0"}, uuids[:1]),
            ("list-nvml", {"CUDAGUARD_VISIBLE_DEVICES": "0", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
             uuids[:1]),
            ("list-unknown", {"CUDAGUARD_VISIBLE_DEVICES": str(len(uuids))}, [])):
        if box.left() < 60:
            report.not_filled("torch." + key, what, "out of time")
            continue
        run = run_torch(box, python, env)
        good = run.rc == 0 and run.words.get("count") == str(len(seen))
        if seen:
            good = good and run.words.get("matmul") == "right"
            # Older versions of PyTorch do not report the UUID.
            good = good and ("GPU-?" in unguarded.listed() or run.listed() == seen)
        else:
            good = good and run.words.get("available") == "0" and bool(run.lines())
        report.check("torch." + key, what + ", " + " ".join("%s=%s" % i for i in env.items()),
                     value_of(run), good, run.short())
    for policy, wanted in (("VALIDATE", None), ("CLAMP", str(len(uuids) - 1))):
        if box.left() < 60:
            report.not_filled("torch.set99-" + policy, "torch.cuda.set_device(99)", "out of time")
            continue
        run = run_torch(box, python, {"CUDAGUARD_POLICY": policy}, ["set99"])
        got = run.words.get("set")
        good = got == wanted if wanted else got is not None and not got.isdigit()
        report.check("torch.set99-" + policy, "torch.cuda.set_device(99), " + policy,
                     "%s; %d line(s)" % (got, len(run.lines())), good and any(
                         "99" in line for line in run.lines()), run.short())
