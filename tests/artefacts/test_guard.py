# SPDX-License-Identifier: Apache-2.0
"""libcudaguard.so as a file (release build): what it needs and exports, and what it must not
contain.

For each check, a small library that fails only this check shows that the check can fail.
"""

import os
import subprocess

import pytest

from support import guard_checks, harness


# This library passes every check, and each library below fails one.
GOOD_FLAGS = [
    "-O2", "-fPIC", "-shared", "-nostartfiles", "-nostdlib", "-fno-stack-protector", "-s",
    "-Wl,-z,now,-z,relro,-z,noexecstack", "-Wl,-z,nodelete", "-Wl,-soname,libcudaguard.so",
    "-Wl,--hash-style=gnu", "-Wl,--no-as-needed",
    "-fcf-protection=full" if os.uname().machine == "x86_64" else "-mbranch-protection=standard",
]  # fmt: skip
NO_PROTECTION = ("-fcf-protection=none" if os.uname().machine == "x86_64" else
                 "-mbranch-protection=none")
NOTE = """
#ifndef NOTE_FLAGS
#define NOTE_FLAGS "a"
#endif
__asm__(".section .note.cudaguard,\\"" NOTE_FLAGS "\\"\\n.balign 4\\n.byte %s\\n.text\\n");
""" % ",".join(map(str, guard_checks.version_note()))
MAP = os.path.join(harness.SOURCE, "shim", "guard", "exports", "exports.map")
GOOD_SOURCE = NOTE + "".join(
    "void %s(void) {}\n" % name for name in sorted(guard_checks.EXPORTS))
GOOD_SOURCE += """
#ifndef NO_START
static volatile int started;
__attribute__((constructor)) static void start(void) { started = 1; }
#endif
"""
EARLY = "volatile int ran; __attribute__((constructor)) void early(void) { ran = 1; }"
LATE = "volatile int ran; __attribute__((destructor)) void late(void) { ran = 1; }"

# Each entry has the check, the added source, the added flags and the removed flags.
MUTANTS = [
    (guard_checks.needed, "", ["-lm"], []),
    (guard_checks.needed, "", [], ["-lc"]),
    (guard_checks.imports, "int puts(const char*); void* volatile p = puts;", [], []),
    (guard_checks.no_libdl_import,
     "void* dlsym(void*, const char*); void* volatile p = dlsym;", [], []),
    (guard_checks.no_libdl_import, "int dladdr(void*, void*); void* volatile p = dladdr;", [], []),
    (guard_checks.glibc_floor,
     "void late(void) __asm__(\"dlerror\"); __asm__(\".symver dlerror,dlerror@GLIBC_2.34\");"
     "void* volatile p = late;", [], []),
    (guard_checks.exports, "void cuLaunch(void) {}", [], []),
    (guard_checks.exports, "int cudaguard_state = 1;", [], []),
    (guard_checks.exports, "", ["-DnvmlShutdown=nvmlEnd"], []),
    (guard_checks.exports, "", ["-Ddlvsym=dlversion"], []),
    (guard_checks.exports, "", ["-Wl,--default-symver"], []),
    (guard_checks.soname, "", ["-Wl,-soname,libcuda.so.1"], []),
    (guard_checks.no_run_path, "", ["-Wl,-rpath,$ORIGIN"], []),
    (guard_checks.no_run_path, "", ["-Wl,-rpath,$ORIGIN", "-Wl,--disable-new-dtags"], []),
    (guard_checks.no_tls, "_Thread_local int own = 3; int* f(void) { return &own; }", [], []),
    (guard_checks.no_text_relocation,
     "__asm__(\".text\\n.balign 8\\n.quad cuInit\\n\");", ["-Wl,-z,notext"], []),
    (guard_checks.no_unique, "__asm__(\".globl odd\\n.type odd,%gnu_unique_object\\n.data\\n"
                            "odd: .long 1\\n.size odd,4\\n.text\\n\");", [], []),
    (guard_checks.stack, "", ["-Wl,-z,execstack"], []),
    (guard_checks.no_writable_code, "", ["-Wl,--omagic"], []),
    (guard_checks.one_constructor, EARLY, [], []),
    (guard_checks.one_constructor, LATE, [], []),
    (guard_checks.one_constructor, "", ["-Wl,-init,cuInit"], []),
    (guard_checks.one_constructor, "", ["-DNO_START"], []),
    (guard_checks.bind_now, "", ["-Wl,-z,lazy"], []),
    (guard_checks.nodelete, "", [], ["-Wl,-z,nodelete"]),
    (guard_checks.relro, "", ["-Wl,-z,norelro"], []),
    (guard_checks.relro, "void other(void); void f(void) { other(); }", ["-Wl,-z,lazy"], []),
    (guard_checks.size, "__asm__(\".section .rodata\\n.skip 150000\\n.text\\n\");", [], []),
    (guard_checks.pointers, "const char* const names[%d] = {%s};" % (
        guard_checks.MOST_POINTERS + 1, '"a",' * (guard_checks.MOST_POINTERS + 1)),
     [], []),
    (guard_checks.symbol_table_apart, "", ["-Wl,-z,noseparate-code"], []),
    (guard_checks.stripped, "", [], ["-s"]),
    (guard_checks.stripped, "", ["-g"], ["-s"]),
    (guard_checks.branch_protection, "", [NO_PROTECTION], []),
    (guard_checks.has_version_note, "", ["-DNOTE_FLAGS=\"\""], []),
]  # fmt: skip


def test_guard_passes_every_check():
    guard = guard_checks.GuardFile(harness.GUARD)
    for check in guard_checks.CHECKS:
        assert check(guard) == [], check.__name__


@pytest.fixture(name="build")
def make_build(tmp_path):
    """Returns a function that builds the library that passes every check, with these changes."""
    def build(source="", more=(), less=()):
        (tmp_path / "lib.c").write_text(GOOD_SOURCE + source + "\n", encoding="utf-8")
        flags = [flag for flag in GOOD_FLAGS if flag not in less]
        libc = [] if "-lc" in less else ["-lc"]
        command = [os.environ.get("CC", "cc"), *flags, "-Wl,--version-script=" + MAP, *more,
                   "lib.c", "-o", "lib.so", *libc]
        subprocess.run(command, check=True, cwd=tmp_path)
        return guard_checks.GuardFile(str(tmp_path / "lib.so"))

    return build


def test_good_library_passes(build):
    elf = build()
    assert [c for check in guard_checks.CHECKS for c in check(elf)] == []


def test_each_rule_has_a_bad_library():
    tried = {mutant[0] for mutant in MUTANTS}
    assert [r.__name__ for r in guard_checks.CHECKS if r not in tried] == []


@pytest.mark.parametrize(("check", "source", "more", "less"), MUTANTS)
def test_each_check_can_fail(build, check, source, more, less):
    assert check(build(source, more, less)) != []
