# SPDX-License-Identifier: Apache-2.0
"""The rules for libcudaguard.so as a file. Each takes an Elf and returns complaints.

They are apart from the tests so that the AArch64 build is held to the same ones.
"""

import os
import re

# design.md, "What we ship". As few names as can be: a library that has a variable called like an
# export of the guard crashes.
EXPORTS = {
    "dlopen", "dlmopen",
    "cuInit", "cuGetProcAddress", "cuGetProcAddress_v2",
    "nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags", "nvmlShutdown",
    "nvmlDeviceGetCount", "nvmlDeviceGetCount_v2",
    "cudaGetDeviceCount", "cudaSetDevice", "cudaDeviceSynchronize",
    "cudaguard_touch_v1", "cudaguard_touches",
}  # fmt: skip
# Everything a C library has had for decades (musl too), nothing that locks, allocates or prints.
# The mem* functions are what compilers make of plain loops and copies.
IMPORTS = {
    "__errno_location", "__environ", "environ", "dl_iterate_phdr", "getauxval",
    "memchr", "memcmp", "memcpy", "memmove", "memset", "strcmp", "strlen",
}  # fmt: skip
# The names that changed their home: libdl.so.2 until glibc 2.33, libc.so.6 since.
LIBDL = re.compile(r"^_?_?(dlopen|dlmopen|dlclose|dlsym|dlvsym|dlerror|dladdr1?|dlinfo|dl_find_object)$")
FLOOR = (2, 17)
MOST_BYTES = 48 * 1024


def needed(elf):
    found = elf.tags("NEEDED")
    return [] if found == ["libc.so.6"] else ["NEEDED is %s" % found]


def imports(elf):
    return ["imports " + s.name for s in elf.imports if s.name not in IMPORTS]


def no_libdl_import(elf):
    return ["imports %s@%s" % (s.name, s.version) for s in elf.imports if LIBDL.match(s.name)]


def glibc_floor(elf):
    found = ["needs a version of " + file for file in elf.version_needs if file != "libc.so.6"]
    for version in elf.version_needs.get("libc.so.6", []):
        number = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", version)
        if not number or (int(number[1]), int(number[2])) > FLOOR:
            found.append("needs " + version)
    return found


def exports(elf):
    names = {symbol.name for symbol in elf.exports}
    found = ["exports " + name for name in sorted(names - EXPORTS)]
    found += ["does not export " + name for name in sorted(EXPORTS - names)]
    for symbol in elf.exports:
        # A data object would be copied into programs; an unversioned function satisfies
        # dlopen@GLIBC_2.34 and dlopen@GLIBC_2.2.5 alike.
        if symbol.type != "FUNC" or symbol.bind not in ("GLOBAL", "WEAK"):
            found.append("exports %s as %s %s" % (symbol.name, symbol.bind, symbol.type))
    return found + (["defines symbol versions"] if elf.tags("VERDEF") else [])


def soname(elf):
    found = elf.tags("SONAME")
    return [] if found == ["libcudaguard.so"] else ["SONAME is %s" % found]


def no_run_path(elf):
    return ["has %s" % name for name in ("RPATH", "RUNPATH", "AUDIT", "DEPAUDIT", "FILTER",
                                         "AUXILIARY") if elf.tags(name)]


def no_tls(elf):
    return (["has a TLS segment"] if elf.kind("TLS") else []) + [
        "TLS symbol " + s.name for s in elf.symbols if s.type == "TLS"]


def no_text_relocation(elf):
    return ["has TEXTREL"] if elf.tags("TEXTREL") or elf.flag("FLAGS", 4) else []


def no_unique(elf):
    return ["unique symbol " + s.name for s in elf.symbols if s.bind == "UNIQUE"]


def stack(elf):
    found = elf.kind("STACK")
    if not found:
        return ["has no GNU_STACK: the stack would be executable"]
    return ["asks for an executable stack"] if "x" in found[0].flags else []


def no_writable_code(elf):
    return ["a segment is writable and executable"] if any(
        "w" in s.flags and "x" in s.flags for s in elf.kind("LOAD")) else []


def no_constructors(elf):
    tags = [t for t in ("INIT", "FINI", "INIT_ARRAY", "FINI_ARRAY", "PREINIT_ARRAY") if elf.tags(t)]
    named = [s.name for s in elf.sections
             if re.match(r"\.(init|fini|preinit|ctors|dtors)", s.name) and s.size]
    return ["has " + name for name in tags + named]


def bind_now(elf):
    # A lazily bound call would run ld.so's resolver, which saves vector registers, inside a hook.
    return [] if elf.flag("FLAGS", 8) and elf.flag("FLAGS_1", 1) else ["is not BIND_NOW"]


def nodelete(elf):
    return [] if elf.flag("FLAGS_1", 8) else ["is not NODELETE"]


def relro(elf):
    segments = elf.kind("RELRO")
    if not segments:
        return ["has no RELRO"]
    got = elf.section(".got")
    covered = got is None or (segments[0].address <= got.address and
                              got.address + got.size <= segments[0].address + segments[0].memsize)
    return [] if covered and not elf.section(".got.plt") else ["its GOT stays writable"]


def size(elf):
    found = os.path.getsize(elf.path)
    return [] if found <= MOST_BYTES else ["has %d bytes" % found]


def stripped(elf):
    return ["has " + s.name for s in elf.sections if re.match(r"\.(symtab|debug|zdebug)", s.name)]


def branch_protection(elf):
    # One object without the note and the linker drops it for the whole library; a process that
    # loads such a library loses IBT and the shadow stack (BTI on AArch64).
    found = [] if elf.features() & 3 == 3 else ["property note is %#x, not 3" % elf.features()]
    for symbol in elf.exports:
        start = elf.code(symbol, 4)
        if elf.machine == "x86-64" and start != b"\xf3\x0f\x1e\xfa":
            found.append(symbol.name + " does not begin with endbr64")
        if elf.machine == "AArch64" and start not in (b"\x5f\x24\x03\xd5", b"\x3f\x23\x03\xd5"):
            found.append(symbol.name + " does not begin with bti c or paciasp")
    return found


RULES = [needed, imports, no_libdl_import, glibc_floor, exports, soname, no_run_path, no_tls,
         no_text_relocation, no_unique, stack, no_writable_code, no_constructors, bind_now,
         nodelete, relro, size, stripped, branch_protection]  # fmt: skip
