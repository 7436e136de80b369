# SPDX-License-Identifier: Apache-2.0
"""libcudaguard.so as a file (release build): what it needs and exports, and what it must not
contain.

A small library passes every check. With all mistakes it fails every one, also for each of several
reasons, which shows that each check can fail.
"""

import os
import subprocess

from support import guard_checks, harness


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
BAD_SOURCE = """
int cudaguard_state = 1;
int puts(const char*); void* dlsym(void*, const char*); int dladdr(void*, void*);
void late(void) __asm__("dlerror"); __asm__(".symver dlerror,dlerror@GLIBC_2.34");
void* volatile imports[] = {puts, dlsym, dladdr, late};
_Thread_local int own = 3; int* get_own(void) { return &own; }
volatile int ran; __attribute__((constructor)) void early(void) { ran = 1; }
__attribute__((destructor)) void at_end(void) { ran = 2; }
__asm__(".text\\n.balign 8\\n.quad cuInit\\n");
__asm__(".globl odd\\n.type odd,%%gnu_unique_object\\n.data\\nodd: .long 1\\n.size odd,4\\n.text\\n");
__asm__(".section .odd,\\"awx\\"\\n.byte 0\\n.text\\n");
__asm__(".section .rodata\\n.skip 150000\\n.text\\n");
const char* const names[%d] = {%s};
""" % (guard_checks.MOST_POINTERS + 1, '"a",' * (guard_checks.MOST_POINTERS + 1))
BAD_FLAGS = [
    "-lm", "-Wl,-soname,libcuda.so.1", "-Wl,-rpath,$ORIGIN", "-Wl,-z,notext", "-Wl,-z,execstack",
    "-Wl,-z,lazy", "-Wl,-z,norelro", NO_PROTECTION, "-DNOTE_FLAGS=\"\"", "-Wl,--default-symver",
]  # fmt: skip
# Each has the added source, the added flags and the removed flags.
BAD = [
    (BAD_SOURCE, BAD_FLAGS, ["-s", "-Wl,-z,nodelete"]),
    ("void other(void); void call(void) { other(); }",
     ["-Wl,-z,noseparate-code", "-Wl,-z,lazy", "-Wl,-rpath,$ORIGIN", "-Wl,--disable-new-dtags",
      "-DnvmlShutdown=nvmlEnd", "-DNO_START"], []),
]  # fmt: skip
# Complaints of checks that also have others.
COMPLAINTS = [
    "imports dladdr@", "imports dlsym@", "does not export nvmlShutdown", "exports versions",
    "has RUNPATH", "has RPATH", "has FINI_ARRAY", "constructors: ['16 (bytes)']", "constructors: []",
    "has no RELRO", "its GOT stays writable",
]  # fmt: skip


def test_guard_passes_every_check():
    guard = guard_checks.GuardFile(harness.GUARD)
    for check in guard_checks.CHECKS:
        assert check(guard) == [], check.__name__


def build(directory, source="", more=(), less=()):
    (directory / "lib.c").write_text(GOOD_SOURCE + source, encoding="utf-8")
    flags = [flag for flag in GOOD_FLAGS if flag not in less]
    command = [os.environ.get("CC", "cc"), *flags, "-Wl,--version-script=" + MAP, *more, "lib.c",
               "-o", "lib.so", "-lc"]
    subprocess.run(command, check=True, cwd=directory)
    return guard_checks.GuardFile(str(directory / "lib.so"))


def test_good_library_passes_every_check(tmp_path):
    elf = build(tmp_path)
    assert [complaint for check in guard_checks.CHECKS for complaint in check(elf)] == []


def test_each_check_can_fail(tmp_path):
    found = {check: [] for check in (*guard_checks.CHECKS, guard_checks.no_constructors)}
    for change in BAD:
        elf = build(tmp_path, *change)
        for check, complaints in found.items():
            complaints += check(elf)
    assert [check.__name__ for check, complaints in found.items() if not complaints] == []
    text = "\n".join(sum(found.values(), []))
    assert [complaint for complaint in COMPLAINTS if complaint not in text] == []
