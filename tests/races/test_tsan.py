# SPDX-License-Identifier: Apache-2.0
"""The proxies, and in one test the guard, too, run under ThreadSanitizer without a report."""

import os
import platform
import re

import pytest

from support import harness, racing

pytestmark = pytest.mark.full

# ThreadSanitizer does not see the locks of ld.so and libc, so it must ignore accesses in code that
# is not instrumented.
TSAN = "exitcode=66 ignore_noninstrumented_modules=1"
UNABLE = re.compile(r"FATAL: ThreadSanitizer: [^\n]*")
SUMMARY = re.compile(r"SUMMARY: ThreadSanitizer: data race.*")
TIMES = 3


def built(directory, name="cudaguard"):
    return os.path.join(racing.DIRECTORY, directory, "lib", name)


class Tsan(harness.Case):
    # This command starts the programs, because ThreadSanitizer's shadow memory needs less random
    # addresses.
    prefix = ()

    @classmethod
    def setUpClass(cls):
        cls.reason = None
        if harness.check_tools():
            return  # setUp gives the reason
        if not os.path.exists(os.path.join(racing.DIRECTORY, "racers_tsan")):
            cls.reason = "not built, or not by this compiler: cmake --build --preset full"
            return
        for prefix in ((), ("setarch", platform.machine(), "-R")):
            cls.prefix = prefix
            outcome = racing.race("racers_tsan", "n", 1, guard=None, log=False, prefix=prefix,
                                  threads=1)[0]
            if outcome.code == 0:
                cls.reason = None
                return
            found = UNABLE.search(outcome.err)
            what = found[0] if found else "exit code %d: %s" % (outcome.code, outcome.err)
            cls.reason = cls.reason or "it cannot run here, under setarch -R neither: " + what

    def setUp(self):
        super().setUp()
        if self.reason:
            harness.skip(self, "ThreadSanitizer: " + self.reason)

    def race(self, guard, program, entry_points, times=TIMES, slow=0):
        return racing.race(program + "_tsan", entry_points, times, guard=guard, slow=slow, log=False,
                           prefix=self.prefix, TSAN_OPTIONS=TSAN,
                           CUDAGUARD_VISIBLE_DEVICES=racing.ALLOWED)

    def no_report(self, guard):
        for program, entry_points, _ in racing.RACES:
            for slow in (0, 2000):
                with self.subTest(program=program, entry_points=entry_points, slow=slow):
                    for outcome in self.race(guard, program, entry_points, slow=slow):
                        first = outcome.err[:4000] + "\n".join(SUMMARY.findall(outcome.err))
                        self.assertEqual(outcome.code, 0, first)
                        self.assertEqual((outcome.out, outcome.err),
                                         ("64 %s\n" % racing.SEEN, ""))

    def test_proxies_have_no_race(self):
        with racing.library_directory(built("tsan")) as guard:
            self.no_report(guard)

    def test_guard_and_proxies_have_no_race(self):
        with racing.library_directory(built("tsan"), built("tsan", "libcudaguard.so")) as guard:
            self.no_report(guard)

    def test_control_proxies_without_a_lock_are_reported(self):
        """Control: proxies whose lock does nothing are reported."""
        with racing.library_directory(built("tsan_unlocked")) as guard:
            for program, entry_points in (("racers", "o"), ("racers_linked", "l")):
                with self.subTest(program=program, entry_points=entry_points):
                    outcomes = self.race(guard, program, entry_points, times=20, slow=2000)
                    self.assertIn(66, {outcome.code for outcome in outcomes})
                    self.assertRegex("".join(outcome.err for outcome in outcomes), SUMMARY)
