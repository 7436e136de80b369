# SPDX-License-Identifier: Apache-2.0
"""Nothing that the guard keeps is in a library that the program may unload: afterwards nothing can
be read at the addresses of what has called it. Its tables know a name by its text."""

import os
import re
import subprocess

import pytest

from support import guest, harness, messages, policies

PROGRAM = guest.binary("unmapped")
CALLER = "open:" + guest.binary("unmapped_caller.so")
RUNTIME = "open:" + os.path.join(harness.FAKES, "runtime", "libcudart.so.13")
NVML, CUDA = "libnvidia-ml.so.1", "libcuda.so.1"
POLICIES = {
    **{name: {"CUDAGUARD_POLICY": name} for name in policies.EVERY},
    "list": {"CUDAGUARD_VISIBLE_DEVICES": "1"},
}
COUNTED = ["init:nvmlInit_v2", "count:nvmlDeviceGetCount_v2"]
ASKED = ["open:" + CUDA, "init:cuInit"]
LATE = "setenv:CUDA_VISIBLE_DEVICES=0"
# What is called, unloaded, and called again.
CASES = {
    "nvml in a namespace": [*ASKED[:1], "space:" + NVML, *COUNTED, "close", LATE, *ASKED],
    "driver in a namespace": ["space:" + CUDA, "init:cuInit", "close", "space:" + CUDA,
                              "init:cuInit", "close", LATE, *ASKED],
    "both in namespaces": ["space:" + CUDA, "init:cuInit", "close", "space:" + NVML, *COUNTED,
                           "close", "space:" + NVML, "init:nvmlInit", "close", *ASKED],
    **{name + " by a plug-in": [CALLER, "run:" + name, "close", CALLER, "run:" + name, "close",
                                *ASKED, CALLER, "run:" + name]
       for name in ("driver", "driver_index", "nvml", "opencl", "runtime")},
}
# The fake runtime loads the driver at its first call, after which no answer is known any more.
OWN = [RUNTIME, "own", "own", "close", "own", RUNTIME, "own"]


def run(steps, guard=True, **env):
    libraries = {"LD_LIBRARY_PATH": os.path.join(harness.FAKES, "lazy")}
    environment = harness.child_environment("none", guard, {**libraries, **env}, (), os.devnull)
    return subprocess.run([PROGRAM, *steps], env=environment, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=120, check=False)


def answers(done):
    """What the calls have answered. How much is mapped differs with the guard."""
    return re.sub(r"blocked=.*\n", "", done.stdout)


# The policies that use the proxies differ in what they print, which two cases show.
@pytest.mark.parametrize(("name", "policy"), [
    (name, policy) for name in CASES for policy in POLICIES
    if policy in ("FORCE_CPU", "VALIDATE", "OFF", "list") or
    name in ("nvml in a namespace", "runtime by a plug-in")])
def test_calls_after_an_unload_are_answered(name, policy, tmp_path):
    steps = CASES[name]
    unguarded = run(steps, guard=False)
    assert unguarded.returncode == 0, str(unguarded)
    assert "blocked=0\n" not in unguarded.stdout, str(unguarded)
    report = tmp_path / "report"
    for more in ({"CUDAGUARD_LOG": "all"}, {"CUDAGUARD_REPORT": str(report)}):
        done = run(steps, **POLICIES[policy], **more)
        assert done.returncode == 0, str(done)
        if policy == "FORCE_CPU":
            assert "cuInit=0" not in done.stdout and "driver=0" not in done.stdout, str(done)
        elif policy in ("VALIDATE", "OFF"):
            assert answers(done) == answers(unguarded), str(done)
            # A driver stays whose getenv leads to the guard.
            stay = steps.count("space:" + CUDA) if policy == "VALIDATE" else 0
            assert done.stdout.count("blocked=0\n") == stay, str(done)
    assert report.exists() == (policy != "OFF"), str(done)


def test_message_after_an_unload_names_the_function():
    steps = CASES["nvml in a namespace"]
    done = run(steps, **POLICIES["VALIDATE"])
    found, = messages.find(done.stderr, "late_write")
    assert (found["call"], found["reported"]) == ("nvmlDeviceGetCount_v2", "8 GPUs"), str(done)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_answer_leads_to_a_runtime_that_is_gone(policy):
    """Without the guard the program is bound to the runtime itself, which then stays. With it the
    program gets the answer of a machine without a device."""
    unguarded = run(OWN, guard=False)
    assert answers(unguarded) == "own=0\n" * 4, str(unguarded)
    done = run(OWN, **POLICIES[policy])
    assert done.returncode == 0, str(done)
    first = "own=100\n" if policy == "FORCE_CPU" else "own=0\n"
    assert answers(done) == 2 * first + "own=100\n" + first, str(done)
    assert "blocked=0\n" not in done.stdout, str(done)


@pytest.mark.parametrize("spaces", [1, 8])
def test_each_name_gets_its_message_however_many_libraries_have_it(spaces):
    """A name is known by its text, not by its address."""
    names = ("nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags")
    calls = ["space:" + NVML, *["init:" + name for name in names]] * spaces
    done = run(calls + ASKED, CUDAGUARD_LOG="all")
    assert "cuInit=100\n" in done.stdout, str(done)
    called = [found["call"] for name in ("no_nvml", "no_cuda")
              for found in messages.find(done.stderr, name)]
    assert called == [*names, "cuInit"], str(done)
