# SPDX-License-Identifier: Apache-2.0
"""Bad input makes one clear message and exit code 125 to 127 (test_transcripts.py). Nothing is
started or overwritten, nothing crashes, and good input is accepted."""

import os
import stat

from support import launcher, machine


class Reports(launcher.Case):
    def test_check_of_the_report_makes_no_file(self):
        kept = '{"v":1,"kept":1}\n'
        self.make("file", kept, 0o644)
        before = sorted(os.listdir(self.directory))
        for good in ("file", "new", "new.%p"):
            self.assertEqual(self.start("run", "--report", self.path(good), "true").returncode, 0)
        with open(self.path("file"), encoding="utf-8") as stream:
            self.assertEqual(stream.read(), kept)
        self.assertEqual(sorted(os.listdir(self.directory)), before, "a file was made for nothing")

    def test_check_of_the_report_keeps_a_pipes_reader(self):
        """The check must not end the data that a reader gets."""
        os.mkfifo(self.path("pipe"))
        reader = os.open(self.path("pipe"), os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        done = self.start("run", "--report", self.path("pipe"), "python3", "-c",
                          "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)")
        self.assertEqual(done.returncode, 0, done)
        self.assertTrue(os.read(reader, 65536).startswith(b'{"v":1,'))

    def test_report_that_is_a_disk_is_refused(self):
        """A record would overwrite the disk's first block, because a disk ignores O_APPEND."""
        machine.need("device_nodes")
        os.mknod(self.path("disk"), 0o600 | stat.S_IFBLK, os.makedev(1, 3))
        done = self.start("run", "--report", self.path("disk"), "true")
        self.refused(done, 125, "it is not a regular file")


def test_script_that_gives_env_options_is_not_observed(case):
    """It may start without the guard, and the summary would say that nothing asked."""
    script = case.make("script", "#!/usr/bin/env -S -i /bin/sh\nexit 7\n")
    case.refused(case.start("run", "--observe", script), 125, "may not be guarded", "env options")
    done = case.start("run", script)  # control
    assert (done.returncode, done.stderr.count("cannot be checked")) == (7, 1), done.stderr
    case.refused(case.start("run", "--strict", script), 125, "cannot be checked")
