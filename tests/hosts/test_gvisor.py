# SPDX-License-Identifier: Apache-2.0
"""gVisor's kernel has no notifications and no Landlock, and its vDSO is linked at a kernel's
address."""

import re
import subprocess

import pytest

from support import box, harness, launcher, machine
from support.box import FASTEST

STEPS = [box.program("open"), "cu.init", "cu.see", "nv.see"]

pytestmark = pytest.mark.needs("gvisor")


def run(*command, **more):
    words = ["env", *("%s=%s" % item for item in box.environment(**more).items() if item[1])]
    return subprocess.run([*machine.GVISOR, *words, *command], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)


def answers(done):
    assert done.returncode == 0, done
    found = dict(re.findall(r"([\w.]+)=(\S+)", done.stdout))
    return found["cu.init"], box.seen(found["cu.see"]), box.seen(found["nv.see"])


@pytest.mark.parametrize(("more", "wanted"), [
    ({"LD_PRELOAD": None}, ("0", FASTEST, box.ALL)),
    ({"policy": "FORCE_CPU"}, ("100", "!100", "!9")),
    *(({"policy": name}, ("0", FASTEST, box.ALL)) for name in ("VALIDATE", "OFF")),
    ({"allow": "2,5"}, ("0", [2, 5], [2, 5]))])
def test_policies_hold(more, wanted):
    assert answers(run(*STEPS, **{"LD_PRELOAD": harness.GUARD, **more})) == wanted


def test_launcher_says_what_it_cannot_see():
    assert answers(run(launcher.LAUNCHER, "run", "--fence", "--", *STEPS))[0] == "100"
    done = run(launcher.LAUNCHER, "run", "--observe", "--", *STEPS)
    assert "1 process asked: 1 initialised CUDA, 1 used NVML" in done.stderr, done
    for steps, code, word in (STEPS, 1, "FAIL"), (STEPS[:1], 3, "INCOMPLETE"):
        done = run(launcher.LAUNCHER, "verify", "--", *steps)
        assert done.returncode == code and "cudaguard: %s: " % word in done.stderr, done
        assert "verify may miss CUDA attempts: this kernel sends no notifications" in done.stderr, done
