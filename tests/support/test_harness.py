# SPDX-License-Identifier: Apache-2.0
"""What would go unnoticed if the harness did it wrong: each test would pass, or the machine would
be changed. The control of each other test shows the rest. And what a user's shell may have, with
which many tests once failed."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

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


def test_each_way_into_the_driver_is_read_from_the_log():
    result = harness.Result()
    harness.parse_trace(LOG.splitlines(), result)
    assert result.device_opens == ["/dev/nvidiactl", "//dev//nvidia0"]
    assert result.device_nodes == ["/dev/nvidiactl"]
    # Neither the null driver nor a file with a similar name.
    assert sorted(result.driver_files) == ["/lib/libcuda.so.1", "/lib/libnvidia-ml.so.1"]
    assert result.execs == ["/usr/bin/env", "/bin/x"]
    assert len(result.broken()) == 4
    quiet = harness.Result()
    quiet.fake_calls = ["cuDriverGetVersion"]
    assert quiet.broken(linked=True) == []
    assert quiet.broken(linked=False) != []


def test_programs_start_as_from_a_plain_shell():
    directory = tempfile.gettempdir()
    assert len(directory) <= 30 and not re.search(r"[\s:]|^/dev/", directory)
    assert harness.reachable(os.path.join(directory, "x"))
    command = "umask; ulimit -Sc; grep SigIgn /proc/self/status"
    printed = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    umask, core, _, ignored = printed.stdout.split()
    assert (umask, core) == ("0022", "0")
    assert [one.name for one in IGNORED if int(ignored, 16) >> (one - 1) & 1] == []


@pytest.mark.parametrize("mode, directory", [
    (0o755, "/tmp/a b-"), (0o755, "/tmp/" + 30 * "x"), (0o755, "/dev/shm/cg-"),
    (0o700, "/tmp/cg-")])
def test_programs_start_so_whatever_the_shell_has(mode, directory):
    """For example libpam-tmpdir's TMPDIR, a stricter umask, or a job below nohup."""
    shell = "trap '' %s; umask 077; ulimit -Sc $(ulimit -Hc); exec \"$@\"" % " ".join(
        one.name[3:] for one in IGNORED)
    with tempfile.TemporaryDirectory(prefix=directory) as closed:
        os.chmod(closed, mode)
        done = subprocess.run(
            ["sh", "-c", shell, "sh", sys.executable, "-m", "pytest", "-q",
             __file__ + "::test_programs_start_as_from_a_plain_shell", "--build=" + settings.BUILD],
            env={**os.environ, "TMPDIR": closed}, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.needs("sandbox")
def test_sandbox_has_its_own_dev_and_orphans_are_traced():
    """Also a grandchild that outlives its parents."""
    result = harness.run(
        ["sh", "-c", "echo x >/dev/nvidia-test-file && ls /dev; "
         "(setsid sh -c 'sleep 0.3; : </dev/nvidia-late' >/dev/null 2>&1 &)"],
        world="none", guard=False, bwrap=harness.OWN_DEV)
    assert "nvidia-test-file" in result.out, result
    assert result.device_opens == ["/dev/nvidia-test-file", "/dev/nvidia-late"], result
    assert not os.path.exists("/dev/nvidia-test-file")


def test_only_the_named_need_excuses_a_skip(monkeypatch):
    monkeypatch.setattr(harness.settings, "MUST_RUN", True)
    monkeypatch.setattr(harness.settings, "WITHOUT", ("driver", "mounts"))
    assert harness.may_skip("real world: " + harness.NO_DRIVER)
    assert machine.may_skip("fake world: needs a mount namespace: why")
    for all_tests in (False, True):
        monkeypatch.setattr(harness.settings, "ALL", all_tests)
        assert harness.may_skip("not installed: ruby") == (not all_tests)
        assert not harness.may_skip("needs Landlock: why")
    with pytest.raises(AssertionError, match="may not be skipped"):
        harness.skip(harness.Case(), "not here")
    monkeypatch.setattr(harness.settings, "WITHOUT", ())
    assert not harness.may_skip(harness.NO_DRIVER)
    assert not machine.may_skip("needs a mount namespace: why")
    monkeypatch.setattr(harness.settings, "MUST_RUN", False)
    with pytest.raises(unittest.SkipTest):
        harness.skip(harness.Case(), "not here")
