# SPDX-License-Identifier: Apache-2.0
"""After the first dlopen, look-ups do not find the guard's cuInit, unless an object of the start
refers to it. The guard reads this from each object's tables, which compilers and linkers make in
different ways."""

import os
import shutil
import subprocess

import pytest

from support import harness

SOURCE = os.path.join(harness.SOURCE, "tests", "runtimes", "programs", "later_exports.c")
GUARD = "libcudaguard.so"
# What the main program does, what its library does (None: it has none), and the options of both.
REFERS = {
    "call": ("CALLS", None, []),
    "sysv-hash": ("CALLS", None, ["-Wl,--hash-style=sysv"]),
    "both-hashes": ("CALLS", None, ["-Wl,--hash-style=both"]),
    "now": ("CALLS", None, ["-Wl,-z,now"]),
    "no-plt": ("CALLS", None, ["-fno-plt"]),
    "lld": ("CALLS", None, ["-fuse-ld=lld"]),
    "gold": ("CALLS", None, ["-fuse-ld=gold"]),
    "address": ("ADDRESS", "DEFINES", []),
    "exports-all": ("ADDRESS", "DEFINES", ["-rdynamic"]),
    "fixed-address": ("ADDRESS", "DEFINES", ["-no-pie", "-fno-pic"]),
    "fixed-address-lld": ("ADDRESS", "DEFINES", ["-no-pie", "-fno-pic", "-fuse-ld=lld"]),
    "library": ("NOTHING", "CALLS", []),
    "library-lld": ("NOTHING", "CALLS", ["-fuse-ld=lld"]),
    "library-without-exports": ("NOTHING", "HIDDEN", []),
    "library-without-exports-lld": ("NOTHING", "HIDDEN", ["-fuse-ld=lld"]),
    "library-without-exports-gold": ("NOTHING", "HIDDEN", ["-fuse-ld=gold"]),
    "library-without-exports-sysv": ("NOTHING", "HIDDEN", ["-Wl,--hash-style=sysv"]),
    "library-defines-and-calls": ("NOTHING", "DEFINES,CALLS", []),
    "library-defines-and-calls-sysv": ("NOTHING", "DEFINES,CALLS", ["-Wl,--hash-style=sysv"]),
}
REFERS_NOT = {
    "none": ("NOTHING", None, []),
    "library": ("NOTHING", "NOTHING", []),
    "library-defines": ("NOTHING", "DEFINES", []),
    "library-defines-sysv": ("NOTHING", "DEFINES", ["-Wl,--hash-style=sysv"]),
    "library-binds-itself": ("NOTHING", "DEFINES,CALLS", ["-Wl,-Bsymbolic"]),
}


# What this machine lacks, Debian's compilers do not use either.
LINKERS = [name for name in ("bfd", "lld", "gold") if shutil.which("ld." + name)]


def linked_here(rows):
    return [name for name, (_, _, options) in rows.items()
            if all(option.partition("-fuse-ld=")[2] in ("", *LINKERS) for option in options)]


@pytest.fixture(name="found")
def look_up(tmp_path):
    """Compiles a program and its library. Returns a function that tells the file of cuInit."""
    def compiled(name, does, *options):
        defines = ["-DCG_" + what for what in does.split(",")]
        done = subprocess.run(["gcc", "-O1", SOURCE, "-o", tmp_path / name, *defines, *options],
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return str(tmp_path / name)

    def found(main, library, options, guard=True):
        words = []
        if library:
            shared = [option for option in options if option not in ("-no-pie", "-fno-pic")]
            words = ["-Wl,--no-as-needed,-rpath,%s" % tmp_path,
                     compiled("libcg_used.so", library, *shared, "-shared", "-fPIC",
                              "-Wl,-soname,libcg_used.so")]
        program = compiled("program", "MAIN,%s" % main, *options, *words, "-ldl", "-lm")
        result = harness.run([program], world="none", guard=guard, trace=False)
        assert result.rc == 0, str(result)
        return result.out.strip()
    return found


@pytest.mark.parametrize("how", linked_here(REFERS))
def test_referred_name_stays(found, how):
    assert found(*REFERS[how]) == GUARD


@pytest.mark.parametrize("how", REFERS_NOT)
def test_other_name_is_left(found, how):
    assert found(*REFERS_NOT[how]) != GUARD


@pytest.mark.parametrize("linker", LINKERS)
def test_program_whose_own_entry_is_the_functions_address_stays_bound(found, linker):
    """Its first call is after the dlopen. It must find the guard, not the library (77)."""
    options = ["-no-pie", "-fno-pic", "-Wl,-z,lazy", "-fuse-ld=" + linker]
    assert found("LAZY", "DEFINES", options) == "answer 100"
    assert found("LAZY", "DEFINES", options, guard=False) == "answer 77"


def test_control_without_the_guard(found):
    assert found(*REFERS["call"], guard=False) == "none"
