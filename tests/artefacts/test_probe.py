# SPDX-License-Identifier: Apache-2.0
"""cudaguard-probe as a file: it must run with any glibc from 2.17 on, and find the libraries that
ld.so finds."""

import os

import pytest

from support import guard_checks, harness

PROBE = os.path.join(harness.NULL_DRIVER_DIR, "cudaguard-probe")
CHECKS = [
    guard_checks.glibc_floor, guard_checks.no_libdl_import, guard_checks.no_run_path,
    guard_checks.no_tls, guard_checks.no_text_relocation, guard_checks.stack,
    guard_checks.no_writable_code, guard_checks.no_constructors, guard_checks.bind_now,
    guard_checks.relro, guard_checks.size, guard_checks.stripped,
]  # fmt: skip


@pytest.fixture(name="probe", scope="module")
def make_probe():
    return guard_checks.GuardFile(PROBE)


def test_probe_needs_the_driver_and_libc(probe):
    assert probe.tags("NEEDED") == ["libcuda.so.1", "libc.so.6"]
    imports = {symbol.name: symbol for symbol in probe.undefined}
    driver = {name for name in imports if name.startswith(("cu", "nvml"))}
    assert "cuInit" in driver
    # The names are weak, so ld.so accepts a driver that lacks one, and doctor reports it.
    assert {imports[name].binding for name in driver} == {"WEAK"}
    # __libc_start_main has a new version since glibc 2.34.
    assert set(imports) - driver <= {"dprintf", "__dprintf_chk", "_exit", "clock_gettime"}


def test_probe_passes_the_checks(probe):
    """test_guard.py shows that they can fail."""
    for check in CHECKS:
        assert check(probe) == [], check.__name__
