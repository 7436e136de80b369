# SPDX-License-Identifier: Apache-2.0
"""The guard does not unwind the native stack. libgcc's unwinder waits for a lock that a throw may
hold permanently in a forked child or under a signal handler. It also follows whatever outermost
return address a coroutine has."""

import os

from support import harness

BIN = os.path.join(harness.BUILD, "tests", "hosts")
CONTROL = 50
ROUNDS = 10000 if harness.FULL else 50
TABLES = 2000  # the lock is held most of the time
PATIENCE = 30  # seconds after which a waiting child is ended


class Case(harness.Case):
    def check(self, program, command):
        """Fails unless all children of the program end with cuInit's answer: 0 without the guard,
        100 with it."""
        def run(rounds, **options):
            words = (command % rounds).split()
            return harness.run([os.path.join(BIN, program), *words], trace=False, timeout=850,
                               **options)

        unguarded = run(CONTROL, guard=False)
        self.assertEqual((unguarded.rc, unguarded.out), (0, "exit 0: %d\n" % CONTROL), unguarded)
        self.assertEqual(unguarded.fake_calls.count("cuInit"), CONTROL)
        guarded = run(ROUNDS)
        self.assertEqual((guarded.rc, guarded.out), (0, "exit 100: %d\n" % ROUNDS), guarded)
        self.assertEqual(guarded.fake_calls, [])


class UnwindTables(Case):
    """A JIT compiler has registered unwind tables, and other code throws."""

    def test_children_forked_while_threads_throw_can_ask(self):
        self.check("unwind_tables", "forks %%d %d %d" % (TABLES, PATIENCE))

    def test_signal_handler_that_interrupts_a_throw_can_ask(self):
        self.check("unwind_tables", "signals %%d %d %d" % (TABLES, PATIENCE))


class Coroutines(Case):
    """The program loads CUDA on the stack of a coroutine, on the first thread."""

    def test_coroutine_on_a_mapped_stack_can_ask(self):
        self.check("coroutine", "mmap 65536 %d")

    def test_coroutine_on_an_allocated_stack_can_ask(self):
        self.check("coroutine", "calloc 200000 %d")

    def test_coroutine_on_a_stack_in_a_frame_can_ask(self):
        self.check("coroutine", "frame 131072 %d")
