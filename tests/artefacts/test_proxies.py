# SPDX-License-Identifier: Apache-2.0
"""The proxies as files (release build) obey the guard's rules that apply to both.

test_guard.py shows that those rules can fail. The proxies' own rules are shown to fail here, on the
guard and on the null drivers.
"""

import os
import unittest

from support import guard_rules, harness

PROXIES = {
    "libcudaguard-driver.so": ("libcuda.so.1", "DRIVER"),
    "libcudaguard-nvml.so": ("libnvidia-ml.so.1", "NVML"),
}
SHARED_RULES = [
    guard_rules.no_libdl_import, guard_rules.no_run_path, guard_rules.no_tls,
    guard_rules.no_text_relocation, guard_rules.no_unique, guard_rules.stack,
    guard_rules.no_writable_code, guard_rules.no_constructors, guard_rules.bind_now,
    guard_rules.relro, guard_rules.size, guard_rules.stripped,
    guard_rules.branch_protection, guard_rules.has_version_note,
]  # fmt: skip
# The proxy passes the driver's requests for other variables to getenv. The guard may be missing.
IMPORTS = guard_rules.IMPORTS | {"getenv", "strchr", "cudaguard_services_v1"}


def path_of(name):
    return os.path.join(harness.NULL_DRIVER_DIR, name)


def symbols_are_data(elf):
    """Checks that the symbol table is in no executable segment, because the proxy removes names
    from it at run time."""
    address, length = elf.sections[".dynsym"]
    for segment in elf.kind("LOAD"):
        if segment.address <= address and address + length <= segment.address + segment.memory_size:
            return ["its symbol table is executable"] if "E" in segment.flags else []
    return ["its symbol table is in no segment"]


class Proxies(unittest.TestCase):
    def each(self):
        for name, (real, library) in PROXIES.items():
            yield guard_rules.GuardFile(path_of(name)), name, real, harness.guarded(library)

    def test_proxies_obey_the_guards_rules(self):
        for elf, name, *_ in self.each():
            for rule in SHARED_RULES:
                with self.subTest(proxy=name, rule=rule.__name__):
                    self.assertEqual(rule(elf), [])

    def test_proxies_need_the_real_library_and_libc(self):
        for elf, name, real, *_ in self.each():
            with self.subTest(proxy=name):
                # The order matters: dlsym on the proxy's handle searches the real library first.
                self.assertEqual(elf.tags("NEEDED"), [real, "libc.so.6"])
                self.assertEqual(elf.tags("SONAME"), [name])
                self.assertLessEqual({s.name for s in elf.undefined}, IMPORTS)
                weak = [s.binding for s in elf.undefined if s.name == "cudaguard_services_v1"]
                self.assertEqual(weak, ["WEAK"])
                self.assertEqual(set(elf.needed_versions()), {"libc.so.6"})
                # The proxy binds its own names to itself, even if other libraries have the same
                # names.
                self.assertTrue(elf.tags("SYMBOLIC") or elf.flag("SYMBOLIC"))

    def test_exports_are_the_guarded_names(self):
        for elf, name, _, guarded in self.each():
            with self.subTest(proxy=name):
                self.assertGreater(len(guarded), 10)
                self.assertEqual({s.name for s in elf.defined},
                                 guarded | {"cudaguard_proxy_prepare_v2"})

    def test_symbol_table_is_not_executable(self):
        for elf, name, *_ in self.each():
            with self.subTest(proxy=name):
                self.assertEqual(symbols_are_data(elf), [])
                # The rule fails on a layout in which the linker puts the table next to the code.
                elf.sections[".dynsym"] = elf.sections[".text"]
                self.assertNotEqual(symbols_are_data(elf), [])
