# SPDX-License-Identifier: Apache-2.0
"""The proxies as files (release build) pass the guard's checks that apply to both.

test_guard.py shows that those checks can fail. The proxies' own checks are shown to fail here, on
the guard and on the null drivers.
"""

import functools
import os

import pytest

from support import guard_checks, harness

PROXIES = {
    "libcudaguard-driver.so": ("libcuda.so.1", "DRIVER"),
    "libcudaguard-nvml.so": ("libnvidia-ml.so.1", "NVML"),
}
SHARED_CHECKS = [
    guard_checks.no_libdl_import, guard_checks.no_run_path, guard_checks.no_tls,
    guard_checks.no_text_relocation, guard_checks.no_unique, guard_checks.stack,
    guard_checks.no_writable_code, guard_checks.no_constructors, guard_checks.bind_now,
    guard_checks.relro, guard_checks.size, guard_checks.symbol_table_apart, guard_checks.stripped,
    guard_checks.branch_protection, guard_checks.has_version_note,
]  # fmt: skip
# The proxy passes the driver's requests for other variables to getenv. The guard may be missing.
IMPORTS = guard_checks.IMPORTS | {"getenv", "strchr", "cudaguard_services_v1"}


def path_of(name):
    return os.path.join(harness.NULL_DRIVER_DIR, name)


@functools.cache
def proxy_file(name):
    return guard_checks.GuardFile(path_of(name))


@pytest.mark.parametrize("name", PROXIES)
def test_proxies_obey_the_guards_rules(name):
    for check in SHARED_CHECKS:
        assert check(proxy_file(name)) == [], check.__name__


@pytest.mark.parametrize("name", PROXIES)
def test_proxies_need_the_real_library_and_libc(name):
    elf, real = proxy_file(name), PROXIES[name][0]
    # The order matters: dlsym on the proxy's handle searches the real library first.
    assert elf.tags("NEEDED") == [real, "libc.so.6"]
    assert elf.tags("SONAME") == [name]
    assert {s.name for s in elf.undefined} <= IMPORTS
    weak = [s.binding for s in elf.undefined if s.name == "cudaguard_services_v1"]
    assert weak == ["WEAK"]
    assert set(elf.needed_versions()) == {"libc.so.6"}
    # The proxy binds its own names to itself, even if other libraries have the same
    # names.
    assert elf.tags("SYMBOLIC") or elf.flag("SYMBOLIC")


@pytest.mark.parametrize("name", PROXIES)
def test_exports_are_the_guarded_names(name):
    elf, guarded = proxy_file(name), harness.guarded(PROXIES[name][1])
    assert len(guarded) > 10
    assert {s.name for s in elf.defined} == guarded | {"cudaguard_proxy_prepare_v2"}
