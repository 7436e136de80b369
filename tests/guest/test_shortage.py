# SPDX-License-Identifier: Apache-2.0
"""A failure that passes (no free descriptor, no memory) refuses the driver while it lasts, and does not disarm
the guard for the rest of the process."""

import pytest

from support import guest, harness

LINKED = guest.binary("steps_linked")
# The only free descriptors are gone at the first dlopen of all.
SHORT = ("nofile:3", "load:libm.so.6")


def values(result, key="cuInit"):
    assert result.rc == 0, str(result)
    return [line.split("=", 1)[1] for line in result.out.splitlines()
            if line.startswith(key + "=")]


def test_control_shortage_begins_and_ends(case):
    result = case.steps(*SHORT, "grab", "nofile:max", "load:libm.so.6", "libc:libcuda.so.1",
                        guard=False)
    # There is a shortage, and it ends.
    assert values(result, "load") == ["failed", "ok"], str(result)
    assert values(result) == ["0"], str(result)
    result.assert_reached(case)


@pytest.mark.parametrize(("steps", "answers"), [
    # Whatever the next dlopen asks for: afterwards libc's own dlopen finds a null driver.
    *(((*SHORT, "grab", "nofile:max", "load:" + library, "libc:" + request), ["100"])
      for library in ("libm.so.6", "libcg-does-not-exist.so", "libcuda.so.1")
      for request in ("libcuda.so.1", "libcuda.so")),
    ((*SHORT, "nofile:max", "nvml"), ["9"]),
    ((*SHORT, "ask", "ask:libcuda.so", "nofile:max", "ask"), ["unavailable", "unavailable", "100"]),
    (("nofile:3", *["load:libm.so.6", "ask"] * 20, "grab", "nofile:max", "load:libm.so.6",
      "libc:libcuda.so.1"), ["unavailable"] * 20 + ["100"])])
def test_driver_is_refused_during_the_shortage_and_after_it(case, steps, answers):
    """The next dlopen loads the null drivers."""
    nvml = steps[-1] == "nvml"
    result = case.steps(*steps)
    assert values(result, "nvmlInit_v2" if nvml else "cuInit") == answers, str(result)
    result.assert_untouched(case)
    assert (guest.DENIED % "steps" in guest.lines_of(result.err)) != nvml, str(result)


def test_mapped_driver_is_refused_during_the_shortage(case):
    """In a program that is linked to the driver, ld.so needs no descriptor to answer. The null
    drivers are loaded when the program starts."""
    steps = [LINKED, *SHORT, "ask"]
    unguarded = harness.run(steps, guard=False)
    assert values(unguarded) == ["0"], str(unguarded)
    result = harness.run(steps + ["nofile:max", "ask"])
    assert values(result) == ["100", "100"], str(result)
    result.assert_untouched(case, linked=True)


def test_control_driver_is_reached_after_a_shortage_of_memory(case):
    unguarded = case.steps("memory:0", "load:libm.so.6", "memory:max", "load:libm.so.6", "grab",
                           "libc:libcuda.so.1", guard=False)
    assert values(unguarded, "load") == ["failed", "ok"], str(unguarded)
    unguarded.assert_reached(case)


@pytest.mark.parametrize("kib", [0, 8, 20, 40, 60, 100, 140, 180, 220, 260])
def test_driver_is_never_reached_during_a_shortage_of_memory(case, kib):
    """The memory is too little for a page of the guard, almost enough for both null drivers, or
    between."""
    result = case.steps("memory:%d" % kib, "load:libm.so.6", "memory:max",
                        "load:libm.so.6", "grab", "libc:libcuda.so.1", "nvml")
    assert values(result, "load") == ["failed", "ok"], str(result)
    assert values(result) == ["100"], str(result)
    assert values(result, "nvmlInit_v2") == ["9"], str(result)
    result.assert_untouched(case)
    result = case.steps("memory:%d" % kib, "ask", "memory:max", "ask")
    assert values(result)[-1] == "100", str(result)
    result.assert_untouched(case)
