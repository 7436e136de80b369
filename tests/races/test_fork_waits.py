# SPDX-License-Identifier: Apache-2.0
"""A process forks while its threads load the driver for the first time. No child waits on a word of
cudaguard that a thread of its parent held. What children meet in ld.so happens without the guard,
too."""

import os
import re

import pytest

from support import harness, racing

pytestmark = pytest.mark.full

PROGRAM = os.path.join(racing.DIRECTORY, "fork_waits")
FORKS = 35  # in each process
WAIT = re.compile(r"^waits 0x[0-9a-f]+ (.*)$", re.M)
ENDED = re.compile(r"^ended (\d+) (\d+) (\d+)$", re.M)
# The checkout itself may be called cudaguard.
OURS = re.compile(r"/(libcudaguard|cudaguard/lib)[^/]*$")


def proxies(directory):
    return os.path.join(racing.DIRECTORY, directory, "lib", "cudaguard")


class ForkWaits(harness.Case):
    def forks(self, rounds, guard):
        """Returns how many children finished, and the files of the words on which others wait."""
        env = {"LD_LIBRARY_PATH": racing.DRIVER, "CUDAGUARD_POLICY": "VALIDATE",
               "CUDAGUARD_LOG": "off"}
        result = harness.run([PROGRAM, str(rounds), str(FORKS)], world="none", guard=False,
                             preload=[guard] if guard else [], trace=False, timeout=600, env=env)
        self.assertEqual(result.rc, 0, result)
        ended = [tuple(map(int, found)) for found in ENDED.findall(result.out)]
        self.assertEqual([sum(numbers) for numbers in ended], [FORKS] * rounds, result)
        return sum(done for done, _, _ in ended), WAIT.findall(result.out)

    def ours(self, waits):
        return [name for name in waits if name == "none" or OURS.search(name)]

    def check(self, rounds, guard):
        done, waits = self.forks(rounds, guard)
        self.assertGreater(done, rounds * FORKS // 2)
        self.assertEqual(self.ours(waits), [])

    def test_no_child_waits_on_the_guard(self):
        self.check(100, harness.GUARD)

    def test_no_child_waits_with_a_slow_lock(self):
        with racing.library_directory(proxies("slow")) as guard:
            self.check(20, guard)

    def test_control_unguarded_children_wait_on_no_word_of_the_guard(self):
        """Control: the program itself is right. ld.so decides how many children finish."""
        self.assertEqual(self.ours(self.forks(5, None)[1]), [])

    def test_control_children_wait_on_one_shared_word(self):
        """Control: the same slow lock is in a word that a forked child inherits as it was."""
        with racing.library_directory(proxies("one_word")) as guard:
            self.assertTrue(self.ours(self.forks(20, guard)[1]))
