# SPDX-License-Identifier: Apache-2.0
"""Checks that the matrix can fail: its rows fail if a library that does nothing replaces the guard.
"""

import os
import re
import subprocess
import sys

import pytest

from support import harness

ENTRY_POINTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "entry_points.py")
# The list has one row of each group that the guard blocks.
ROWS = ["linked.lazy-plt-guard", "cudart-shared.12-count", "cudart-static.12-malloc", "dlopen.soname-now", "dlopen.absolute-now",
        "deepbind.plugin", "pointer.libc-devname", "dlmopen.soname", "plugin.linked-cuda-now", "procaddress.proc",
        "scope.default-soname", "nvml.soname", "when.fork"]


@pytest.mark.needs("tracing")
def test_matrix_fails_without_a_guard():
    argv = [sys.executable, ENTRY_POINTS, "--build", harness.BUILD,
            "--lib", os.path.join(harness.PROGRAMS, "idle-guard")]
    for row in ROWS:
        argv += ["--entry-point", row]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    verdicts = dict(re.findall(r"(?m)^(\S+) +\|.*\| (\w+)$", done.stdout))
    assert (done.returncode, sorted(verdicts)) == (1, sorted(ROWS)), done.stdout
    for row, verdict in verdicts.items():
        if verdict == "skip":
            continue
        assert verdict == "FAIL", (row, done.stdout)
        # Not only its control.
        assert re.search(r"(?m)^%s \(.*\) FAILED, guarded" % re.escape(row), done.stdout), row
