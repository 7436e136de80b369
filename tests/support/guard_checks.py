# SPDX-License-Identifier: Apache-2.0
"""The checks for libcudaguard.so as a file. Each takes a GuardFile and returns complaints.

They are separate from the tests so that the AArch64 build has to pass the same ones.
"""

import functools
import os
import re
import struct

from support import elf_facts, harness

# The guard exports as few names as possible, because a library crashes if it has a variable with
# the name of an export.
EXPORTS = harness.guarded("DRIVER|NVML|RUNTIME", "LINKED") | {
    "dlopen", "dlmopen", "dlclose", "dlvsym", "cudaguard_attempt_v1", "cudaguard_attempts", "cudaguard_watch",
    "cudaguard_refuses_contexts",
    "cudaguard_services_v1",
}  # fmt: skip
# Every C library, musl too, has had these names for decades, and none of them locks, allocates or
# prints. Compilers turn plain loops and copies into the mem* functions.
IMPORTS = {
    "__errno_location", "__environ", "environ", "dl_iterate_phdr", "getauxval",
    "gnu_get_libc_version",  # weak: not in musl
    "bcmp", "memchr", "memcmp", "memcpy", "memmove", "memset", "strcmp", "strlen", "strnlen",
}  # fmt: skip
# These names moved from libdl.so.2 to libc.so.6 in glibc 2.34.
LIBDL = re.compile(
    r"^_?_?(dlopen|dlmopen|dlclose|dlsym|dlvsym|dlerror|dladdr1?|dlinfo|dl_find_object)$")
FLOOR = (2, 17)
# This limit detects accidental growth with any compiler.
MOST_BYTES = 140 * 1024
# A table of functions has them. A table of texts has them if its rows are pointers.
MOST_POINTERS = 40


def version():
    return re.search(r"project\(cudaguard VERSION ([0-9.]+)", harness.read("CMakeLists.txt"))[1]


def version_note():
    """Returns the note that names the cudaguard version of the file."""
    text = b"cudaguard %s\0" % version().encode()
    return struct.pack("<III12s", len(b"cudaguard\0"), len(text), 1, b"cudaguard") + text


class GuardFile(elf_facts.Library):
    @functools.cached_property
    def facts(self):
        """Returns what several checks need: (dynamic table, symbols, segments)."""
        return self.dynamic(), self.symbols(), self.segments()

    def tags(self, name):
        return [value for tag, value in self.facts[0] if tag == name]

    def flag(self, name):
        """Returns true if DT_FLAGS or DT_FLAGS_1 has this flag."""
        values = self.tags("FLAGS") + self.tags("FLAGS_1")
        return any(name in value.split() for value in values)

    def kind(self, name):
        return [segment for segment in self.facts[2] if segment.type == name]

    @property
    def defined(self):
        return [s for s in self.facts[1] if s.section != "UND" and s.type != "SECTION"]

    @property
    def undefined(self):
        return [s for s in self.facts[1] if s.section == "UND"]

    @functools.cached_property
    def sections(self):
        """Returns {name: (address, size)}."""
        listed = elf_facts.tool_output("readelf", "-SW", self.path)
        return {m[1]: (int(m[2], 16), int(m[3], 16)) for m in re.finditer(
            r"\] (\.\S+)\s+\S+\s+([0-9a-f]{16}) [0-9a-f]+ ([0-9a-f]+)", listed)}

    @property
    def properties(self):
        """Returns the features of the property note, for example {"IBT", "SHSTK"}."""
        notes = elf_facts.tool_output("readelf", "-nW", self.path)
        found = re.search(r"Properties: \w+ feature: (.*)", notes)
        return {word.strip() for word in found[1].split(",")} if found else set()


def needed(elf):
    found = elf.tags("NEEDED")
    return [] if found == ["libc.so.6"] else ["NEEDED is %s" % found]


def imports(elf):
    return ["imports " + s.name for s in elf.undefined if s.name not in IMPORTS]


def no_libdl_import(elf):
    return ["imports %s@%s" % (s.name, s.version) for s in elf.undefined if LIBDL.match(s.name)]


def glibc_floor(elf):
    versions = elf.needed_versions()
    found = ["needs a version of " + file for file in versions if file != "libc.so.6"]
    for version in versions["libc.so.6"]:
        number = elf_facts.glibc_version(version)
        if number is None or number > FLOOR:
            found.append("needs " + version)
    return found


def exports(elf):
    names = {symbol.name for symbol in elf.defined}
    found = ["exports " + name for name in sorted(names - EXPORTS)]
    found += ["does not export " + name for name in sorted(EXPORTS - names)]
    for symbol in elf.defined:
        # The linker would copy a data object into programs.
        if symbol.type != "FUNC" or symbol.binding not in ("GLOBAL", "WEAK"):
            found.append("exports %s as %s %s" % (symbol.name, symbol.binding, symbol.type))
    # An export without a version fits every import, and dlvsym does not find it. gold defines one
    # version for the file, which no symbol has.
    return found + (["exports versions"] if elf.tags("VERDEFNUM") not in ([], ["1"]) else [])


def soname(elf):
    found = elf.tags("SONAME")
    return [] if found == ["libcudaguard.so"] else ["SONAME is %s" % found]


