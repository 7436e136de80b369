# SPDX-License-Identifier: Apache-2.0
"""Sparse files of 4 TB that begin as a program or a library: the launcher reads what the ELF
headers and tables lead to, up to a limit."""

import os
import re
import subprocess

import pytest

from support import harness, launcher

pytestmark = pytest.mark.all

SIZE = 4 << 40
MOST = 2 << 30  # bytes that may be read
LIMIT = 20  # seconds of processor time, after which the kernel kills what reads permanently
READ = re.compile(r"\b(?:read|pread64)\(.*\) = (\d+)$", re.MULTILINE)


class Huge(launcher.Case):
    def grow(self, path):
        os.truncate(path, SIZE)
        return path

    def bytes_read(self, *words, codes=(0, 1)):
        """How many the launcher and its children read; it ends with one of these exit codes."""
        log = self.path("log")
        env = launcher.environment(LD_LIBRARY_PATH=harness.FAKE_DRIVER)
        done = subprocess.run(
            ["prlimit", "--cpu=%d" % LIMIT, "strace", "-f", "-o", log, "-e",
             "trace=read,pread64", *words], capture_output=True, text=True, env=env, check=False)
        self.assertIn(done.returncode, codes, done)
        with open(log, encoding="utf-8", errors="replace") as stream:
            return sum(int(count) for count in READ.findall(stream.read()))

    def assert_bounded(self, program, codes=(0, 1)):
        for command in ("doctor", "run"):
            self.assertLess(self.bytes_read(launcher.LAUNCHER, command, program, codes=codes),
                            MOST, command)

    def test_control_bytes_that_are_read_are_counted(self):
        with open(self.path("big"), "wb") as stream:
            stream.write(b"x" * (1 << 20))
        self.assertGreater(self.bytes_read("cat", self.path("big")), 1 << 20)

    def test_end_of_a_huge_program_is_not_read(self):
        """After all that is loaded: an installer's data, or nothing."""
        self.assert_bounded(self.grow(self.copied("ask")))

    def test_huge_static_program_is_not_read_whole(self):
        self.assert_bounded(self.grow(self.copied("ask_static")), (0, 1, 2))

    def test_huge_library_is_not_read_whole(self):
        self.grow(self.copied("library.so"))
        self.assert_bounded(self.copied("library_user"))
