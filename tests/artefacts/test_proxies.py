# SPDX-License-Identifier: Apache-2.0
"""The proxies as files (release build), held to the guard's rules where they are alike.

That those rules can fail is shown in test_guard.py; the ones that are the proxies' own
are shown to fail here, on the guard and on the null drivers.
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
    guard_rules.branch_protection, guard_rules.says_its_version,
]  # fmt: skip
# getenv: what the driver asks for besides its own variables. The guard is there or not.
IMPORTS = guard_rules.IMPORTS | {"getenv", "strchr", "cudaguard_services_v1"}


def path_of(name):
    return os.path.join(harness.NULL_DRIVER_DIR, name)


def symbols_are_data(elf):
    """The symbol table lies in no executable segment: names are taken out of it at run time."""
    address, length = elf.sections[".dynsym"]
    for segment in elf.kind("LOAD"):
        if segment.address <= address and address + length <= segment.address + segment.memory_size:
            return ["its symbol table is executable"] if "E" in segment.flags else []
    return ["its symbol table is in no segment"]


class Proxies(unittest.TestCase):
    def each(self):
        for name, (real, library) in PROXIES.items():
            yield guard_rules.GuardFile(path_of(name)), name, real, harness.guarded(library)

    def test_shared_rules(self):
        for elf, name, *_ in self.each():
            for rule in SHARED_RULES:
                with self.subTest(proxy=name, rule=rule.__name__):
                    self.assertEqual(rule(elf), [])

    def test_what_it_needs(self):
        for elf, name, real, *_ in self.each():
            with self.subTest(proxy=name):
                # In this order: dlsym on its handle looks into the real library first.
                self.assertEqual(elf.tags("NEEDED"), [real, "libc.so.6"])
                self.assertEqual(elf.tags("SONAME"), [name])
                self.assertLessEqual({s.name for s in elf.undefined}, IMPORTS)
                weak = [s.binding for s in elf.undefined if s.name == "cudaguard_services_v1"]
                self.assertEqual(weak, ["WEAK"])
                self.assertEqual(set(elf.needed_versions()), {"libc.so.6"})
                # Its own names are its own, whatever else is called like them.
                self.assertTrue(elf.tags("SYMBOLIC") or elf.flag("SYMBOLIC"))

    def test_exports_are_the_guarded_names(self):
        for elf, name, _, guarded in self.each():
            with self.subTest(proxy=name):
                self.assertGreater(len(guarded), 10)
                self.assertEqual({s.name for s in elf.defined},
                                 guarded | {"cudaguard_companion_prepare_v1"})

    def test_symbols_are_data(self):
        for elf, name, *_ in self.each():
            with self.subTest(proxy=name):
                self.assertEqual(symbols_are_data(elf), [])
                # The rule can fail: in a linker's layout where the table lies with the code.
                elf.sections[".dynsym"] = elf.sections[".text"]
                self.assertNotEqual(symbols_are_data(elf), [])
