# SPDX-License-Identifier: Apache-2.0
"""libcudaguard.so as a file (release build): what it needs and exports, and what it must not
contain.

For each rule, a small library that breaks only this rule shows that the rule can fail.
"""

import os
import shutil
import subprocess
import tempfile
import unittest

import pytest

from support import guard_rules, harness


# This library obeys every rule, and each library below breaks one.
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
""" % ",".join(map(str, guard_rules.version_note()))
MAP = os.path.join(harness.SOURCE, "shim", "guard", "exports", "exports.map")
GOOD_SOURCE = NOTE + "".join(
    "void %s(void) {}\n" % name for name in sorted(guard_rules.EXPORTS))
GOOD_SOURCE += """
#ifndef NO_START
static volatile int started;
__attribute__((constructor)) static void start(void) { started = 1; }
#endif
"""
EARLY = "volatile int ran; __attribute__((constructor)) void early(void) { ran = 1; }"
LATE = "volatile int ran; __attribute__((destructor)) void late(void) { ran = 1; }"

# Each entry has the rule, the added source, the added flags and the removed flags.
MUTANTS = [
    (guard_rules.needed, "", ["-lm"], []),
    (guard_rules.needed, "", [], ["-lc"]),
    (guard_rules.imports, "int puts(const char*); void* volatile p = puts;", [], []),
    (guard_rules.no_libdl_import,
     "void* dlsym(void*, const char*); void* volatile p = dlsym;", [], []),
    (guard_rules.no_libdl_import, "int dladdr(void*, void*); void* volatile p = dladdr;", [], []),
    (guard_rules.glibc_floor,
     "void late(void) __asm__(\"dlerror\"); __asm__(\".symver dlerror,dlerror@GLIBC_2.34\");"
     "void* volatile p = late;", [], []),
    (guard_rules.exports, "void cuLaunch(void) {}", [], []),
    (guard_rules.exports, "int cudaguard_state = 1;", [], []),
    (guard_rules.exports, "", ["-DnvmlShutdown=nvmlEnd"], []),
    (guard_rules.exports, "", ["-Ddlvsym=dlversion"], []),
    (guard_rules.exports, "", ["-Wl,--default-symver"], []),
    (guard_rules.soname, "", ["-Wl,-soname,libcuda.so.1"], []),
    (guard_rules.no_run_path, "", ["-Wl,-rpath,$ORIGIN"], []),
    (guard_rules.no_run_path, "", ["-Wl,-rpath,$ORIGIN", "-Wl,--disable-new-dtags"], []),
    (guard_rules.no_tls, "_Thread_local int own = 3; int* f(void) { return &own; }", [], []),
    (guard_rules.no_text_relocation,
     "__asm__(\".text\\n.balign 8\\n.quad cuInit\\n\");", ["-Wl,-z,notext"], []),
    (guard_rules.no_unique, "__asm__(\".globl odd\\n.type odd,%gnu_unique_object\\n.data\\n"
                            "odd: .long 1\\n.size odd,4\\n.text\\n\");", [], []),
    (guard_rules.stack, "", ["-Wl,-z,execstack"], []),
    (guard_rules.no_writable_code, "", ["-Wl,--omagic"], []),
    (guard_rules.one_constructor, EARLY, [], []),
    (guard_rules.one_constructor, LATE, [], []),
    (guard_rules.one_constructor, "", ["-Wl,-init,cuInit"], []),
    (guard_rules.one_constructor, "", ["-DNO_START"], []),
    (guard_rules.bind_now, "", ["-Wl,-z,lazy"], []),
    (guard_rules.nodelete, "", [], ["-Wl,-z,nodelete"]),
    (guard_rules.relro, "", ["-Wl,-z,norelro"], []),
    (guard_rules.relro, "void other(void); void f(void) { other(); }", ["-Wl,-z,lazy"], []),
    (guard_rules.size, "__asm__(\".section .rodata\\n.skip 150000\\n.text\\n\");", [], []),
    (guard_rules.symbol_table_apart, "", ["-Wl,-z,noseparate-code"], []),
    (guard_rules.stripped, "", [], ["-s"]),
    (guard_rules.stripped, "", ["-g"], ["-s"]),
    (guard_rules.branch_protection, "", [NO_PROTECTION], []),
    (guard_rules.has_version_note, "", ["-DNOTE_FLAGS=\"\""], []),
]  # fmt: skip


@pytest.fixture(name="guard", scope="module")
def make_guard():
    return guard_rules.GuardFile(harness.GUARD)


def test_guard_obeys_every_rule(guard):
    for rule in guard_rules.RULES:
        assert rule(guard) == [], rule.__name__


class Rules(unittest.TestCase):
    """Each rule passes on a good library and fails on a bad one."""

    def build(self, name, source="", more=(), less=()):
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if not compiler:
            harness.skip(self, "no C compiler")
        path = os.path.join(self.directory, name + ".c")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(GOOD_SOURCE + source + "\n")
        library = os.path.join(self.directory, name + ".so")
        flags = [flag for flag in GOOD_FLAGS + ["-lc"] if flag not in less]
        command = [compiler, *flags[:-1], "-Wl,--version-script=" + MAP, *more, path, "-o", library, flags[-1]]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, "%s\n%s" % (" ".join(command), done.stderr))
        return guard_rules.GuardFile(library)

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="cg-")
        self.addCleanup(scratch.cleanup)
        self.directory = scratch.name

    def test_good_library_passes(self):
        elf = self.build("good")
        self.assertEqual([c for rule in guard_rules.RULES for c in rule(elf)], [])


@pytest.fixture(name="rules")
def make_rules():
    yield from harness.lent(Rules())


def test_each_rule_has_a_bad_library():
    tried = {mutant[0] for mutant in MUTANTS}
    assert [r.__name__ for r in guard_rules.RULES if r not in tried] == []


@pytest.mark.parametrize(("rule", "source", "more", "less"), MUTANTS)
def test_each_rule_can_fail(rules, rule, source, more, less):
    assert rule(rules.build("mutant", source, more, less)) != []
