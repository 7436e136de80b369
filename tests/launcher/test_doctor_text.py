# SPDX-License-Identifier: Apache-2.0
"""What `doctor PROGRAM` prints without --json, word for word (golden/doctor_program.txt): within
100 columns, without colour. All paths are relative ones, so that lines break at the same places
everywhere.

pytest --write-golden rewrites the file."""

import os
import platform
import re
import shutil
import unittest

from support import doctor_program, harness, launcher


@unittest.skipUnless(platform.machine() == "x86_64", "names the machines from an x86-64's view")
class Text(doctor_program.Case):
    def build(self, name, file, *options, compiler="gcc"):
        """In the directory itself: what the linker notes down is relative."""
        done = self.unguarded(compiler, os.path.join(launcher.SOURCES, file), "-o", name, *options,
                              cwd=self.directory)
        self.assertEqual(done.returncode, 0, done.stderr)

    def build_all(self):
        self.need("gcc", "clang", "musl-gcc")
        self.copy_of_driver("driver")
        os.mkdir(self.path("stub"))
        shutil.copy(os.path.join(harness.FAKES, "unnamed", "libcuda.so.1"), self.path("stub"))
        self.copied("ask")
        self.make("script", "#!/usr/bin/env python3\n")
        self.make("clears", "#!/usr/bin/env -S -i python3\n")
        self.make("unknown", "#!/usr/bin/env -S --chdir=/ python3\n")
        self.make("preloads", "#!/bin/sh\nLD_PRELOAD=libjemalloc.so.2 exec \"$@\"\n")
        self.copied("ask_static", "static")
        self.copied("ask_static_pie", "static-pie")
        self.copied("hello_driver", "named")
        self.build("linked", "linked.c", "driver/libcuda.so.1", "driver/libnvidia-ml.so.1",
                   "-Wl,--no-as-needed")
        self.build("by-path", "linked.c", "stub/libcuda.so.1")
        self.build("libtable.so", "table.c", "-shared", "-fPIC")
        self.build("table", "calls_use.c", "libtable.so", "-Wl,-rpath,.")
        self.copied("own_dlopen", "own-dlopen")
        self.build("asan", "ask.c", "-fsanitize=address")
        self.build("asan-static", "ask.c", "-fsanitize=address", compiler="clang")
        runtime = self.unguarded("ldd", self.path("asan")).stdout
        os.mkdir(self.path("libs"))
        shutil.copy(re.search(r"=> (/\S*/libasan\.so\.\d+)", runtime)[1], self.path("libs"))
        self.copied("i386_static", "i386")
        self.for_aarch64("arm", "hello")
        self.copied("hello_musl", "musl")

    def text_of(self, program, directories):
        result = harness.run([doctor_program.launcher.LAUNCHER, "doctor", program], world="none",
                             guard=False, trace=False, cwd=self.directory,
                             env={"LD_LIBRARY_PATH": directories, "PATH": "/usr/bin:/bin"})
        self.assertEqual(result.err, "", result)
        self.assertTrue(result.out.isascii() and "\x1b" not in result.out, result)
        lines = result.out.split("\n\nguard  ")[0]
        self.assertLessEqual(max(map(len, lines.splitlines())), 100, result)
        self.assertRegex(result.out, r"\Aguarded: (yes|(in part|no), because [^\n]+)\n\nprogram ")
        return re.sub(r"(libasan\.so\.)\d+", r"\1N", lines)

    def test_text_matches_the_golden_file(self):
        self.build_all()
        text = ""
        for line in ("ask", "script", "clears", "unknown", "preloads", "static", "static-pie",
                     "named", "linked", "linked none", "by-path", "table",
                     "own-dlopen", "asan", "asan-static", "i386", "arm", "musl"):
            name = line.split()[0]
            directories = "libs" if line.endswith(" none") else "libs:driver"
            text += "$ LD_LIBRARY_PATH=%s cudaguard doctor ./%s\n%s\n\n" % (
                directories, name, self.text_of("./" + name, directories))
        self.same_as_golden("doctor_program.txt", text)
