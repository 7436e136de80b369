# SPDX-License-Identifier: Apache-2.0
"""cudaguard-probe as a file: it must run with any glibc from 2.17 on, and find the libraries that
ld.so finds."""

import os
import unittest

import pytest

from support import fixtures, guard_checks, harness

PROBE = os.path.join(harness.NULL_DRIVER_DIR, "cudaguard-probe")
CHECKS = [
    guard_checks.glibc_floor, guard_checks.no_libdl_import, guard_checks.no_run_path,
    guard_checks.no_tls, guard_checks.no_text_relocation, guard_checks.stack,
    guard_checks.no_writable_code, guard_checks.no_constructors, guard_checks.bind_now,
    guard_checks.relro, guard_checks.size, guard_checks.stripped,
]  # fmt: skip


class Probe(unittest.TestCase):
    def setUp(self):
        self.file = guard_checks.GuardFile(PROBE)

    def test_probe_needs_the_driver_and_libc(self):
        self.assertEqual(self.file.tags("NEEDED"), ["libcuda.so.1", "libc.so.6"])
        imports = {symbol.name: symbol for symbol in self.file.undefined}
        driver = {name for name in imports if name.startswith(("cu", "nvml"))}
        self.assertIn("cuInit", driver)
        # The names are weak, so ld.so accepts a driver that lacks one, and doctor reports it.
        self.assertEqual({imports[name].binding for name in driver}, {"WEAK"})
        # __libc_start_main has a new version since glibc 2.34.
        self.assertLessEqual(set(imports) - driver,
                             {"dprintf", "__dprintf_chk", "_exit", "clock_gettime"})

    def test_control_rules_can_fail(self):
        """The checks fail on a null driver, which has a run path, and on the shell, which has
        glibc's start code."""
        null_driver = guard_checks.GuardFile(harness.NULL_DRIVER_CUDA)
        self.assertNotEqual(guard_checks.no_run_path(null_driver), [])
        program = guard_checks.GuardFile(os.path.realpath("/bin/sh"))
        self.assertNotEqual(guard_checks.glibc_floor(program) +
                            guard_checks.no_constructors(program), [])


make_case = fixtures.lent("case", Probe)


@pytest.mark.parametrize("check", CHECKS)
def test_probe_passes_the_checks(case, check):
    assert check(case.file) == []
