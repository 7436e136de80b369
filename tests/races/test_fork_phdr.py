# SPDX-License-Identifier: Apache-2.0
"""A process forks while its other threads are inside dl_iterate_phdr, as profilers, sanitizers and
unwinders are. The child inherits ld.so's lock locked. It must not wait for this lock where it would
not wait without the guard."""

import os
import re
import signal

import pytest

from support import harness, racing

PROGRAM = os.path.join(racing.DIRECTORY, "phdr_fork")
LINKED = os.path.join(racing.DIRECTORY, "phdr_fork_linked")
SECOND_HOOK = os.path.join(harness.BUILD, "tests", "guest", "hook_second.so")
ENDED = re.compile(r"^ok (\d+) hung (\d+) other (\d+)$", re.M)
SECONDS = 30  # A child that needs longer hangs.
KILLED = (-signal.SIGALRM, 128 + signal.SIGALRM)
# Another path of libc than the one by which ld.so knows it, as far as the system has one.
with open("/proc/self/maps", encoding="utf-8") as stream:
    LIBC = next(line.split()[-1] for line in stream if "/libc.so.6" in line or "/libc-2" in line)

POLICIES = {
    "force-cpu": {"CUDAGUARD_POLICY": "FORCE_CPU"},
    "off": {"CUDAGUARD_POLICY": "OFF"},
    "validate": {"CUDAGUARD_POLICY": "VALIDATE"},
    "clamp": {"CUDAGUARD_POLICY": "CLAMP"},
    "list": {"CUDAGUARD_POLICY": "VALIDATE", "CUDAGUARD_VISIBLE_DEVICES": "1"},
}
# What the child does first. No step loads a library.
STEPS = {
    "open": ["open:libc.so.6"],
    "open-path": ["open:" + LIBC],
    "open-null": ["null:"],
    "fail": ["fail:libcg-none.so"],
    "fail-path": ["fail:/nowhere/libcg-none.so"],
    "noload": ["noload:libc.so.6"],
    "noload-driver": ["absent:libcuda.so.1"],
    "noload-nvml": ["absent:libnvidia-ml.so.1"],
    "dlmopen": ["base:libc.so.6"],
    "twice": ["open:libc.so.6", "null:", "open:libc.so.6"],
}
NO_LOADS = STEPS["noload-driver"] + STEPS["noload-nvml"] + STEPS["open"]
# What the parent has done before.
BEFORE = {"fresh": [], "opened": ["open:libm.so.6"]}
# What a linked program's child does first, and its answers without the guard and under FORCE_CPU.
CALLS = {"cuda": (0, 100), "nvml": (0, 9), "runtime": (0, 100), "address": (0, 0)}


def forks(command, guard=harness.GUARD, how="block", count=2, before=(), more=(), seconds=SECONDS,
          **env):
    """Returns how many children ended well, hung, and ended otherwise."""
    program, *steps = command
    env = {"LD_LIBRARY_PATH": racing.DRIVER, "CUDAGUARD_LOG": "off", **env}
    result = harness.run([program, how, str(count), str(seconds), *before, "--", *steps],
                         world="none", guard=False, preload=([guard] if guard else []) + list(more),
                         trace=False, timeout=600, env=env)
    found = ENDED.search(result.out)
    assert found, str(result)
    return tuple(map(int, found.groups()))


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("policy", POLICIES)
def test_child_does_not_wait_for_the_lock(policy, step, before):
    assert forks([PROGRAM, *STEPS[step]], before=BEFORE[before], **POLICIES[policy]) == (2, 0, 0)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("policy", POLICIES)
def test_linked_child_does_not_wait_for_the_lock(policy, call):
    answer = CALLS[call][policy == "force-cpu"]
    steps = ["%s:%d" % (call, answer), "open:libc.so.6", "noload:libcuda.so.1"]
    assert forks([LINKED, *steps], **POLICIES[policy]) == (2, 0, 0)


@pytest.mark.parametrize("policy", ["force-cpu", "off"])
def test_child_does_not_wait_with_another_hook(policy):
    assert forks([PROGRAM, *STEPS["twice"]], more=[SECOND_HOOK], **POLICIES[policy]) == (2, 0, 0)


@pytest.mark.parametrize("step", STEPS)
def test_control_unguarded_child_does_not_wait(step):
    assert forks([PROGRAM, *STEPS[step]], guard=None, count=1) == (1, 0, 0)


@pytest.mark.parametrize("call", CALLS)
def test_control_unguarded_linked_child_does_not_wait(call):
    steps = ["%s:%d" % (call, CALLS[call][0]), "noload:libcuda.so.1"]
    assert forks([LINKED, *steps], guard=None, count=1) == (1, 0, 0)


@pytest.mark.parametrize("step", ["phdr:", "open:libresolv.so.2"])
def test_control_child_inherits_the_lock(step):
    """A child that does take the lock hangs, without the guard, too."""
    assert forks([PROGRAM, step], guard=None, count=1, seconds=2) == (0, 1, 0)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("program", ["opens", "linked"])
def test_no_child_of_many_waits(program, policy, request):
    """Threads that enter and leave dl_iterate_phdr all the time."""
    count = 2000 if request.config.getoption("--full") else 60
    steps = [PROGRAM, *STEPS["twice"]]
    if program == "linked":
        steps = [LINKED, "cuda:%d" % CALLS["cuda"][policy == "force-cpu"], *STEPS["twice"]]
    assert forks(steps, how="storm", count=count, **POLICIES[policy]) == (count, 0, 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_request_does_not_wait_for_a_thread_in_dl_iterate_phdr(policy):
    """The process was not forked. The thread may itself wait for the one that asks."""
    assert stay_and_ask(harness.GUARD, BEFORE["opened"], NO_LOADS, **POLICIES[policy]) == 0


def test_control_unguarded_request_does_not_wait():
    assert stay_and_ask(None, BEFORE["opened"], NO_LOADS) == 0


# A library that was loaded by dlopen makes its first CUDA call. It reaches the guard, because the
# program is linked to the driver, too.
CALL = ["ask:0"]
LOADED = ["plugin:" + os.path.join(racing.DIRECTORY, "ask.so")]


def test_limit_call_waits_for_a_thread_in_dl_iterate_phdr():
    assert stay_and_ask(harness.GUARD, LOADED, CALL, LINKED, seconds=2, **POLICIES["off"]) in KILLED
    assert stay_and_ask(None, LOADED, CALL, LINKED) == 0


@pytest.mark.parametrize("guard", [harness.GUARD, None], ids=["guarded", "control"])
def test_limit_call_of_a_forked_child_walks_without_a_lock(guard):
    assert forks([LINKED, *CALL], guard=guard, before=LOADED, **POLICIES["off"]) == (2, 0, 0)


def stay_and_ask(guard, before, steps, program=PROGRAM, seconds=SECONDS, **env):
    """A thread stays in dl_iterate_phdr, and another one does the steps. Returns the exit code."""
    command = [program, "block", "-1", str(seconds), *before, "--", *steps]
    return harness.run(command, world="none", guard=False, preload=[guard] if guard else [],
                       trace=False, env={"LD_LIBRARY_PATH": racing.DRIVER, "CUDAGUARD_LOG": "off",
                                         **env}).rc
