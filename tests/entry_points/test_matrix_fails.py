# SPDX-License-Identifier: Apache-2.0
"""Checks that the matrix can fail: its rows fail if a library that does nothing replaces the guard.
"""

import json
import os
import subprocess
import sys
import tempfile

import pytest

from support import harness

ENTRY_POINTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "entry_points.py")
# The list has one row of each group that the guard blocks.
ROWS = ["linked.lazy-plt-guard", "cudart-shared.12-count", "cudart-static.12-malloc", "dlopen.soname-now", "dlopen.absolute-now",
        "deepbind.plugin", "pointer.libc-devname", "dlmopen.soname", "plugin.linked-cuda-now", "procaddress.proc",
        "scope.default-soname", "nvml.soname", "when.fork"]


class MatrixFails(harness.Case):

    @pytest.mark.needs("tracing")
    def test_matrix_fails_without_a_guard(self):
        idle = os.path.join(harness.PROGRAMS, "idle-guard")
        with tempfile.TemporaryDirectory() as directory:
            report = os.path.join(directory, "report.json")
            argv = [sys.executable, ENTRY_POINTS, "--build", harness.BUILD, "--lib", idle]
            argv += ["--json", report]
            for row in ROWS:
                argv += ["--entry-point", row]
            done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  check=False)
            with open(report, encoding="utf-8") as stream:
                outcomes = {outcome["entry_point"]: outcome for outcome in json.load(stream)}
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual(sorted(outcomes), sorted(ROWS))
        for entry_point, outcome in outcomes.items():
            if outcome["skipped"] and not outcome["guarded"]:
                continue
            self.assertEqual(outcome["verdict"], "FAIL", (entry_point, done.stdout))
            guarded = [where for where, _ in outcome["complaints"] if "guarded" in where]
            self.assertTrue(guarded, (entry_point, "only its control failed"))
