# SPDX-License-Identifier: Apache-2.0
"""What the first dlopen of a process costs: its system calls, which are most of its time, counted."""

import collections
import os
import shutil

from support import guest, harness, syscalls

NULL_DRIVERS = (harness.NULL_DRIVER_CUDA, harness.NULL_DRIVER_NVML)
# Of the guard itself: the page of this process, a look for the machine's file and at each null
# driver's size, and its symbol table made writable and back. The rest is ld.so's, for two libraries that it is given the path of.
OWN = {"mmap": 1, "madvise": 1, "newfstatat": 2, "mprotect": 2}
MOST = 27
MACHINE_FILE = "/etc/cudaguard.conf"


class FirstDlopen(guest.Case):
    def setUp(self):
        super().setUp()
        self.other = self.path("other.so")  # what the unguarded program has preloaded
        shutil.copy(guest.EMPTY, self.other)

    def calls(self, *opened, preload):
        """The calls from the first dlopen on, up to the end of the last one, by strace."""
        steps = ["print:first"] + ["load:" + name for name in opened] + ["print:last"]
        done, processes = syscalls.trace([guest.STEPS, *steps], preload, self.path("log"), {})
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertEqual(done.stdout.count(b"load=ok"), len(opened), done.stdout)
        process, = processes.values()
        marks = [at for at, call in enumerate(process.calls) if call.name == "write"]
        found = process.calls[marks[0] + 1:marks[-1]]
        return [call for call in found if call.name != "write"]

    def names(self, calls):
        return collections.Counter(call.name for call in calls)

    def opened(self, calls):
        return [call.strings[0] for call in calls if call.name == "openat"]

    def test_first_dlopen_adds_two_libraries_by_path(self):
        by_hand = self.calls(*NULL_DRIVERS, guest.EMPTY, preload=self.other)
        guarded = self.calls(guest.EMPTY, preload=harness.GUARD)
        first, *others = guarded
        while first.name != "openat":
            first, *others = others
        self.assertEqual((first.strings[0], first.error), (MACHINE_FILE, "ENOENT"))
        guarded.remove(first)
        self.assertEqual(self.opened(guarded), [*NULL_DRIVERS, guest.EMPTY])
        self.assertEqual(self.names(guarded) - self.names(by_hand), OWN)
        self.assertEqual(self.names(by_hand) - self.names(guarded), {})
        self.assertEqual([call for call in guarded if call.error], [], "ld.so was sent to search")

    def test_first_dlopen_adds_few_system_calls(self):
        unguarded = self.calls(guest.EMPTY, preload=self.other)
        guarded = self.calls(guest.EMPTY, preload=harness.GUARD)
        self.assertLessEqual(len(guarded) - len(unguarded), MOST)
        # Once per process.
        again = self.calls(guest.EMPTY, guest.EMPTY, preload=harness.GUARD)
        self.assertEqual(len(again), len(guarded))
        # Control: with the dev names, which ld.so learns if a library may use them.
        named = self.calls("libc.so.6", guest.EMPTY, preload=harness.GUARD)
        self.assertGreater(len(named) - len(unguarded), MOST)
        directory = os.path.dirname(harness.NULL_DRIVER_CUDA)
        for name in ("libcuda.so", "libnvidia-ml.so", "libnvidia-opencl.so.1"):
            self.assertIn(os.path.join(directory, name), self.opened(named))
            self.assertNotIn(os.path.join(directory, name), self.opened(guarded))
