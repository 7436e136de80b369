# SPDX-License-Identifier: Apache-2.0
"""Tests the harness itself: what it reads from strace's log, and what its sandbox isolates."""

import glob
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import pytest

from support import harness, machine, settings

IGNORED = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP]
LOG = '''\
100 execve("/usr/bin/env", ["env", "x"], 0x7ffe /* 3 vars */) = 0
100 execve("/nowhere/x", ["x"], 0x7ffe /* 3 vars */) = -1 ENOENT (No such file or directory)
100 execve("/bin/x", ["x"], 0x7ffe /* 3 vars */) = 0
100 openat(AT_FDCWD, "/lib/libcuda.so.1", O_RDONLY|O_CLOEXEC) = -1 ENOENT (No such file)
101 openat(AT_FDCWD, "/lib/libcuda.so.1", O_RDONLY|O_CLOEXEC <unfinished ...>
102 openat(AT_FDCWD, "/dev/nvidiactl", O_RDWR <unfinished ...>
101 <... openat resumed>) = 3
102 <... openat resumed>) = -1 ENOENT (No such file or directory)
102 open("//dev//nvidia0", O_RDWR) = -1 ENOENT (No such file or directory)
102 mknodat(AT_FDCWD, "/dev/nvidiactl", S_IFCHR|0666, makedev(0xc3, 0xff)) = -1 EPERM (No)
102 openat(AT_FDCWD, "/lib/libnvidia-ml.so.1", O_RDONLY|O_CLOEXEC) = 4
102 openat(AT_FDCWD, "/lib/libcuda.so-like.so", O_RDONLY|O_CLOEXEC) = 4
102 openat(AT_FDCWD, "%s/libcuda.so.1", O_RDONLY|O_CLOEXEC) = 4
102 execve("/usr/bin/nvidia-modprobe", ["nvidia-modprobe"], 0x7ffe) = -1 ENOENT (No such file)
102 +++ exited with 0 +++
''' % harness.NULL_DRIVER_DIR


class Signals(unittest.TestCase):

    def test_programs_ignore_none(self):
        text = subprocess.run(["grep", "SigIgn", "/proc/self/status"], stdout=subprocess.PIPE,
                              text=True, check=True).stdout
        ignored = int(text.split()[1], 16)
        self.assertEqual([one.name for one in IGNORED if ignored >> (one - 1) & 1], [])

    def test_programs_ignore_none_below_a_shell_that_does(self):
        names = " ".join(one.name[3:] for one in IGNORED)
        test = __file__ + "::Signals::test_programs_ignore_none"
        done = subprocess.run(
            ["sh", "-c", "trap '' %s; exec \"$@\"" % names, "sh", sys.executable, "-m", "pytest", "-q",
             "-p", "no:cacheprovider", test, "--build=" + settings.BUILD],
            stdout=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)


def test_directory_is_short_and_open_to_every_user():
    directory = tempfile.gettempdir()
    assert len(directory) <= 30 and not re.search(r"[\s:]|^/dev/", directory)
    assert harness.reachable(os.path.join(directory, "x"))
    said = subprocess.run(["sh", "-c", "umask; ulimit -Sc"], capture_output=True, check=True).stdout
    assert said == b"0022\n0\n"


@pytest.mark.parametrize("mode, directory", [
    (0o755, "/tmp/a b-"), (0o755, "/tmp/" + 30 * "x"), (0o755, "/dev/shm/cg-"), (0o700, "/tmp/cg-")])
