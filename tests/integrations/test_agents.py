# SPDX-License-Identifier: Apache-2.0
"""The guard, the fence and verify in sandboxes as coding agents make them
(docs/integrations/agents.md)."""

import os
import re

import pytest

from support import fence, fixtures, harness, launcher, messages

ASK = ["python3", "-c", "import ctypes\nprint(ctypes.CDLL('libcuda.so.1').cuInit(0))"]
IOCTL = [fence.program("requests_static"), "/dev/null", fence.NVIDIA[0]]
SANDBOXES = {
    "bubblewrap": ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
                   "--unshare-all", "--"],
    "Landlock": [fence.program("landlock"), *(path for path in ("/usr", "/etc", "/proc", "/lib",
                                                                "/lib64", "/bin", "/tmp")
                                              if os.path.isdir(path)),
                 os.path.dirname(harness.BUILD), "/dev/null", "/dev/urandom", "--"],
    "no memfd_create": [fence.program("without"), "memfd=1", "--"],
    "supervisor": [fence.program("without"), "busy", "--"],
}


class Case(fence.Case):
    def inside(self, sandbox, *words):
        if sandbox == "Landlock":
            self.need_fence_of_devices()
        env = launcher.environment(LD_LIBRARY_PATH=harness.FAKE_DRIVER)
        return self.unguarded(*SANDBOXES[sandbox], *words, env=env)

    def prints(self, text, sandbox, *words):
        done = self.inside(sandbox, *words)
        self.assertEqual((done.returncode, done.stdout), (0, text), done.stderr)
        return done


make_case = fixtures.lent("case", Case)


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_guard_works_in_a_sandbox(case, sandbox):
    case.prints("0\n", sandbox, *ASK)
    done = case.prints("100\n", sandbox, launcher.LAUNCHER, "run", "--", *ASK)
    by = re.compile("<string>:2 through ctypes/cffi(, started by .*)?")  # the sandbox may hide it
    assert messages.find(done.stderr, "no_cuda", asked_by=by)


@pytest.mark.parametrize("how", ["--fence=require", "--fence=devices"])
@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_fence_works_in_a_sandbox(case, sandbox, how):
    if "devices" in how:
        case.need_fence_of_devices()
    case.prints("c020462a ENOTTY\n", sandbox, *IOCTL)
    case.prints("c020462a ENODEV\n", sandbox, launcher.LAUNCHER, "run", how, "--", *IOCTL)


@pytest.mark.parametrize("sandbox", [name for name in SANDBOXES if name != "supervisor"])
def test_verify_works_in_a_sandbox(case, sandbox):
    done = case.inside(sandbox, launcher.LAUNCHER, "verify", "--", *ASK)
    assert done.returncode == 1, done.stderr
    assert "<string>:2" in done.stderr
    assert "1 program started: 1 guarded" in done.stderr
    assert case.inside(sandbox, launcher.LAUNCHER, "verify", "--", "true").returncode == 0


def test_verify_is_incomplete_under_a_supervisor(case):
    """The guard still answers and records, and the fence still refuses, but its report is lost."""
    done = case.inside("supervisor", launcher.LAUNCHER, "verify", "--", *ASK)
    assert (done.returncode, done.stdout) == (1, "100\n"), done.stderr
    assert "another process has the kernel's notifications" in " ".join(done.stderr.split())
    done = case.inside("supervisor", launcher.LAUNCHER, "verify", "--", *IOCTL)
    assert (done.returncode, done.stdout) == (3, "c020462a ENODEV\n"), done.stderr


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_sandbox_under_the_fence_is_fenced(case, sandbox):
    """The agent itself is started under the fence."""
    if sandbox == "Landlock":
        case.need_fence_of_devices()
    env = launcher.environment(LD_LIBRARY_PATH=harness.FAKE_DRIVER)
    done = case.start("run", "--fence=require", "--", *SANDBOXES[sandbox], *IOCTL, env=env)
    assert (done.returncode, done.stdout) == (0, "c020462a ENODEV\n"), done.stderr
    done = case.start("run", "--fence=require", "--", *SANDBOXES[sandbox], *ASK, env=env)
    assert (done.returncode, done.stdout) == (0, "100\n"), done.stderr
