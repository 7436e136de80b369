# SPDX-License-Identifier: Apache-2.0
"""The words of the message: the caller and its program, and what allows CUDA there."""

import os
import re

import pytest

from support import guest, harness, messages

SCRIPT = """import ctypes, sys
for name, call in (("libnvidia-ml.so.1", "nvmlInit_v2"), ("libcuda.so.1", "cuInit")):
    print(call, getattr(ctypes.CDLL(name), call)(0), sep="=")
"""
FORKS = ("fork", "ask", "end", "fork", "nvml", "ask", "end")
# A package; its function, called by its own module, and by a pool.
ASKS = """import ctypes
def ask():
    return ctypes.CDLL("libcuda.so.1").cuInit(0)
if __name__ == "__main__":
    ask()
"""
POOL = """import ctypes, sys
from concurrent.futures import ThreadPoolExecutor
from pkg.asks import ask
with ThreadPoolExecutor(1) as pool:
    pool.submit(*((ask,) if sys.argv[1:] else (ctypes.CDLL("libcuda.so.1").cuInit, 0))).result()
"""
# As IPython runs a cell.
CELL = """import sys
cell = "import ctypes\\n\\nctypes.CDLL('libcuda.so.1').cuInit(0)\\n"
exec(compile(cell, sys.argv[1], "exec"), {})
"""


@pytest.mark.parametrize(("words", "by"),
                         [(["-m", "pkg.asks"], "pkg/asks.py:5 through ctypes/cffi"),
                          (["pool.py", "package"], "pkg/asks.py:3 through ctypes/cffi"),
                          (["pool.py"], r"ctypes/cffi \(libffi\S+\) in python3 pool\.py")])
def test_without_a_line_of_the_users_a_package_is_named(case, words, by):
    """Never the standard library; where there is nothing else, the command."""
    case.make("site-packages/pkg/__init__.py", "")
    case.make("site-packages/pkg/asks.py", ASKS)
    case.make("pool.py", POOL)
    words = [case.path(word) if word.endswith(".py") else word for word in words]
    env = {"PYTHONPATH": case.path("site-packages"), "PYTHONDONTWRITEBYTECODE": "1"}
    harness.run([guest.PYTHON, *words], guard=False, env=env).assert_reached(case)
    result = harness.run([guest.PYTHON, *words], env=env)
    result.assert_untouched(case)
    assert len(guest.lines_of(result.err)) == 1, str(result)
    found, = messages.find(result.err, "no_cuda")
    assert re.search(r"\A%s\Z" % by, found["asked_by"]), str(found["asked_by"])


@pytest.mark.parametrize(("file", "cell", "remedy"),
                         [("/tmp/ipykernel_7/2815143473.py", "notebook cell, line 3",
                           messages.text("remedy_kernel", remedy=guest.OFF, key="env")),
                          ("<ipython-input-12-0a1b2c>", "notebook cell 12, line 3", guest.OFF)])
def test_message_names_the_notebook_cell(case, file, cell, remedy):
    argv = [guest.PYTHON, case.make("kernel.py", CELL), file]
    harness.run(argv, guard=False).assert_reached(case)
    result = harness.run(argv)
    result.assert_untouched(case)
    assert guest.lines_of(result.err) == [
        messages.text("no_cuda", cause="FORCE_CPU", asked_by=cell + " through ctypes/cffi",
                      remedy=remedy)
    ], str(result)


def messages_by_process(result):
    """The guard's lines, with the process that each is of."""
    return [match.groups() for match in map(guest.LINE.match, result.err.splitlines()) if match]


def test_control_driver_is_reached_without_the_guard(case):
    result = case.steps("nvml", "ask", "fork", "ask", "end", guard=False)
    result.assert_reached(case)
    # NVML's entry points call each other.
    calls = ["nvmlInit_v2", "nvmlInitWithFlags", "cuInit"]
    assert result.init_calls()[:3] == calls, str(result)
    result = harness.run([guest.PYTHON, case.make("ppo.py", SCRIPT)], guard=False)
    assert result.init_calls() == calls, str(result)


