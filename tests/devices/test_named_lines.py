# SPDX-License-Identifier: Apache-2.0
"""Under VALIDATE and CLAMP, each message that names code names the user's line."""

import sys

import pytest

from support import box, messages, policies

DRIVER = """import ctypes, os
cuda = ctypes.CDLL("libcuda.so.1")
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device = ctypes.c_int(-1)

def init():
    return cuda.cuInit(0)

def get(index):
    return cuda.cuDeviceGet(ctypes.byref(device), index)

def count():
    nvml.nvmlInit_v2()
    return nvml.nvmlDeviceGetCount_v2(ctypes.byref(device))

"""
LINES = {"init": 7, "get": 10, "count": 14}
WRITE = 'os.environ["CUDA_VISIBLE_DEVICES"] = "1"\n'
FORK = "print(os.getpid(), init(), flush=True)\nif os.fork() == 0:\n    os._exit(init())\nos.wait()\n"


@pytest.fixture(name="script")
def make_script(tmp_path):
    """Runs a program of these lines. Its functions are at LINES of ask.py."""
    path = tmp_path / "ask.py"

    def run(text, guard=True, **more):
        path.write_text(DRIVER + text)
        return box.start([sys.executable, str(path)], guard=guard, **more)

    return run


def by(name):
    return "ask.py:%d through ctypes/cffi" % LINES[name]


@pytest.mark.parametrize("policy", policies.ALLOWING)
def test_fork_message_names_the_parents_line(case, script, policy):
    control = script(FORK.replace("os._exit(init())", 'print(init(), flush=True)'), guard=False)
    assert control.out.split()[1:3] == ["0", "3"], str(control)
    result = script(FORK, policy=policy)
    case.message(result, "fork", parent=result.out.split()[0], by=by("init"))


@pytest.mark.parametrize("policy", policies.ALLOWING)
def test_bad_index_names_the_line(case, script, policy):
    steps = "init()\nprint(get(9))\n"
    assert script(steps, guard=False).out == "101\n"
    result = script(steps, policy=policy)
    assert result.out == ("0\n" if policy in policies.CLAMPING else "101\n"), str(result)
    case.message(result, "bad_index", device=9, asked_by=by("get"))


@pytest.mark.parametrize(("policy", "first", "then", "message", "call"), [
    *((policy, "init", "count", "late_write_unread", "cuInit") for policy in policies.ALLOWING),
    ("VALIDATE", "count", "init", "late_write", "nvmlDeviceGetCount_v2")])
def test_late_write_names_the_line_that_read_the_variable(case, script, policy, first, then, message,
                                                          call):
    """Or the line that counted."""
    steps = "%s()\n%sprint(%s())\n" % (first, WRITE, then)
    result = script(steps, policy=policy)
    assert result.out == script(steps, guard=False).out == "0\n", str(result)
    case.message(result, message, call=call, asked_by=by(first))


def test_refused_opencl_names_the_line(case, script):
    steps = "try:\n    ctypes.CDLL('libnvidia-opencl.so.1')\nexcept OSError:\n    print('refused')\n"
    for more in ({"guard": False}, {"policy": "VALIDATE"}, {"policy": "OFF", "allow": "0"}):
        loaded = script(steps, box="driver", **more)
        assert (loaded.out, loaded.err) == ("", ""), str(loaded)
    result = script(steps, box="driver", allow="0")
    assert result.out == "refused\n", str(result)
    found = case.message(result, "opencl_refused")
    assert found["asked_by"].startswith("ask.py:%d through " % (DRIVER.count("\n") + 2)), str(result)


def test_refused_context_names_the_line(case, script):
    steps = "init()\nprint(cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0))\n"
    assert script(steps, guard=False).out == "0\n"
    result = script(steps, policy="NO_CONTEXT")
    assert result.out == "46\n", str(result)
    case.message(result, "no_context", asked_by="ask.py:%d through ctypes/cffi" % (
        DRIVER.count("\n") + 2))


def test_clamp_says_what_it_uses_and_asks_nothing(case):
    """The index 5 is the machine's number of device 0, which VALIDATE's message suggests."""
    steps = ["cu.init", "cu.get=5"]
    case.message(box.run(steps, allow="5,2"), "bad_index", meant=0, used=None)
    case.message(box.run(steps, allow="5,2", policy="CLAMP"), "bad_index", meant=None, used=1)


def test_clamp_does_not_use_a_device_that_the_call_cannot_give(case, script):
    """The driver looks at the index first, and at the pointer if the index is right."""
    steps = "init()\nprint(cuda.cuDeviceGet(None, 9))\n"
    assert script(steps, guard=False).out == "101\n"
    result = script(steps, policy="CLAMP")
    assert result.out == "101\n", str(result)
    case.silent(result)


def test_message_of_a_program_without_python_is_as_the_refusals(case):
    """A caller that only passes calls on is named with the program."""
    steps = ["rt12.count", "fork=c", "cu.init", "end"]
    refused = box.run(steps, policy="FORCE_CPU")
    found = messages.find(refused.err, "no_cuda")
    assert found, str(refused)
    case.message(box.run(steps, policy="VALIDATE"), "fork", by="libcudart.so.12 in open")
