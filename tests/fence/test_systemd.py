# SPDX-License-Identifier: Apache-2.0
"""A real systemd: a service that begins with the fence, and systemd-run, whose services do not come
from who asks for them."""

import shlex

import fence
import harness
import launcher
import manager

ASK = [fence.program("requests"), "/dev/null", fence.NVIDIA[0], "5401"]
BARE = "c020462a ENOTTY\n5401 ENOTTY\n"
FENCED = "c020462a ENODEV\n5401 ENOTTY\n"
FENCE = [launcher.LAUNCHER, "run", "--fence=require", "--"]


class Systemd(fence.Case):
    def setUp(self):
        super().setUp()
        self.systemd = manager.Manager(self.folder, [])
        missing = self.systemd.missing()
        if missing:
            harness.skip(self, "no systemd of our own: " + missing)

    def says(self, text, service, run=(), properties=(), way=("--property=Type=oneshot",)):
        """systemd-run, behind `run`, has this program run as a service, which prints `text`."""
        output = self.make("output", "", 0o644)
        if "--scope" not in way:
            way = [*way, "--property=StandardOutput=truncate:" + output]
        words = [*run, "systemd-run", "--user", "--quiet", *way,
                 *("--property=" + one for one in properties), "--", *service]
        done = self.systemd.run(shlex.join(words) + "\n")
        self.assertEqual(done.returncode, 0, done)
        with open(output, encoding="utf-8") as stream:
            self.assertEqual(done.stdout + stream.read(), text, done)
        return done

    def test_in_front_of_the_program(self):
        for properties in ([], ["NoNewPrivileges=yes"], ["SystemCallFilter=@system-service"],
                           ["SystemCallFilter=@system-service", "SystemCallErrorNumber=EPERM"]):
            with self.subTest(properties=properties):
                self.says(BARE, ASK, properties=properties)
                self.says(FENCED, FENCE + ASK, properties=properties)

    def test_not_by_its_own_filter(self):
        """`SystemCallFilter=~ioctl` is for every request."""
        self.says("c020462a EPERM\n5401 EPERM\n", ASK,
                  properties=["SystemCallFilter=~ioctl", "SystemCallErrorNumber=EPERM"])

    def test_limit_service(self):
        """What systemd-run asks for is started by systemd."""
        self.says(BARE, ASK, run=FENCE)

    def test_scope(self):
        """systemd-run --scope becomes the program itself."""
        self.says(BARE, ASK, way=["--scope"])
        self.says(FENCED, ASK, run=FENCE, way=["--scope"])


if __name__ == "__main__":
    harness.main()
