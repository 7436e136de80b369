# SPDX-License-Identifier: Apache-2.0
"""`doctor` and `--if-healthy` ask the driver although /etc/cudaguard.conf refuses CUDA to the caller
and to the probe. The machine has a guard in /etc/ld.so.preload, and its driver is in ld.so's cache."""

import os
import shutil
import sys

import pytest

from support import fixtures, harness, launcher, machine, messages

CONF = "/etc/cudaguard.conf"
CALLS = r"""#include <stdio.h>
int cuInit(unsigned);
__attribute__((constructor)) static void ask(void) { dprintf(1, "other code: %d\n", cuInit(0)); }
"""
ASK = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
HEALTHY = "driver: healthy, with 2 GPUs\n"
ALICE = ("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups")


class Case(launcher.Case):
    def setUp(self):
        super().setUp()
        machine.need("root")
        self.need("ldconfig", "setpriv")
        os.chmod(self.directory, 0o755)
        self.command = self.installed("machine")
        self.lib = self.path("machine", "lib")
        for name in ("driver", "etc", "run"):
            os.mkdir(self.path(name))
            os.chmod(self.path(name), 0o755)
        self.copied("two_gpus/libcuda.so.1", "driver/libcuda.so.1")
        self.make("etc/ld.so.conf", self.path("driver") + "\n", 0o644)
        done = self.unguarded("ldconfig", "-X", "-C", self.path("etc", "ld.so.cache"),
                              "-f", self.path("etc", "ld.so.conf"))
        self.assertEqual(done.returncode, 0, done)
        self.make("etc/passwd", "root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/:/bin/sh\n", 0o644)
        self.make("etc/ld.so.preload", os.path.join(self.lib, "libcudaguard.so") + "\n", 0o644)

    def there(self, *words, rules="FORCE_CPU\n", **env):
        """(code, stdout, stderr) on that machine."""
        self.make("etc/cudaguard.conf", rules, 0o644)
        done = self.unguarded(
            *harness.sandbox("none", ["--bind", self.path("etc"), "/etc",
                                      "--bind", self.path("run"), "/run"]),
            "env", "XDG_RUNTIME_DIR=/run", *("%s=%s" % one for one in env.items()), *words)
        return done.returncode, done.stdout, done.stderr

    def probe(self, path=None, **env):
        """What the probe and other code in it print."""
        _, out, _ = self.there(path or os.path.join(self.lib, "cudaguard", "cudaguard-probe"),
                               CUDAGUARD_POLICY="OFF", **env)
        return [line for line in out.splitlines() if "refused" in line or ": " in line or "done" in line]


make_case = fixtures.lent("case", Case)


@pytest.mark.parametrize("rules", ["FORCE_CPU\n", "OFF program=/other\n", "VALIDATES\n"])
@pytest.mark.parametrize("user", [(), ALICE])
def test_driver_is_asked_although_the_file_refuses_cuda(case, rules, user):
    os.chmod(case.path("run"), 0o777)
    control = case.there(*user, sys.executable, "-c", ASK, rules=rules)
    assert control[1] == "100\n" and CONF in control[2], control
    assert case.there(*user, case.command, "doctor", "--gpu", rules=rules) == (0, HEALTHY, "")
    code, out, _ = case.there(*user, case.command, "doctor", rules=rules)
    assert "; driver: answers\n" in out, (code, out)
    # The file wins in the program.
    code, out, err = case.there(*user, case.command, "run", "--if-healthy", "--", sys.executable,
                                "-c", ASK, rules=rules)
    assert (code, out) == (0, "100\n"), err
    assert messages.find(err, "no_cuda") and CONF in err and "--if-healthy" not in err, err


def test_program_that_the_file_allows_gets_cuda_from_a_healthy_driver(case):
    rules = "FORCE_CPU\nVALIDATE program=%s\n" % os.path.realpath(sys.executable)
    assert case.there(case.command, "run", "--if-healthy", "--", sys.executable, "-c", ASK,
                      rules=rules) == (0, "0\n", "")


def test_other_code_in_the_probe_gets_no_cuda(case):
    """Each row is a way by which a user could use the probe for a program of their own."""
    code = case.path("other.so")
    case.compile("other.so", case.make("other.c", CALLS, 0o644), "-shared", "-fPIC")
    assert case.probe() == ["cudaguard-probe done 0 0"]
    assert case.probe(LD_PRELOAD="libnvidia-ml.so.1") == ["cudaguard-probe done 0 0"]
    injected = ["other code: 100", "cudaguard-probe refused 0 0"]
    assert case.probe(LD_PRELOAD=code) == injected
    assert case.probe(LD_PRELOAD="libnvidia-ml.so.1:" + code) == injected
    copy = os.path.join(case.directory, "cudaguard-probe")
    shutil.copy(os.path.join(case.lib, "cudaguard", "cudaguard-probe"), copy)
    assert case.probe(copy) == ["cudaguard-probe refused 0 0"]
    for name in ("LD_LIBRARY_PATH", "LD_AUDIT", "CUDA_INJECTION64_PATH"):
        assert case.probe(**{name: "/nothing"}) == ["cudaguard-probe refused 0 0"], name
    own = os.path.join(case.lib, "cudaguard", "cudaguard-probe")
    for change, back in ((lambda: os.chown(own, 1000, 0), lambda: os.chown(own, 0, 0)),
                         (lambda: os.chmod(own, 0o775), lambda: os.chmod(own, 0o755))):
        change()
        assert case.probe() == ["cudaguard-probe refused 0 0"]
        back()
    assert case.probe() == ["cudaguard-probe done 0 0"]


def test_answer_of_the_guard_is_not_the_drivers(case):
    """The probe of another installation is one of many programs for this machine's guard."""
    other = case.installed("other")
    for command, env, remedy in (
            (case.command, {"LD_LIBRARY_PATH": "/nothing"}, "unset LD_LIBRARY_PATH"),
            (other, {}, "use the cudaguard command whose guard /etc/ld.so.preload names")):
        why = "cudaguard-probe may not use CUDA (%s:1); %s" % (CONF, remedy)
        assert case.there(command, "doctor", "--gpu", **env) == (
            125, "", "cudaguard: the driver was not asked: %s\n" % why)
        code, out, err = case.there(command, "run", "--if-healthy", "--", "true", **env)
        assert (code, out) == (0, "") and why in err, err
        _, out, _ = case.there(command, "doctor", **env)
        assert "; driver: not asked\n" in out, out
        assert "not tried: cudaguard-probe may not use CUDA (%s:1)" % CONF in " ".join(out.split()), out
    kept = [name for _, _, names in os.walk(case.path("run")) for name in names]
    assert [name for name in kept if not name.endswith(".lock")] == []
