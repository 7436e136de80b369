# SPDX-License-Identifier: Apache-2.0
"""Under valgrind's memcheck a guarded program has no error that it does not have without the
guard."""

import os
import subprocess

import pytest

from support import box, guest, harness

pytestmark = pytest.mark.all

MEMCHECK = ["valgrind", "--quiet", "--error-exitcode=99", "--leak-check=no"]
SCRIPT = "import ctypes; print('cuInit=%d' % ctypes.CDLL('libcuda.so.1').cuInit(0))"
SEES = ["cu.init", "cu.see"]
LIST = dict(box.environment(allow="5,2"), LD_LIBRARY_PATH=os.path.join(harness.FAKES, "lazy"))
# What runs, its world and variables, and an answer of it: unguarded and guarded.
PROGRAMS = [
    # A handle of libc: the one that makes the dev names known, by the run path.
    ([guest.STEPS, "load:libc.so.6", "ask", "nvml"], "fake", {}, "cuInit=0", "cuInit=100"),
    ([guest.STEPS, "fork", "ask", "end", "ask"], "fake", {}, "cuInit=0", "cuInit=100"),
    ([guest.binary("steps_linked"), "ask"], "fake", {}, "cuInit=0", "cuInit=100"),
    ([box.program("open"), *SEES], "none", LIST, "cu.see=0:0:8:", "cu.see=0:0:2:"),
    ([box.program("cuda"), *SEES], "none", LIST, "cu.see=0:0:8:", "cu.see=0:0:2:"),
]
if harness.FULL:  # It takes as long as all of them.
    PROGRAMS.append(([guest.PYTHON, "-I", "-S", "-c", SCRIPT], "fake", {"PYTHONMALLOC": "malloc"},
                     "cuInit=0", "cuInit=100"))


READS_FREED = """
#include <stdlib.h>
__attribute__((constructor)) static void read_freed(void) {
  char* volatile block = malloc(1);
  free(block);
  (void)*(volatile char*)block;
}
"""


@pytest.fixture(autouse=True)
def need_valgrind(case):
    case.need("valgrind")


def check(guard, argv, world, env, answer):
    result = harness.run(MEMCHECK + argv, world=world, env=env, guard=guard, trace=False, timeout=300)
    assert result.rc == 0, str(result)
    assert "==" not in result.err, str(result)
    assert answer in result.out, str(result)


@pytest.mark.parametrize(("argv", "world", "env", "unguarded", "guarded"), PROGRAMS)
def test_guarded_programs_have_no_errors(argv, world, env, unguarded, guarded):
    if harness.FULL:  # the control: without the guard, the driver is reached
        check(False, argv, world, env, unguarded)
    check(True, argv, world, env, guarded)


def test_control_memcheck_finds_errors(tmp_path):
    """The control: beside the guard, a library that reads freed memory when it is loaded."""
    library = tmp_path / "reads_freed.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", library, "-"], input=READS_FREED,
                   text=True, check=True)
    result = harness.run([*MEMCHECK, guest.STEPS, "load:libc.so.6", "ask"], preload=[str(library)],
                         trace=False, timeout=300)
    assert result.rc == 99, str(result)
    assert "Invalid read" in result.err, str(result)
