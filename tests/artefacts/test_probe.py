# SPDX-License-Identifier: Apache-2.0
"""cudaguard-probe as a file: it must run with any glibc from 2.17 on, and find the libraries that
ld.so finds."""

import os
import unittest

import pytest

from support import guard_rules, harness

PROBE = os.path.join(harness.NULL_DRIVER_DIR, "cudaguard-probe")
RULES = [
    guard_rules.glibc_floor, guard_rules.no_libdl_import, guard_rules.no_run_path,
    guard_rules.no_tls, guard_rules.no_text_relocation, guard_rules.stack,
    guard_rules.no_writable_code, guard_rules.no_constructors, guard_rules.bind_now,
    guard_rules.relro, guard_rules.size, guard_rules.stripped,
]  # fmt: skip


class Probe(unittest.TestCase):
    def setUp(self):
        self.file = guard_rules.GuardFile(PROBE)

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
        """The rules fail on a null driver, which has a run path, and on the shell, which has
        glibc's start code."""
        self.assertNotEqual(guard_rules.no_run_path(guard_rules.GuardFile(harness.NULL_DRIVER_CUDA)), [])
        program = guard_rules.GuardFile(os.path.realpath("/bin/sh"))
        self.assertNotEqual(guard_rules.glibc_floor(program) +
                            guard_rules.no_constructors(program), [])


@pytest.fixture(name="case")
def make_case():
    yield from harness.lent(Probe())


@pytest.mark.parametrize("rule", RULES)
def test_probe_obeys_the_rules(case, rule):
    assert rule(case.file) == []