def no_run_path(elf):
    return ["has %s" % name for name in ("RPATH", "RUNPATH", "AUDIT", "DEPAUDIT", "FILTER",
                                         "AUXILIARY") if elf.tags(name)]


def no_tls(elf):
    return (["has a TLS segment"] if elf.kind("TLS") else []) + [
        "TLS symbol " + s.name for s in elf.facts[1] if s.type == "TLS"]


def no_text_relocation(elf):
    return ["has TEXTREL"] if elf.tags("TEXTREL") or elf.flag("TEXTREL") else []


def no_unique(elf):
    # For a stripped file, readelf prints "<OS specific>: 10" instead of UNIQUE.
    return ["%s symbol %s" % (s.binding, s.name) for s in elf.facts[1]
            if s.binding not in ("LOCAL", "GLOBAL", "WEAK")]


def stack(elf):
    found = elf.kind("GNU_STACK")
    if not found:
        return ["has no GNU_STACK: the stack would be executable"]
    return ["asks for an executable stack"] if "E" in found[0].flags else []


def no_writable_code(elf):
    return ["a segment is writable and executable"] if any(
        "W" in s.flags and "E" in s.flags for s in elf.kind("LOAD")) else []


def no_constructors(elf):
    tags = [t for t in ("INIT", "FINI", "INIT_ARRAY", "FINI_ARRAY", "PREINIT_ARRAY") if elf.tags(t)]
    named = [name for name in elf.sections if re.match(r"\.(init|fini|preinit|ctors|dtors)", name)]
    return ["has " + name for name in tags + named]


def one_constructor(elf):
    """Allows the start record's constructor and no destructor."""
    its_own = {"has INIT_ARRAY", "has .init_array"}
    count = elf.tags("INIT_ARRAYSZ")
    return [found for found in no_constructors(elf) if found not in its_own] + (
        [] if count == ["8 (bytes)"] else ["constructors: %s" % count])


def bind_now(elf):
    # A lazily bound call would run ld.so's resolver inside a hook, and the resolver saves vector
    # registers. With --disable-new-dtags, as Spack and conda link, the flag is a tag.
    bound = elf.flag("BIND_NOW") or elf.tags("BIND_NOW")
    return [] if bound and elf.flag("NOW") else ["is not BIND_NOW"]


def nodelete(elf):
    return [] if elf.flag("NODELETE") else ["is not NODELETE"]


def relro(elf):
    segments = elf.kind("GNU_RELRO")
    if not segments:
        return ["has no RELRO"]
    start, end = segments[0].address, segments[0].address + segments[0].memory_size
    tables = [elf.sections[name] for name in (".got", ".got.plt") if name in elf.sections]
    covered = all(start <= address and address + length <= end for address, length in tables)
    return [] if covered else ["its GOT stays writable"]


def size(elf):
    if elf.is_x86:
        found = os.path.getsize(elf.path)
    else:
        # This file is linked for pages of 64 KiB, so it has a gap between code and data.
        found = sum(segment.file_size for segment in elf.kind("LOAD"))
    return [] if found <= MOST_BYTES else ["has %d bytes" % found]


def pointers(elf):
    """ld.so adjusts them at the start of each process, in a page that it would not copy otherwise."""
    found = elf.relocations().count("RELATIVE")
    return [] if found <= MOST_POINTERS else ["has %d pointers" % found]


def symbol_table_apart(elf):
    """The library removes names from its symbol table, whose pages are not executable meanwhile."""
    page = 4096 if elf.is_x86 else 65536
    def pages(name):
        address, length = elf.sections[name]
        return range(address // page, (address + length - 1) // page + 1)
    table = set(pages(".dynsym"))
    return ["the pages of its symbol table hold " + name for name in elf.sections
            if re.match(r"\.(text|plt|init$|fini$)", name) and not table.isdisjoint(pages(name))]


def stripped(elf):
    return ["has " + name for name in elf.sections if re.match(r"\.(symtab|debug|zdebug)", name)]


def branch_protection(elf):
    # If one object lacks the note, the linker drops it for the whole library. A process that loads
    # such a library loses IBT and the shadow stack (BTI on AArch64).
    wanted = {"IBT", "SHSTK"} if elf.is_x86 else {"BTI"}
    found = ["lost from its property note: " + name for name in sorted(wanted - elf.properties)]
    starts = {b"\xf3\x0f\x1e\xfa": "endbr64"} if elf.is_x86 else {
        b"\x5f\x24\x03\xd5": "bti c", b"\x3f\x23\x03\xd5": "paciasp"}
    for name, code in elf.codes([s for s in elf.defined if s.type == "FUNC"]).items():
        if code[:4] not in starts:
            found.append("%s does not begin with %s" % (name, " or ".join(starts.values())))
    return found


def has_version_note(elf):
    notes = [elf.bytes[s.offset:s.offset + s.file_size] for s in elf.kind("NOTE")]
    return [] if any(version_note() in note for note in notes) else ["no note says its version"]


CHECKS = [needed, imports, no_libdl_import, glibc_floor, exports, soname, no_run_path, no_tls,
          no_text_relocation, no_unique, stack, no_writable_code, one_constructor, bind_now,
          nodelete, relro, size, pointers, symbol_table_apart, stripped, branch_protection, has_version_note]  # fmt: skip
