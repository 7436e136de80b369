# SPDX-License-Identifier: Apache-2.0
"""The guard does not unwind the native stack. libgcc's unwinder waits for a lock that a throw may
hold permanently in a forked child or under a signal handler. It also follows whatever outermost
return address a coroutine has."""

import os

import pytest

from support import harness

BIN = os.path.join(harness.BUILD, "tests", "hosts")
CONTROL = 50
ROUNDS = 10000 if harness.FULL else 50


@pytest.mark.parametrize("way", ["forks", "signals"])
def test_child_that_asks_while_code_throws_is_answered(way):
    """A JIT compiler has registered unwind tables. The child was forked while threads threw, or its
    signal handler interrupts a throw. All children end with cuInit's answer."""
    for guard, rounds, answer in ((False, CONTROL, 0), (True, ROUNDS, 100)):
        result = harness.run([os.path.join(BIN, "unwind_tables"), way, str(rounds)], guard=guard,
                             trace=False, timeout=850)
        assert (result.rc, result.out) == (0, "%d ended with %d\n" % (rounds, answer)), str(result)
        assert result.fake_calls.count("cuInit") == (0 if guard else rounds)


@pytest.mark.parametrize(("kind", "size"), [("mmap", 65536), ("calloc", 200000), ("frame", 131072)])
def test_coroutine_of_the_first_thread_can_ask(kind, size):
    """The program loads CUDA on the stack of the coroutine."""
    for guard, answer in ((False, 0), (True, 100)):
        result = harness.run([os.path.join(BIN, "coroutine"), kind, str(size)], guard=guard,
                             trace=False)
        assert result.rc == answer, str(result)
