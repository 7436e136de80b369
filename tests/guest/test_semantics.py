# SPDX-License-Identifier: Apache-2.0
"""dlopen, dlmopen, dlsym, dlerror, errno, namespaces and constructors behave as without the
guard, for callers at -O0 and -O2. scripts/build-matrix asks it of every build."""

import os
import shutil
import subprocess

import pytest

from support import guest, harness

BEHAVE = os.path.join(guest.BIN, "behave")
# What the unguarded program must print, so that equality means something.
EXPECTED = ("runpath: value()=11", "origin: value()=12", "nested: open_inner()=13",
            "chain=21", "next=some", "namespace: ok", "namespace: another=1",
            "namespace: open_inner()=13", "namespace: inner_is_here()=1", "callback=1",
            "throws: caught()=42", "noload: ok", "noload-not: null", "no-mode: null",
            "undefined symbol: cg_nobody_has_this", "libcg-does-not-exist.so.7", "invalid ELF header",
            "invalid mode", "no-symbol: dlerror=", "dlmopen: bad namespace null")


def behave(level, last, preload, **extra):
    environment = {**extra, "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    if preload:
        environment["LD_PRELOAD"] = preload
    done = subprocess.run([guest.binary("behave_" + level), BEHAVE, last], env=environment,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def compare(level, last, guard, **extra):
    unguarded = behave(level, last, None)
    for text in EXPECTED:
        assert text in unguarded[1]
    if last == "leave":
        assert unguarded[0] == -6, str(unguarded[2])
        assert "terminate called after throwing" in unguarded[2]
    else:
        assert unguarded[0] == 0, str(unguarded[2])
        assert unguarded[1].endswith("end\n")
    if last == "catch":  # glibc's dlopen lets it pass
        assert "leaves: caught 43" in unguarded[1]
    assert behave(level, last, guard, **extra) == unguarded


def without_null_drivers(case):
    """The guard alone: test_install.py has that it says so."""
    os.mkdir(case.path("lib"))
    return shutil.copy(harness.GUARD, case.path("lib", "libcudaguard.so"))


def with_unusable_null_drivers(case):
    """ld.so itself complains of them; the program must not find that in dlerror()."""
    guard = harness.copy_install(case.path("lib"))
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        file = os.path.join(case.path("lib", "cudaguard"), name)
        data = harness.bytes_of(file).replace(b"\0libc.so.6\0", b"\0libX.so.6\0")
        os.unlink(os.path.realpath(file))
        case.make(os.path.realpath(file), data)
    return guard


@pytest.mark.parametrize(("make", "extra"), [
    (lambda _: harness.GUARD, {}), (lambda _: harness.GUARD, {"CUDAGUARD_POLICY": "OFF"}),
    (without_null_drivers, {"CUDAGUARD_LOG": "off"}),
    (with_unusable_null_drivers, {"CUDAGUARD_LOG": "off"})],
    ids=["whole", "off", "no_null_drivers", "unusable_null_drivers"])
@pytest.mark.parametrize("last", ["stay", "catch", "leave"])
@pytest.mark.parametrize("level", ["O0", "O2"])
def test_loading_works_as_without_the_guard(case, level, last, make, extra):
    """Nothing of a failure of ours is left for the program to see."""
    compare(level, last, make(case), **extra)


def test_control_the_guard_is_there(case):
    attempted = harness.run([guest.STEPS, "ask"], trace=False)
    assert attempted.answers == {"cuInit": "100"}, str(attempted)
    attempted.assert_untouched(case)


@pytest.mark.parametrize("policy", ["FORCE_CPU", "OFF", "VALIDATE"])
def test_library_of_a_constructor_can_be_unloaded(case, policy):
    """ld.so's list then lacks an object that it had when the guard first read it."""
    other = case.path("other.so")
    shutil.copy(guest.EMPTY, other)
    words = [guest.binary("brief"), guest.EMPTY, other]
    unguarded = harness.run(words, guard=False, trace=False)
    assert unguarded.out == "closed 0\nstill there 0\nopened 1\n", str(unguarded)
    result = harness.run(words, trace=False, env={"CUDAGUARD_POLICY": policy})
    assert (result.out, result.rc) == (unguarded.out, 0), str(result)
