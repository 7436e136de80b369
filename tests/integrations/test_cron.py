# SPDX-License-Identifier: Apache-2.0
"""A real cron reads the crontabs of docs/integrations. @reboot replaces the hour, so that each line
runs at once."""

import os
import pwd
import re
import subprocess
import time

from support import harness, places

CRON = os.path.join(harness.DEPS, "cron")
# Runs a separate cron in a mount namespace without the machine's tables.
INSIDE = """set -eu
directory=$1
mount -t tmpfs none /run
mkdir -p "$directory/spool/crontabs" "$directory/spool/atjobs"
chmod 1730 "$directory/spool/crontabs"
mount -t tmpfs none /var/spool
mkdir /var/spool/cron
mount --bind "$directory/spool" /var/spool/cron
mount --bind "$directory/usr-local" /usr/local
if [ -d /etc/cron.d ]; then mount -t tmpfs none /etc/cron.d; fi
if [ -e /etc/crontab ]; then mount --bind /dev/null /etc/crontab; fi
exec "$2" -f
"""
PATIENCE = 60


class Cron(places.Case):
    def setUp(self):
        super().setUp()
        self.need("unshare")
        self.need_root("start a cron of its own")
        self.need_daemon("cron")
        unpacked = CRON + "/usr/sbin/cron"
        self.cron = unpacked if os.path.exists(unpacked) else "/usr/sbin/cron"
        places.usr_local(self.path("usr-local"))

    def ask(self, *lines):
        """Returns the answer of a program that the crontab starts, the fake driver's calls and the
        output."""
        for name in ("out", "done"):
            if os.path.exists(self.path(name)):
                os.remove(self.path(name))
        user = pwd.getpwuid(os.geteuid()).pw_name
        self.make("spool/crontabs/" + user, "".join(line + "\n" for line in (
            "LD_LIBRARY_PATH=" + harness.FAKE_DRIVER, "CG_FAKE_LOG=" + self.fake_log(),
            *lines)), 0o600)
        process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private",
             "sh", "-c", INSIDE, "sh", self.directory, self.cron],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            end = time.monotonic() + PATIENCE
            while not os.path.exists(self.path("done")):
                if process.poll() is not None or time.monotonic() > end:
                    break
                time.sleep(0.05)
        finally:
            process.kill()
            why = process.communicate()[1]
        self.assertTrue(os.path.exists(self.path("done")), "cron has not started the line: " + why)
        out = harness.read(self.path("out"))
        return dict(re.findall(r"([\w.\-]+)=(\S*)", out)), self.logged(), out

    def line(self, launch=""):
        return "@reboot %s %s >%s 2>&1; : >%s" % (launch, " ".join(places.OPEN), self.path("out"),
                                                  self.path("done"))

    def test_crontab_line_and_variable_guard(self):
        line, variable = places.blocks("text", "slurm-and-systemd", "cron")
        launch = re.fullmatch(r"0 3 \* \* \* (/usr/local/bin/cudaguard run \S+ --) python3 .*\n",
                              line)[1]
        answers, calls, _ = self.ask(self.line())
        self.reached(answers, calls)
        answers, calls, out = self.ask(self.line(launch))
        self.guarded(answers, calls)
        self.assertNotIn("cudaguard[", out)  # cron has no output to mail
        answers, calls, out = self.ask(variable.strip(), self.line())
        self.guarded(answers, calls)
        self.assertIn("cudaguard[", out)
        # cron's PATH does not have /usr/local/bin.
        answers, calls, out = self.ask(self.line("cudaguard run --"))
        self.assertEqual((answers, calls), ({}, []), out)
        self.assertIn("not found", out)
