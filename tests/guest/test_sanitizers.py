# SPDX-License-Identifier: Apache-2.0
"""Programs built with the sanitizers of gcc and clang, under the guard of the build under test:
no report, and the answer is 100. (Not under strace: LeakSanitizer is a debugger itself.)"""

import os
import re
import subprocess

import pytest

from support import guest, harness

pytestmark = pytest.mark.all

REPORT = re.compile(r"(ERROR|WARNING): \w+Sanitizer|runtime error:|ASan runtime|==\d+==")


class Sanitizers(guest.Case):
    def compile(self, compiler, options):
        self.need(compiler)
        program = self.path("program")
        done = subprocess.run(
            [compiler, "-g", "-O1", "-pthread", *options,
             os.path.join(harness.SOURCE, "tests", "guest", "programs", "sanitized.c"), "-o",
             program, "-ldl"], capture_output=True, text=True, check=False)
        if done.returncode != 0 and "libclang_rt" in done.stderr:
            harness.skip(self, "clang's sanitizer runtime is not installed (libclang-rt-14-dev)")
        self.assertEqual(done.returncode, 0, done.stderr)
        return program

    def check(self, compiler, options, finds, first=(), env=None):
        """first: what must come before the guard in LD_PRELOAD; finds: the report of the bug."""
        program = self.compile(compiler, options)
        preload = [*first, harness.GUARD]

        bug = harness.run([program, "bug"], guard=False, preload=preload, trace=False, env=env)
        self.assertRegex(bug.out + bug.err, finds, "the sanitizer is asleep")

        unguarded = harness.run([program], guard=False, trace=False, env=env)
        unguarded.assert_reached(self)
        self.assertIn("cuInit=0,0,0,0 nvml=0", unguarded.out, unguarded)
        for _ in range(5):
            guarded = harness.run([program], guard=False, preload=preload, trace=False, env=env)
            self.assertEqual(guarded.out, "cuInit=100,100,100,100 nvml=9\n", guarded)
            self.assertEqual(guarded.rc, 0, guarded)
            self.assertNotRegex(guarded.err, REPORT)
            self.assertIn(guest.DENIED % "program", guest.lines_of(guarded.err))
            guarded.assert_untouched(self)

    def test_gccs_asan_works_with_the_guard(self):
        runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True,
                                 text=True, check=True).stdout.strip()
        self.check("gcc", ["-fsanitize=address"], "heap-buffer-overflow|LeakSanitizer",
                   [os.path.realpath(runtime)])

    def test_gcc_asan_needs_its_runtime_first(self):
        # The runtime's own rule, for any preload; docs/troubleshooting.md quotes the message.
        program = self.compile("gcc", ["-fsanitize=address"])
        result = harness.run([program], trace=False)
        self.assertEqual(result.rc, 1, result)
        self.assertIn("ASan runtime does not come first in initial library list", result.err)

    def test_gccs_static_asan_works_with_the_guard(self):
        self.check("gcc", ["-fsanitize=address", "-static-libasan"], "heap-buffer-overflow")

    def test_clangs_asan_works_with_the_guard(self):
        self.check("clang", ["-fsanitize=address"], "heap-buffer-overflow")

    def test_gccs_tsan_works_with_the_guard(self):
        self.check("gcc", ["-fsanitize=thread"], "data race")

    def test_clangs_tsan_works_with_the_guard(self):
        self.check("clang", ["-fsanitize=thread"], "data race")

    def test_gccs_ubsan_works_with_the_guard(self):
        self.check("gcc", ["-fsanitize=undefined"], "signed integer overflow")

    def test_clangs_ubsan_works_with_the_guard(self):
        self.check("clang", ["-fsanitize=undefined"], "signed integer overflow")

    def test_clangs_msan_works_with_the_guard(self):
        self.check("clang", ["-fsanitize=memory"], "use-of-uninitialized-value")

    def test_gccs_asan_and_ubsan_work_with_the_guard(self):
        runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True,
                                 text=True, check=True).stdout.strip()
        self.check("gcc", ["-fsanitize=address,undefined"], "signed integer overflow",
                   [os.path.realpath(runtime)])
