# SPDX-License-Identifier: Apache-2.0
"""The guard does not unwind the native stack, whose outermost return address a coroutine may have
made up. artefacts/test_guard.py shows that it has no unwinder: libgcc's waits for a lock that a throw
may hold permanently in a forked child or under a signal handler."""

import os

import pytest

from support import harness

BIN = os.path.join(harness.BUILD, "tests", "hosts")


@pytest.mark.parametrize(("kind", "size"), [("mmap", 65536), ("calloc", 200000), ("frame", 131072)])
def test_coroutine_of_the_first_thread_can_ask(kind, size):
    """The program loads CUDA on the stack of the coroutine."""
    for guard, answer in ((False, 0), (True, 100)):
        result = harness.run([os.path.join(BIN, "coroutine"), kind, str(size)], guard=guard,
                             trace=False)
        assert result.rc == answer, str(result)
