# SPDX-License-Identifier: Apache-2.0
"""What `doctor PROGRAM` prints about the program without --json, word for word
(transcripts/doctor_program.txt): within 100 columns, without colour. All paths are relative ones, so
that lines break at the same places everywhere.

pytest --write-golden rewrites the file."""

import os
import platform
import re
import shutil
import types

import pytest

from support import doctor_program, fixtures, harness, launcher, transcript


pytestmark = pytest.mark.skipif(platform.machine() != "x86_64",
                                reason="names the machines from an x86-64's view")


class Directory(doctor_program.Case):
    """The directory in which the commands run."""

    def setUp(self):
        super().setUp()
        self.need("gcc")
        self.copy_of_driver("driver")
        os.mkdir(self.path("stub"))
        shutil.copy(os.path.join(harness.FAKES, "unnamed", "libcuda.so.1"), self.path("stub"))
        self.make("script", "#!/usr/bin/env python3\n")
        self.make("preloads", "#!/bin/sh\nLD_PRELOAD=libjemalloc.so.2 exec \"$@\"\n")
        self.copied("ask_static_pie", "static-pie")
        done = self.unguarded("gcc", os.path.join(launcher.SOURCES, "linked.c"), "-o", "by-path",
                              "stub/libcuda.so.1", cwd=self.directory)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.copied("own_dlopen", "own-dlopen")


make_place = fixtures.lent("place", Directory, scope="module")


@transcript.each("doctor_program")
def test_text_about_a_program(place, command, block):
    directories, program = re.fullmatch(r"LD_LIBRARY_PATH=(\S+) cudaguard doctor (\S+)",
                                        command).groups()
    result = harness.run([launcher.LAUNCHER, "doctor", program], world="none", guard=False,
                         trace=False, cwd=place.directory,
                         env={"LD_LIBRARY_PATH": directories, "PATH": "/usr/bin:/bin"})
    assert result.out.isascii() and "\x1b" not in result.out, str(result)
    lines = result.out.split("\n\nguard  ")[0] + "\n"
    assert max(map(len, lines.splitlines())) <= 100, str(result)
    assert re.search(r"\Aguarded: (yes|(in part|no), because [^\n]+)\n\nprogram ",
                     result.out), str(result)
    done = types.SimpleNamespace(stdout=lines, stderr=result.err, returncode=result.rc)
    transcript.check(place, "doctor_program", command, block, done, str)