@pytest.mark.parametrize(
    ("steps", "libraries"),
    [(["nvml", "nvml", "ask", "nvml", "ask"], ["nvml", "cuda"]),
     (["load:libnvidia-opencl.so.1", "load:libnvidia-opencl.so.1", "nvml", "ask"],
      ["opencl", "nvml", "cuda"]), (["ask", "load:libnvidia-opencl.so.1", "nvml"], ["cuda"])])
def test_nvml_opencl_and_cuda_each_have_a_message(case, steps, libraries):
    """NVML, OpenCL and CUDA each have a message; the first two none after CUDA's."""
    lines = {"cuda": guest.DENIED, "nvml": guest.NO_GPU, "opencl": guest.NO_OPENCL}
    result = case.steps(*steps)
    result.assert_untouched(case)
    assert guest.lines_of(result.err) == [lines[library] % "steps"
                                          for library in libraries], str(result)


@pytest.mark.parametrize(("argv", "file"), [(["ppo.py", "--cuda"], "ppo.py"),
                                            (["-u", "-B", "ppo.py"], "ppo.py"),
                                            (["-m", "ppo"], "ppo.py")])
def test_message_names_the_scripts_line_and_ctypes(case, argv, file):
    """The script's line, ctypes by its name; as a module."""
    case.make("ppo.py", SCRIPT)
    argv = [case.path(word) if word.endswith(".py") else word for word in argv]
    result = harness.run([guest.PYTHON, *argv], cwd=case.directory,
                         env={"PYTHONDONTWRITEBYTECODE": "1"})
    result.assert_untouched(case)
    by = file + ":3 through ctypes/cffi"
    assert guest.lines_of(result.err) == [guest.NO_GPU % by, guest.DENIED % by], str(result)


def test_generated_code_names_the_program(case):
    """As a just-in-time compiler makes it."""
    program = guest.binary("jit")
    harness.run([program], guard=False).assert_reached(case)
    result = harness.run([program])
    result.assert_untouched(case)
    assert guest.lines_of(result.err) == [guest.DENIED % "generated code in jit"], str(result)


def test_message_names_the_line_that_calls_the_opencl_loader(case):
    """The callers of the loader are Python's frames."""
    loader = next((path for path in ("/usr/lib/x86_64-linux-gnu/libOpenCL.so.1",
                                     "/usr/lib/aarch64-linux-gnu/libOpenCL.so.1")
                   if os.path.exists(path)), None)
    if loader is None:
        harness.skip(case, "not installed: the OpenCL loader (ocl-icd-libopencl1)")
    text = ("import ctypes\nn = ctypes.c_uint(0)\n"
            "print(ctypes.CDLL('libOpenCL.so.1').clGetPlatformIDs(0, None, ctypes.byref(n)))\n")
    icd = os.path.join(harness.FAKE_DRIVER, "libnvidia-opencl.so.1")
    argv, env = [guest.PYTHON, case.make("cl.py", text)], {"OCL_ICD_VENDORS": icd}
    harness.run(argv, guard=False, env=env).assert_reached(case)
    result = harness.run(argv, env=env)
    result.assert_untouched(case)
    assert messages.find(result.err, "no_opencl",
                         asked_by=re.compile(r"cl\.py:3 through libOpenCL\.so[\d.]*")), str(result)


