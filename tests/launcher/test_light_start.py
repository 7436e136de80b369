# SPDX-License-Identifier: Apache-2.0
"""`run` costs every program that it starts: so many system calls until the program is executed."""

import subprocess

from support import launcher, machine

MOST = 80
WAITING = ("poll", "wait4", "read")  # for ld.so's answer: as often as it takes


class LightStart(launcher.Case):
    def test_start_needs_at_most_80_system_calls(self):
        log = self.path("log")
        machine.need("tracing")
        done = subprocess.run(["strace", "-o", log, launcher.LAUNCHER, "run", "--", "/bin/true"],
                              env=launcher.environment(), capture_output=True, text=True,
                              check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        with open(log, encoding="utf-8") as stream:
            calls = [line.split("(", 1)[0] for line in stream if not line.startswith("---")]
        executed = [at for at, name in enumerate(calls) if name == "execve"]
        self.assertEqual(len(executed), 2, calls)  # the launcher's own, and the program's
        made = [name for name in calls[executed[0]:executed[1]] if name not in WAITING]
        self.assertLessEqual(len(made), MOST, made)
