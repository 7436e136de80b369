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


@pytest.mark.parametrize("request_", ["libcuda.so.1", "libcuda.so"])
@pytest.mark.parametrize("library", ["libm.so.6", "libcg-does-not-exist.so", "libcuda.so.1"])
def test_the_next_dlopen_loads_the_null_drivers(case, library, request_):
    """Whatever that one asks for: afterwards libc's own dlopen finds a null driver."""
    result = case.steps(*SHORT, "grab", "nofile:max", "load:" + library, "libc:" + request_)
    assert values(result) == ["100"], str(result)
    result.assert_untouched(case)
    assert guest.lines_of(result.err) == [guest.DENIED % "steps"]


def test_nvml_after_a_shortage_gets_the_null_driver(case):
    result = case.steps(*SHORT, "nofile:max", "nvml")
    assert values(result, "nvmlInit_v2") == ["9"], str(result)
    result.assert_untouched(case)


def test_driver_after_many_failures_gets_the_null_driver(case):
    result = case.steps("nofile:3", *["load:libm.so.6", "ask"] * 20, "grab", "nofile:max",
                        "load:libm.so.6", "libc:libcuda.so.1")
    assert values(result) == ["unavailable"] * 20 + ["100"], str(result)
    result.assert_untouched(case)


def test_driver_is_refused_during_the_shortage(case):
    result = case.steps(*SHORT, "ask", "ask:libcuda.so", "nofile:max", "ask")
    assert values(result) == ["unavailable", "unavailable", "100"], str(result)
    result.assert_untouched(case)


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
    """The memory is too little for a page of the guard, almost enough for both null drivers, or
    between."""
    unguarded = case.steps("memory:0", "load:libm.so.6", "memory:max", "load:libm.so.6", "grab",
                           "libc:libcuda.so.1", guard=False)
    assert values(unguarded, "load") == ["failed", "ok"], str(unguarded)
    unguarded.assert_reached(case)


@pytest.mark.parametrize("kib", [0, 8, 20, 40, 60, 100, 140, 180, 220, 260])
def test_driver_is_never_reached_during_a_shortage_of_memory(case, kib):
    result = case.steps("memory:%d" % kib, "load:libm.so.6", "memory:max",
                        "load:libm.so.6", "grab", "libc:libcuda.so.1", "nvml")
    assert values(result, "load") == ["failed", "ok"], str(result)
    assert values(result) == ["100"], str(result)
    assert values(result, "nvmlInit_v2") == ["9"], str(result)
    result.assert_untouched(case)
    result = case.steps("memory:%d" % kib, "ask", "memory:max", "ask")
    assert values(result)[-1] == "100", str(result)
    result.assert_untouched(case)
