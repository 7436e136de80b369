# SPDX-License-Identifier: Apache-2.0
"""The null drivers as files: what they export and need, and what tools that patch a driver rely on.
"""

import csv
import json
import os
import re
import unittest

from support import elf_facts, guard_checks, harness

API = os.path.join(harness.SOURCE, "shim", "api")
CLAIM = "cudaguard_null_driver_claim_v1"
LARGEST = 128 * 1024
CHECKS = [
    guard_checks.needed, guard_checks.no_libdl_import, guard_checks.glibc_floor,
    guard_checks.no_tls, guard_checks.no_text_relocation, guard_checks.no_unique,
    guard_checks.stack, guard_checks.no_writable_code, guard_checks.no_constructors,
    guard_checks.bind_now, guard_checks.nodelete, guard_checks.relro, guard_checks.stripped,
    guard_checks.has_version_note,
]  # fmt: skip


def table(name):
    with open(os.path.join(API, name), encoding="utf-8", newline="") as stream:
        return {row["name"] for row in csv.DictReader(stream)}


def driver_exports(name):
    """Returns the exports of driver 535: {name: size of a variable, 0 for a function}."""
    result = {}
    with open(os.path.join(API, name), encoding="utf-8") as stream:
        for line in stream:
            fields = line.split()
            result[fields[0]] = int(fields[2]) if len(fields) == 3 else 0
    return result


def not_plain(library, functions):
    """Returns the functions on whose entry a tool cannot put its patch, each with the reason."""
    codes = library.codes(functions)
    assert len(codes) == len(functions)
    return {name: fault for name, code in codes.items()
            if (fault := fault_of(code, library.is_x86))}


def fault_of(code, is_x86):
    if not is_x86:
        word = int.from_bytes(code[:4], "little")
        if 0xd503201f <= word <= 0xd50325ff and word & 0x1f == 0x1f:
            return "bti, nop or another hint"
        return "jump" if word >> 26 == 0b000101 else None
    if code.startswith(b"\xf3\x0f\x1e\xfa"):
        return "endbr64"
    if code.startswith((b"\x90", b"\x66\x90", b"\x0f\x1f", b"\x66\x0f\x1f")):
        return "nop"
    return "jump" if code[0] in (0xe9, 0xeb) else None


