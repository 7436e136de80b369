# SPDX-License-Identifier: Apache-2.0
"""The same sources cross-compiled for AArch64: the files, the thunks, the entry-point matrix.

The C programs of the matrix run under qemu-user with the recording fake driver, unguarded and
guarded. There is no NVIDIA driver for AArch64 here, so no row has the real world.

    pytest tests/aarch64 --build build/aarch64 --runner build/ci/tests/aarch64/run_under_qemu
"""

import dataclasses
import os
import re
import shutil
import subprocess
import unittest

import pytest

from support import elf_facts, fixtures, guard_checks, harness, matrix, settings

TOOLS = ("qemu-aarch64",)
# These rows need more than one emulated program, but qemu-user does not follow an exec.
EXECS = re.compile(r"^when\.(vfork|spawn|system)")
# These do not exist for AArch64: OpenCL's loader in the cross tree, and NVIDIA's wheels of these
# versions.
NOT_HERE = re.compile(r"plugin_opencl|runtime_(12\.2_|11_static|11_linked)")


def setUpModule():
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    reason = None
    if missing:
        reason = "not installed: %s (qemu-user, g++-aarch64-linux-gnu)" % ", ".join(missing)
    elif not os.path.exists(harness.program("entry_point")):
        reason = "not built: cmake --build --preset aarch64 (scripts/test --full does)"
    if reason:
        if settings.MUST_RUN:
            raise RuntimeError("may not be skipped (--must-run): " + reason)
        raise unittest.SkipTest(reason)


def rows():
    """Yields the matrix's rows that are one C or C++ program, for the worlds that exist here."""
    for row in matrix.load_rows():
        if not row.argv[0].startswith("{programs}/") or EXECS.match(row.id):
            continue
        if NOT_HERE.search(" ".join(row.argv)):
            continue
        unguarded = tuple(world for world in row.unguarded if world != "real")
        worlds = tuple(world for world in row.worlds if world != "real")
        if row.unguarded and not unguarded:
            continue  # its control needs the real driver
        if "fake" in worlds or "none" in worlds:
            yield dataclasses.replace(row, unguarded=unguarded, worlds=worlds, timeout=300)


make_case = fixtures.lent("case", harness.Case)


@pytest.mark.parametrize("check", guard_checks.CHECKS)
def test_guard_passes_check(check):
    assert check(guard_checks.GuardFile(harness.GUARD)) == []


class Files(unittest.TestCase):
    def setUp(self):
        self.guard = guard_checks.GuardFile(harness.GUARD)

    def test_libraries_are_for_this_machine(self):
        for path in (harness.GUARD, harness.NULL_DRIVER_CUDA, harness.NULL_DRIVER_NVML):
            self.assertIn("AArch64", elf_facts.Library(path).machine)

    def test_probe_asks_the_driver_that_ld_so_finds(self):
        """doctor's probe has no start code of glibc's and calls the driver that ld.so finds."""
        probe = os.path.join(harness.NULL_DRIVER_DIR, "cudaguard-probe")
        env = dict(os.environ, LD_LIBRARY_PATH=harness.NULL_DRIVER_DIR)
        done = subprocess.run([settings.RUNNER, probe], env=env, capture_output=True,
                              text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        self.assertRegex(done.stdout, r"\ncudaguard-probe init 100 \d+\n")

    def test_unwind_entries_match_the_thunks(self):
        """The frame is 32 bytes after the first store, and is empty at the jump."""
        frames = elf_facts.tool_output("readelf", "--debug-dump=frames-interp", harness.GUARD)
        for symbol in self.guard.defined:
            if symbol.name not in ("dlopen", "dlmopen", "dlvsym"):
                continue
            entry = re.search(r"pc=%016x\.\.%016x\n(.*?)\n\n" %
                              (symbol.value, symbol.value + symbol.size), frames, re.DOTALL)
            self.assertIsNotNone(entry, "no unwind entry for " + symbol.name)
            steps = [(int(line.split()[0], 16) - symbol.value, *line.split()[1:3])
                     for line in entry[1].splitlines()[1:]]
            self.assertEqual(steps, [(0, "sp+0", "u"), (8, "sp+32", "u"), (12, "sp+32", "c-8"),
                                     (48, "sp+32", "u"), (52, "sp+0", "u")])


def test_matrix_has_every_group_of_entry_points():
    wanted = {"linked", "cudart-shared", "cudart-static", "dlopen", "deepbind", "pointer", "dlmopen",
              "plugin", "procaddress", "scope", "nvml", "when", "decoy", "versions"}
    assert wanted - {row.group for row in rows()} == set()


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in rows()])
def test_entry_point_passes_under_qemu(case, row):
    outcome = matrix.perform(row)
    for where, found, result in outcome.complaints:
        case.fail("%s, %s:\n  %s\n%s" % (row.about, where, "\n  ".join(found), result))
    if outcome.skipped:
        harness.skip(case, "; ".join(outcome.skipped))
