# SPDX-License-Identifier: Apache-2.0
"""The first dlopen of a process loads the null drivers: how much more stack it takes than
without the guard."""

import os
import functools

import pytest

from support import guest, harness

PROGRAM = guest.binary("stack")
DRIVER = os.path.join(harness.FAKE_DRIVER, "libcuda.so.1")
# A library that is found on ld.so's path, one by its path, the driver, and one that is not there.
NAMES = ["libm.so.6", guest.EMPTY, "libcuda.so.1", DRIVER, "libcg-none.so"]
MOST_MORE = 1024


def used(name, guard=True, **more):
    result = harness.run([PROGRAM, name], guard=guard, trace=False, **more)
    assert result.rc == 0, str(result)
    assert result.answers["opened"] == str(int("none" not in name)), str(result)
    return int(result.answers["used"])


@functools.cache
def unguarded_use(name):
    return used(name, guard=False)


def test_control_more_libraries_need_more_stack():
    """ld.so itself needs more stack for a library that is linked to more libraries."""
    unguarded = used(guest.EMPTY, guard=False)
    assert unguarded > 1000
    assert used(harness.NULL_DRIVER_DIR + "/libcudaguard-driver.so", guard=False) > unguarded + 500


@pytest.mark.parametrize("policy", [None, "VALIDATE", "OFF"])
@pytest.mark.parametrize("name", NAMES)
def test_guard_needs_little_more_stack(name, policy):
    """More than ld.so needs for the library or, if that is more, for a null driver."""
    unguarded = max(unguarded_use(name), unguarded_use(harness.NULL_DRIVER_CUDA))
    guarded = used(name, env={"CUDAGUARD_POLICY": policy})
    assert guarded - unguarded <= MOST_MORE


@pytest.mark.parametrize("name", NAMES)
def test_guard_with_a_list_needs_the_stack_of_its_proxy(name):
    """At any dlopen the guard loads the proxy and then the driver. The test compares with a
    dlopen of the proxy alone."""
    unguarded = unguarded_use(harness.NULL_DRIVER_DIR + "/libcudaguard-driver.so")
    guarded = used(name, env={"CUDAGUARD_VISIBLE_DEVICES": "0"})
    assert guarded - unguarded <= MOST_MORE