class NullDriver:
    """The tests of one null driver. The subclasses name it."""

    path = csv_file = list_file = soname = dev_name = ""
    of_libc = frozenset()

    @classmethod
    def setUpClass(cls):
        cls.library = guard_checks.GuardFile(cls.path)
        # On AArch64 the linker leaves the names of sections in the table, and no program uses them.
        cls.exports = [s for s in cls.library.exports() if s.type != "SECTION"]
        cls.functions = [s for s in cls.exports if s.type == "FUNC"]
        cls.names = table(cls.csv_file)
        cls.driver = driver_exports(cls.list_file)

    def test_obeys_the_guards_rules(self):
        """test_guard.py shows that each of these checks can fail."""
        for check in CHECKS:
            self.assertEqual(check(self.library), [], check.__name__)
        self.assertEqual(self.library.tags("SONAME"), [self.soname])

    def test_imports_are_few_and_from_libc(self):
        imports = {s.name: s for s in self.library.imports()}
        attempt = imports.pop("cudaguard_attempt_v1")
        self.assertEqual(attempt.binding, "WEAK", "without a guard it must be null")
        # Compilers turn plain loops into these calls.
        self.assertEqual(set(imports) - {"memcpy", "memset", "strlen"}, {"getauxval"} | self.of_libc)

    def test_exports_are_the_table(self):
        data = {name for name, size in self.driver.items() if size}
        expected = self.names | data | {CLAIM}
        exported = [s.name for s in self.exports]
        self.assertEqual(sorted(set(expected) - set(exported)), [], "in the table, not exported")
        self.assertEqual(sorted(set(self.driver) - set(exported)), [], "in driver 535")
        self.assertEqual(sorted(set(exported) - set(expected)), [], "exported, not in the table")
        self.assertEqual(len(exported), len(set(exported)))

    def test_exports_are_plain_functions_and_variables(self):
        for symbol in self.exports:
            self.assertEqual(symbol.binding, "GLOBAL", symbol.name)
            kind = "OBJECT" if self.driver.get(symbol.name) else "FUNC"
            self.assertEqual(symbol.type, kind, symbol.name)  # therefore neither IFUNC nor TLS
            self.assertEqual(symbol.version, "", symbol.name)
        for name, size in self.driver.items():
            if size:
                found = [s.size for s in self.exports if s.name == name]
                self.assertEqual(found, [size], name)

    def test_each_segment_is_in_the_file(self):
        """Zeros that the file does not contain would need one more mapping in every process."""
        for segment in self.library.kind("LOAD"):
            self.assertEqual(segment.memory_size, segment.file_size)

    def test_names_are_searched_in_the_programs_order(self):
        self.assertFalse(self.library.tags("SYMBOLIC") or self.library.flag("SYMBOLIC"))

    def test_run_path_leads_to_the_own_link(self):
        # The claim uses DT_RPATH to find the link in this file's directory before LD_LIBRARY_PATH.
        # The text is as long as the path that ld.so reads (shim/null_driver/CMakeLists.txt), and
        # ld.so removes the slashes.
        self.assertEqual(self.library.tags("RPATH"), ["$ORIGIN/////////"])
        self.assertEqual(self.library.tags("RUNPATH"), [])
        link = os.path.join(os.path.dirname(self.path), self.dev_name)
        self.assertTrue(os.path.samefile(link, self.path))
        self.assertTrue(os.path.islink(link))
        self.assertEqual(os.path.dirname(os.readlink(link)), "", "the directory can be moved")

    def test_names_need_no_relocation(self):
        self.assertEqual(set(self.library.relocations()) - {"GLOB_DAT", "JUMP_SLOT", "JUMP_SLO", "JUMP_SL"},
                         set())
        self.assertLessEqual(len(self.library.relocations()), 7)

    def test_each_name_has_its_own_body(self):
        room = 16 if self.library.is_x86 else 32
        ordered = sorted(self.functions, key=lambda s: s.value)
        self.assertGreater(len(ordered), 400)
        for symbol in ordered:
            self.assertGreaterEqual(symbol.size, room, symbol.name)
            self.assertEqual(symbol.value % 16, 0, symbol.name)
        for symbol, following in zip(ordered, ordered[1:]):
            self.assertGreaterEqual(following.value, symbol.value + symbol.size,
                                    "%s and %s share a body" % (symbol.name, following.name))

    def test_bodies_begin_with_plain_code(self):
        self.assertEqual(not_plain(self.library, self.functions), {})

    def test_keeps_the_shadow_stack(self):
        if self.library.is_x86:
            self.assertEqual(self.library.properties, {"SHSTK"})

    def test_exports_every_name_of_the_installed_driver(self):
        if not harness.have_real_driver():
            harness.skip(self, harness.NO_DRIVER)
        real = elf_facts.Library(os.path.join(harness.real_driver_dir(), self.soname))
        prefix = "cu" if self.dev_name == "libcuda.so" else "nvml"
        names = {s.name for s in real.exports() if s.name.startswith(prefix)}
        self.assertGreater(len(names), 300)
        self.assertEqual(sorted(names - {s.name for s in self.exports}), [])

    def test_file_stays_small(self):
        # For AArch64, the linker pads the file to a page of 64 KiB.
        padding = 0 if self.library.is_x86 else 64 * 1024
        self.assertLessEqual(os.path.getsize(self.path), LARGEST + padding)


class CudaNullDriver(NullDriver, unittest.TestCase):
    path = harness.NULL_DRIVER_CUDA
    csv_file, list_file = "driver.csv", "driver-535-cuda.txt"
    soname, dev_name = "libcuda.so.1", "libcuda.so"
    of_libc = frozenset({"secure_getenv", "localtime_r"})  # the log of MPS


class NvmlNullDriver(NullDriver, unittest.TestCase):
    path = harness.NULL_DRIVER_NVML
    csv_file, list_file = "nvml.csv", "driver-535-nvml.txt"
    soname, dev_name = "libnvidia-ml.so.1", "libnvidia-ml.so"
    of_libc = frozenset({"poll"})  # nvmlEventSetWait


def test_flags_remove_a_packagers_landing_pads():
    """GCC 14 adds the kinds of -fcf-protection up. With another compiler the bodies do not show it."""
    entries = json.loads(harness.read(harness.BUILD, "compile_commands.json"))
    commands = [entry["command"] for entry in entries
                if re.search(r"shim/null_driver/\w+\.cpp$", entry["file"])]
    assert len(commands) >= 4
    name, wanted = (("-fcf-protection", ["full", "none", "return"]) if os.uname().machine == "x86_64"
                    else ("-mbranch-protection", ["standard", "none"]))
    for command in commands:
        assert re.findall(name + r"=(\S+)", command)[-len(wanted):] == wanted
