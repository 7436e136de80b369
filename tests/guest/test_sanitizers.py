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
OVERFLOW = "heap-buffer-overflow"
# The compiler, its options, and the report of the program's bug.
SANITIZERS = [
    ("gcc", "-fsanitize=address", OVERFLOW + "|LeakSanitizer"),
    ("gcc", "-fsanitize=address -static-libasan", OVERFLOW),
    ("gcc", "-fsanitize=address,undefined", "signed integer overflow"),
    ("gcc", "-fsanitize=thread", "data race"),
    ("gcc", "-fsanitize=undefined", "signed integer overflow"),
    ("clang", "-fsanitize=address", OVERFLOW),
    ("clang", "-fsanitize=thread", "data race"),
    ("clang", "-fsanitize=undefined", "signed integer overflow"),
    ("clang", "-fsanitize=memory", "use-of-uninitialized-value")]


def compile_program(case, compiler, options):
    case.need(compiler)
    program = case.path("program")
    source = os.path.join(harness.SOURCE, "tests", "guest", "programs", "sanitized.c")
    done = subprocess.run([compiler, "-g", "-O1", "-pthread", *options.split(), source, "-o",
                           program, "-ldl"], capture_output=True, text=True, check=False)
    if done.returncode != 0 and "libclang_rt" in done.stderr:
        harness.skip(case, "clang's sanitizer runtime is not installed (libclang-rt-14-dev)")
    assert done.returncode == 0, done.stderr
    return program


@pytest.mark.parametrize(("compiler", "options", "finds"), SANITIZERS)
def test_sanitizer_works_with_the_guard(case, compiler, options, finds):
    program = compile_program(case, compiler, options)
    preload = [harness.GUARD]
    if compiler == "gcc" and "address" in options and "static" not in options:
        runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True,
                                 text=True, check=True).stdout.strip()
        preload.insert(0, os.path.realpath(runtime))
    bug = harness.run([program, "bug"], guard=False, preload=preload, trace=False)
    assert re.search(finds, bug.out + bug.err), "the sanitizer is asleep\n%s" % bug
    unguarded = harness.run([program], guard=False, trace=False)
    unguarded.assert_reached(case)
    assert "cuInit=0,0,0,0 nvml=0" in unguarded.out, str(unguarded)
    for _ in range(5):
        guarded = harness.run([program], guard=False, preload=preload, trace=False)
        assert (guarded.rc, guarded.out) == (0, "cuInit=100,100,100,100 nvml=9\n"), str(guarded)
        assert not REPORT.search(guarded.err), str(guarded)
        assert guest.DENIED % "program" in guest.lines_of(guarded.err)
        guarded.assert_untouched(case)


def test_gcc_asan_needs_its_runtime_first(case):
    """The runtime's own rule, for any preload; docs/troubleshooting.md quotes the message."""
    result = harness.run([compile_program(case, "gcc", "-fsanitize=address")], trace=False)
    assert result.rc == 1, str(result)
    assert "ASan runtime does not come first in initial library list" in result.err
