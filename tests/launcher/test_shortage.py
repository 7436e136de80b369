# SPDX-License-Identifier: Apache-2.0
"""If no process can be started, or few descriptors are left, `run` cannot find out whether the
program is linked to the driver. It starts the program as if it were, and prints that once."""

import os
import shutil

import pytest

from support import fixtures, harness, launcher, machine, recorded

DRIVER = os.path.join(harness.FAKE_DRIVER, "libcuda.so.1")
WITHOUT = os.path.join(harness.BUILD, "tests", "fence", "without")
AGAIN = "11"  # EAGAIN, as from a pids cgroup that is full
USER = "64017"  # no other test uses it: RLIMIT_NPROC counts all processes of a user
STARTED = ("; it is started as a program that is linked to the driver (--strict refuses)\n")
PRELOAD = ["sh", "-c", "echo $LD_PRELOAD"]


@pytest.mark.parametrize("command", ["run", "verify"])
def test_small_stack_suffices(case, command):
    """64 KiB are enough for the program alone, too."""
    for words in ([], [launcher.LAUNCHER, command, "--"]):
        done = case.unguarded("sh", "-c", 'ulimit -s 64; exec "$@"', "sh", *words, "true")
        assert done.returncode == 0, (words, done)


def test_shortage_of_memory_is_named(case):
    """With some MB, 10,000 processes are too many."""
    lines = (recorded.line(pid=i, script="%d.py" % i) for i in range(1, 10000))
    done = case.unguarded("prlimit", "--as=20000000", launcher.LAUNCHER, "report",
                          case.make("r.jsonl", recorded.text(*lines)))
    case.refused(done, 125, "Cannot allocate memory")


class Case(launcher.Case):
    def setUp(self):
        super().setUp()
        self.command = self.installed()
        self.lib = self.path("install", "lib")
        os.mkdir(self.path("driver"))
        shutil.copy(DRIVER, self.path("driver"))
        shutil.copy(WITHOUT, self.path("without"))
        self.ask = self.copied("ask")
        self.linked = self.copied("linked")
        self.null_driver = ":".join(self.path("install", "lib", *file) for file in (
            ["libcudaguard.so"], ["cudaguard", "libcuda.so.1"], ["cudaguard", "libnvidia-ml.so.1"]))

    def limited(self, limit, *words):
        """Started under the limit; with the fake driver, and quiet but for the launcher."""
        env = launcher.environment(LD_LIBRARY_PATH=self.path("driver"), CUDAGUARD_LOG="error")
        return self.unguarded(*limit, *words, env=env)

    def assert_started(self, limit, why):
        """Every program starts as unguarded, finds no CUDA, and one line says why it is not
        checked."""
        for words in ([self.ask, "libcuda.so.1"], [self.linked]):
            unguarded = self.limited(limit, *words)
            self.assertEqual((unguarded.returncode, unguarded.stdout), (0, "cuInit=0\n"), unguarded)
            done = self.limited(limit, self.command, "run", *words)
            self.assertEqual((done.returncode, done.stdout), (0, "cuInit=100\n"), done)
            self.assertEqual(done.stderr, 'cudaguard: "%s" cannot be checked: %s%s' % (
                words[0], why, STARTED))
            self.refused(self.limited(limit, self.command, "run", "--strict", *words), 125,
                         '"%s" cannot be checked: %s; without --strict it is started' % (
                             words[0], why))
        done = self.limited(limit, self.command, "run", *PRELOAD)
        self.assertEqual(done.stdout, self.null_driver + "\n", done)
        done = self.limited(limit, self.command, "run", "--policy=VALIDATE", "--print", self.ask)
        self.assertIn("libcudaguard-driver.so", done.stdout, done)
        done = self.limited(limit, self.command, "run", "--policy=OFF", self.linked)
        self.assertEqual(done.stdout, "cuInit=0\n", done)


make_case = fixtures.lent("case", Case)


class Processes(Case):
    def limits(self):
        yield [self.path("without"), "clone=" + AGAIN, "--"]
        if not machine.missing("other_users"):
            yield ["setpriv", "--reuid=" + USER, "--regid=" + USER, "--clear-groups",
                   "prlimit", "--nproc=1"]

    WHY = "cannot start a process: Resource temporarily unavailable"

    def test_control_limits_hold(self):
        for limit in self.limits():
            done = self.limited(limit, "sh", "-c", "(exit 0); echo unlimited")
            self.assertNotEqual((done.returncode, done.stdout), (0, "unlimited\n"), limit)

    def test_program_starts_unchecked_and_strict_refuses_it(self):
        for limit in self.limits():
            self.assert_started(limit, self.WHY)

    def test_verify_and_observe_are_refused(self):
        for limit in self.limits():
            for words in (["verify"], ["run", "--observe"]):
                self.refused(self.limited(limit, self.command, *words, self.ask), 125, self.WHY)


class Waiting(Case):
    """A seccomp filter forbids wait4: the end of a program could not be seen."""

    LIMIT = ["wait4=1", "--"]  # EPERM

    def test_verify_and_observe_are_refused(self):
        mark = self.path("mark")
        for words in (["verify"], ["verify", "--fence=off"], ["run", "--observe"]):
            done = self.limited([self.path("without"), *self.LIMIT], self.command, *words, "touch",
                                mark)
            self.refused(done, 125, "cannot wait for processes: Operation not permitted; allow the "
                         "system call wait4")
            self.assertFalse(os.path.exists(mark))
        self.assertEqual(self.limited([], self.command, "verify", "touch", mark).returncode, 0)
        self.assertTrue(os.path.exists(mark))


class Descriptors(Case):

    def test_control_more_descriptors_allow_the_check(self):
        limit = ["prlimit", "--nofile=10"]
        done = self.limited(limit, self.command, "run", self.linked)
        self.assertEqual((done.stdout, done.stderr), ("cuInit=100\n", ""), done)
        done = self.limited(limit, self.command, "run", *PRELOAD)
        self.assertEqual(done.stdout, self.path("install", "lib", "libcudaguard.so") + "\n")


@pytest.mark.parametrize("count", range(4, 10))
def test_program_starts_unchecked_with_few_descriptors(case, count):
    case.assert_started(["prlimit", "--nofile=%d" % count],
                        "cannot start a process: Too many open files")
