# SPDX-License-Identifier: Apache-2.0
"""The first dlopen of a process loads the null drivers: how much more stack it takes than
without the guard."""

import os
import signal

from support import guest, harness

PROGRAM = guest.binary("stack")
DRIVER = os.path.join(harness.FAKE_DRIVER, "libcuda.so.1")
# A library that is found on ld.so's path, one by its path, the driver, and one that is not there.
NAMES = ["libm.so.6", guest.EMPTY, "libcuda.so.1", DRIVER, "libcg-none.so"]
MOST_MORE = 1024


class Stack(guest.Case):
    def used(self, name, guard=True, **more):
        result = harness.run([PROGRAM, "paint", name], guard=guard, trace=False, **more)
        self.assertEqual(result.rc, 0, result)
        self.assertEqual(result.answers["opened"], str(int("none" not in name)), result)
        return int(result.answers["used"])

    def test_control_more_libraries_need_more_stack(self):
        """ld.so itself needs more stack for a library that is linked to more libraries."""
        unguarded = self.used(guest.EMPTY, guard=False)
        self.assertGreater(unguarded, 1000)
        self.assertGreater(self.used(harness.NULL_DRIVER_DIR + "/libcudaguard-driver.so", guard=False),
                           unguarded + 500)

    def test_guard_needs_little_more_stack(self):
        """More than ld.so needs for the library or, if that is more, for a null driver."""
        null_driver = self.used(harness.NULL_DRIVER_CUDA, guard=False)
        for name in NAMES:
            unguarded = max(self.used(name, guard=False), null_driver)
            for policy in (None, "VALIDATE", "OFF"):
                with self.subTest(name=name, policy=policy):
                    guarded = self.used(name, env={"CUDAGUARD_POLICY": policy})
                    self.assertLessEqual(guarded - unguarded, MOST_MORE)

    def test_guard_with_a_list_needs_the_stack_of_its_proxy(self):
        """At any dlopen the guard loads the proxy and then the driver. The test compares with a
        dlopen of the proxy alone."""
        unguarded = self.used(harness.NULL_DRIVER_DIR + "/libcudaguard-driver.so", guard=False)
        for name in NAMES:
            with self.subTest(name):
                guarded = self.used(name, env={"CUDAGUARD_VISIBLE_DEVICES": "0"})
                self.assertLessEqual(guarded - unguarded, MOST_MORE)

    def in_handler(self, name, size, guard):
        return harness.run([PROGRAM, "signal", name, size], guard=guard, trace=False)

    def test_guard_needs_little_of_an_alternate_stack(self):
        """The stack of the signal handler has little more than ld.so itself needs. That need
        depends on the processor, whose registers ld.so saves there."""
        for name in NAMES:
            with self.subTest(name):
                need = 2048
                while (unguarded := self.in_handler(name, need,
                                                    guard=False)).rc == 128 + signal.SIGSEGV:
                    need += 512
                self.assertEqual(unguarded.rc, 0, unguarded)
                # On some processors, ld.so needs no more than sigaltstack() accepts at least. On the
                # others, the loop has shown that an unguarded program crashes with too little.
                result = self.in_handler(name, need + 1536, guard=True)
                self.assertEqual((result.rc, result.out), (0, unguarded.out), result)