def test_advice_of_the_message_allows_cuda(case):
    """In front of the program; inside `cudaguard run`, where the presets stay, by run."""
    outer = [os.path.join(harness.BUILD, "bin", "cudaguard"), "run", "--"]
    script = 'echo "CUDA=${CUDA_VISIBLE_DEVICES-unset}"\nexec "$0" ask\n'
    inner = ["sh", "-c", script, guest.STEPS]
    for argv, advice, lifted in (
            ([guest.STEPS, "ask"], "CUDAGUARD_POLICY=OFF", None),
            (outer + inner, "cudaguard run --policy OFF", outer[:2] + ["--policy", "OFF", "--"])):
        guarded = harness.run(argv, guard=lifted is None, trace=False)
        assert messages.find(guarded.err, "no_cuda", remedy=advice), str(guarded)
        assert "cuInit=100" in guarded.out, str(guarded)
        if lifted is None:
            free = harness.run(argv, trace=False, env={"CUDAGUARD_POLICY": "OFF"})
        else:
            free = harness.run(outer + lifted + inner, guard=False, trace=False)
            assert "CUDA=unset" in free.out, str(free)
        assert "cuInit=0" in free.out, str(free)
        assert free.err == "", str(free)
    # What the other advice would do there: the preset still hides the GPUs.
    result = harness.run(outer + ["env", "CUDAGUARD_POLICY=OFF"] + inner, guard=False, trace=False)
    assert "CUDA=\n" in result.out, str(result)


def test_forked_child_does_not_repeat_its_parents_message(case):
    """The guard writes the child's record all the same."""
    report = case.path("report")
    result = case.steps("ask", *FORKS, "ask", env={"CUDAGUARD_REPORT": report})
    assert guest.lines_of(result.err) == [guest.DENIED % "steps"], str(result)
    records = harness.records(report)
    assert len({record["pid"] for record in records}) == 3, str(records)
    # The children print the message if the parent printed none, or another one.
    result = case.steps(*FORKS, "ask")
    printed = messages_by_process(result)
    assert len({pid for pid, _ in printed}) == 3, str(result)
    assert [line for _, line in printed].count(guest.DENIED % "steps") == 3, str(result)
    result = case.steps("nvml", *FORKS)
    assert guest.lines_of(
        result.err) == [guest.NO_GPU % "steps"] + [guest.DENIED % "steps"] * 2, str(result)


def test_forked_child_does_not_repeat_complaints(case):
    """The parent's are not repeated, and the child's own value is not read."""
    result = case.steps("ask", "fork", "ask", "end", "setenv:CUDAGUARD_LOG=quiet", "fork",
                        "ask", "end", env={"CUDAGUARD_LOG": "loud"})
    assert guest.lines_of(
        result.err) == [messages.text("bad_log", value="loud"), guest.DENIED % "steps"], str(result)


def test_message_of_a_forked_child_has_the_inherited_cause(case):
    """A forked child's message has the cause, too, because OFF would not be the remedy."""
    for env in ({"CUDAGUARD_VISIBLE_DEVICES": ""}, {"CUDAGUARD_VISIBLE_DEVICES": "0,0x"}):
        result = case.steps("load:libm.so.6", "fork", "fork", "ask", "end", "end", env=env)
        assert messages.find(result.err.splitlines()[-1], "no_cuda", asked_by="steps", remedy=None,
                             cause=re.compile("CUDAGUARD_VISIBLE_DEVICES .*")), str(result)


# musl preloads the guard, and cannot load NVIDIA's libraries, which are linked to glibc.


@pytest.mark.parametrize("env", [
    {}, {"CUDAGUARD_POLICY": "OFF"}, {"CUDAGUARD_VISIBLE_DEVICES": "0"},
    {"CUDAGUARD_HELLO": "1", "CUDAGUARD_REPORT": "/dev/null"}])
def test_musl_program_runs_as_without_the_guard(case, env):
    case.need("musl-gcc")
    program = guest.binary("opens_musl")
    library = guest.binary("empty_musl.so")
    words = [program, library, "libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-opencl.so.1",
             library]
    unguarded = harness.run(words, world="none", guard=False)
    assert unguarded.out.split() == ["1=set", "2=null", "3=null", "4=null", "5=set"], str(unguarded)
    result = harness.run(words, world="none", env=env)
    assert (result.rc, result.out) == (0, unguarded.out), str(result)
    found = messages.find(result.err, "list_in_vain",
                          reason=messages.text("driver_missing"))
    assert len(found) == int("CUDAGUARD_VISIBLE_DEVICES" in env), str(result)
    assert len(guest.lines_of(result.err)) == len(found), str(result)