def test_directory_is_so_whatever_the_shell_has(mode, directory):
    with tempfile.TemporaryDirectory(prefix=directory) as closed:
        os.chmod(closed, mode)
        done = subprocess.run(
            ["sh", "-c", "umask 077; ulimit -Sc $(ulimit -Hc); exec \"$@\"", "sh", sys.executable,
             "-m", "pytest", "-q", __file__ + "::test_directory_is_short_and_open_to_every_user",
             "--build=" + settings.BUILD],
            env={**os.environ, "TMPDIR": closed}, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stdout


class Trace(unittest.TestCase):

    def setUp(self):
        self.result = harness.Result()
        harness.parse_trace(LOG.splitlines(), self.result)

    def test_device_opens_and_nodes_are_read_from_the_log(self):
        self.assertEqual(self.result.device_opens, ["/dev/nvidiactl", "//dev//nvidia0"])
        self.assertEqual(self.result.device_nodes, ["/dev/nvidiactl"])

    def test_driver_files_omit_null_drivers_and_similar_names(self):
        """The list has every driver file that was found, also by unfinished calls. It has neither
        the null driver nor a file with a similar name."""
        self.assertEqual(sorted(self.result.driver_files),
                         ["/lib/libcuda.so.1", "/lib/libnvidia-ml.so.1"])

    def test_execs_are_read_from_the_log(self):
        self.assertEqual(self.result.execs, ["/usr/bin/env", "/bin/x"])
        self.assertIn("/usr/bin/nvidia-modprobe", self.result.exec_attempts)

    def test_entering_the_driver_breaks_every_promise(self):
        self.assertTrue(self.result.reached_driver())
        self.assertEqual(len(self.result.broken()), 4)
        with self.assertRaises(AssertionError):
            self.result.assert_untouched(self)
        quiet = harness.Result()
        quiet.fake_calls = ["cuDriverGetVersion"]
        self.assertEqual(quiet.broken(linked=True), [])
        self.assertNotEqual(quiet.broken(linked=False), [])
        quiet.fake_calls.append("cuInit")
        self.assertNotEqual(quiet.broken(linked=True), [])


class Sandbox(harness.Case):

    def test_program_gets_the_variables_of_the_test_alone(self):
        """The program gets the variables of the test, but not the shell's."""
        os.environ["CUDA_VISIBLE_DEVICES"] = "7"
        try:
            result = harness.run(["env"], world="none", guard=False, env={"WANTED": "1"})
        finally:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        self.assertNotIn("CUDA_VISIBLE_DEVICES", result.out)
        self.assertIn("WANTED=1\n", result.out)
        self.assertNotIn("LD_", result.out)

    def test_nothing_to_hide_needs_no_sandbox(self):
        """A container forbids namespaces, and has no driver."""
        lacks = {"sandbox": ("a sandbox", lambda: "none here")}
        for nothing, extra, world in ((True, (), "none"), (True, ("--bind", "/usr", "/mnt"), "none"),
                                      (False, (), "fake"), (True, (), "real")):
            machine.missing.cache_clear()
            self.addCleanup(machine.missing.cache_clear)
            with unittest.mock.patch.dict(machine.NEEDS, lacks), \
                    unittest.mock.patch.object(harness, "nothing_to_hide", lambda: nothing), \
                    unittest.mock.patch.object(harness.settings, "MUST_RUN", False):
                if nothing and not extra and world != "real":
                    self.assertEqual(harness.sandbox(world), [])
                    continue
                self.assertRaisesRegex(unittest.SkipTest, "needs a sandbox: none here",
                                       harness.sandbox, world, extra)

    @pytest.mark.needs("sandbox")
    def test_sandbox_has_its_own_dev(self):
        result = harness.run(["sh", "-c", "echo x >/dev/nvidia-test-file && ls /dev"], world="none",
                             guard=False, bwrap=harness.OWN_DEV)
        self.assertIn("nvidia-test-file", result.out, result)
        self.assertEqual(result.device_opens, ["/dev/nvidia-test-file"])
        self.assertFalse(os.path.exists("/dev/nvidia-test-file"))

    def test_program_beyond_the_time_limit_is_stopped(self):
        result = harness.run(["sleep", "60"], world="none", guard=False, timeout=1)
        self.assertTrue(result.timed_out)

    def test_orphaned_grandchild_is_traced(self):
        """The harness still sees a grandchild that outlives its parents."""
        result = harness.run(
            ["sh", "-c", "(setsid sh -c 'sleep 0.3; : </dev/nvidia-late' >/dev/null 2>&1 &)"],
            world="none", guard=False)
        self.assertEqual(result.device_opens, ["/dev/nvidia-late"], result)


class Skips(unittest.TestCase):

    def test_skip_fails_if_every_test_must_run(self):
        case = harness.Case()
        with unittest.mock.patch.object(harness.settings, "MUST_RUN", False):
            self.assertRaises(unittest.SkipTest, harness.skip, case, "not here")
        with unittest.mock.patch.object(harness.settings, "MUST_RUN", True), \
                unittest.mock.patch.object(harness.settings, "ALL", True):
            self.assertRaisesRegex(AssertionError, "may not be skipped", harness.skip, case,
                                   "not here")

    def test_only_the_named_need_excuses_a_skip(self):
        with unittest.mock.patch.object(harness.settings, "MUST_RUN", True):
            with unittest.mock.patch.object(harness.settings, "WITHOUT", ()):
                self.assertFalse(harness.may_skip(harness.NO_DRIVER))
                self.assertFalse(machine.may_skip("needs a mount namespace: why"))
            with unittest.mock.patch.object(harness.settings, "WITHOUT", ("driver", "mounts")):
                self.assertTrue(harness.may_skip("real world: " + harness.NO_DRIVER))
                for all_tests in (False, True):
                    with unittest.mock.patch.object(harness.settings, "ALL", all_tests):
                        self.assertEqual(harness.may_skip("not installed: ruby"), not all_tests)
                        self.assertFalse(harness.may_skip("needs Landlock: why"))
                self.assertTrue(machine.may_skip("fake world: needs a mount namespace: why"))
                self.assertFalse(machine.may_skip("needs Landlock: why"))


class Options(unittest.TestCase):
    def test_every_area_reads_the_options(self):
        """pytest loads the conftest.py of the areas that are named before it knows the options."""
        conftests = sorted(glob.glob(os.path.join(settings.TESTS, "*", "conftest.py")))
        self.assertGreater(len(conftests), 5)
        done = subprocess.run([sys.executable, "-m", "pytest", *conftests],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, pytest.ExitCode.NO_TESTS_COLLECTED, done.stderr)


@pytest.mark.parametrize("is_open", [False, True])
def test_process_that_is_reaped_while_it_is_read_has_ended(monkeypatch, is_open):
    """Its parent reaps it before its state is opened, or between that and the read."""
    child = subprocess.Popen(["sleep", "1000"])
    assert not harness.Case.has_ended(child.pid)

    def reaped(*words, **options):
        stream = open(*words, **options) if is_open else None
        child.kill()
        child.wait()
        return stream or open(*words, **options)

    monkeypatch.setattr(harness, "open", reaped, raising=False)
    assert harness.Case.has_ended(child.pid)
