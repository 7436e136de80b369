# SPDX-License-Identifier: Apache-2.0
"""A real systemd starts a service that begins with the fence, and services of systemd-run, which
are not children of the process that asks for them."""

import os
import shlex

import pytest

from support import fence, fixtures, harness, launcher, manager
from support.fence import ASK, UNGUARDED, FENCED

pytestmark = pytest.mark.all

FENCE = [launcher.LAUNCHER, "run", "--fence=require", "--"]


class Systemd(fence.Case):
    def setUp(self):
        super().setUp()
        self.systemd = manager.Manager(self.directory, [])
        missing = self.systemd.missing()
        if missing:
            harness.skip(self, "no systemd of our own: " + missing)

    def systemd_run(self, *words, run=()):
        """Returns what systemd-run prints, started by `run`."""
        words = [*run, "systemd-run", "--user", "--quiet", *words]
        done = self.systemd.run(shlex.join(words) + "\n")
        self.assertEqual(done.returncode, 0, done)
        return done.stdout

    def service(self, *words, run=(), properties=()):
        """What this program prints as a service."""
        output = self.make("output", "", 0o644)
        settings = ("Type=oneshot", "StandardOutput=truncate:" + output, *properties)
        self.systemd_run(*("--property=" + one for one in settings), "--", *words, run=run)
        return harness.read(output)

    def test_systemds_own_filter_cannot_replace_the_fence(self):
        """`SystemCallFilter=~ioctl` refuses every ioctl."""
        printed = self.service(*ASK, properties=["SystemCallFilter=~ioctl",
                                                 "SystemCallErrorNumber=EPERM"])
        self.assertEqual(printed, "c020462a EPERM\n5401 EPERM\n")

    def test_limit_service_of_systemd_run_is_not_fenced(self):
        """systemd starts what systemd-run asks for."""
        self.assertEqual(self.service(*ASK, run=FENCE), UNGUARDED)

    def test_scope_of_systemd_run_is_fenced(self):
        """systemd-run --scope becomes the program itself."""
        self.assertEqual(self.systemd_run("--scope", "--", *ASK), UNGUARDED)
        self.assertEqual(self.systemd_run("--scope", "--", *ASK, run=FENCE), FENCED)


make_case = fixtures.lent("case", Systemd)


@pytest.mark.parametrize("properties",
                         [[], ["NoNewPrivileges=yes"], ["SystemCallFilter=@system-service"],
                          ["SystemCallFilter=@system-service", "SystemCallErrorNumber=EPERM"]])
def test_run_in_a_service_fences_the_program(case, properties):
    assert case.service(*ASK, properties=properties) == UNGUARDED
    assert case.service(*FENCE, *ASK, properties=properties) == FENCED


NODE = "/dev/autofs"  # which each user may read, and which does nothing when it is opened
OPENS = "head -c0 /dev/nvidia0 && echo opened"


def answer_of_unit(case, user, *properties):
    """What a unit of this user's manager prints that opens /dev/nvidia0, which is NODE."""
    if not os.path.exists(NODE):
        pytest.skip("no " + NODE)
    os.chmod(case.directory, 0o777)
    case.systemd = manager.Manager(case.directory, ["--dev-bind", NODE, "/dev/nvidia0"], user)
    output = case.make("output", "", 0o666)
    settings = ["StandardOutput=truncate:" + output, "StandardError=truncate:" + output, *properties]
    words = ["systemd-run", "--user", "--quiet", "--wait", "--unit=one",
             *("--property=" + one for one in settings), "sh", "-c", OPENS]
    done = case.systemd.run(shlex.join(words) + " || true\n"
                            "systemd-run --user --quiet --unit=two -p DevicePolicy=closed sleep 60\n"
                            "systemctl --user show --property=DevicePolicy two\n")
    assert done.stdout == "DevicePolicy=closed\n", done
    return harness.read(output)


def test_limit_device_policy_has_no_effect_in_a_users_unit(case):
    """systemd shows it, and cannot set it up. Root's manager can, which is the control."""
    assert answer_of_unit(case, 65534) == "opened\n"
    assert answer_of_unit(case, 65534, "DevicePolicy=closed") == "opened\n"
    assert "Operation not permitted" in answer_of_unit(case, None, "DevicePolicy=closed")


def test_private_devices_hide_the_node_or_the_unit_does_not_start(case):
    """An ordinary user's manager needs a user namespace for it."""
    assert "opened" not in answer_of_unit(case, 65534, "PrivateDevices=yes")
    assert "No such file or directory" in answer_of_unit(case, None, "PrivateDevices=yes")
