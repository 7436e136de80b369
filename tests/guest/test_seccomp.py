# SPDX-License-Identifier: Apache-2.0
"""A program that locked itself in with seccomp. The filter allows what the unguarded program needs
to load and ask the same libraries, and the few calls that the guard adds: no kill. Where those
fail with EPERM: no crash, and guarded."""

import functools
import os
import re
import subprocess

import pytest

from support import guest, harness, machine

STRICT = guest.binary("strict")
# What the guard adds to the system calls of a program that dlopens and asks the driver; tests/lab/limits.md.
# Always: madvise (its page), newfstatat (are the null drivers there and whole).
# For a line or a report: getpid, fcntl (may descriptor 2 be written to), write; for a report file
# also getppid, gettid, clock_gettime, readlinkat, rt_sigprocmask.
ADDED = {"madvise", "newfstatat", "fstat", "read", "close", "openat", "mmap", "munmap", "getpid",
         "fcntl", "write", "rt_sigprocmask"}
ADDED_FOR_REPORT = {"getppid", "gettid", "readlinkat", "clock_gettime", "rt_sigprocmask"}
STACKED = [guest.PYTHON, "-c", """import ctypes, os
library = ctypes.CDLL("libm.so.6")
def ask(): return ctypes.CDLL("libcuda.so.1").cuInit(0)
os.write(1, b"locked")
print("cuInit=%d" % ask(), flush=True)
os._exit(0)"""]
CALL = re.compile(r"^(?:\d+\s+)?(\w+)\(")


@functools.lru_cache(None)
def number_of(name):
    """The number of a system call."""
    words = ["cc", "-E", "-P", "-include", "sys/syscall.h", "-x", "c", "-"]
    done = subprocess.run(words, input="__NR_" + name, capture_output=True, text=True, check=True)
    return str(int(done.stdout.split()[-1]))


def numbered(names):
    return [number_of(name) for name in sorted(names)]


@pytest.fixture(name="case")
def make_case(case):
    case.need("cc")
    return case


@pytest.fixture(autouse=True)
def need_tracing():
    machine.need("tracing")


def calls_after_lock(case, guard, env=None, action="none-loaded", argv=(STRICT,)):
    """The names of the calls between the program's "locked" and its exit, by strace, with the
    null drivers in the driver's place when unguarded: same libraries, same calls, no guard."""
    log = case.path("log")
    environment = {"LD_LIBRARY_PATH": harness.NULL_DRIVER_DIR, **(env or {})}
    if guard:
        environment["LD_PRELOAD"] = harness.GUARD
    words = ["env", "-i"] + ["%s=%s" % item for item in environment.items()]
    done = subprocess.run(["strace", "-qq", "-e", "signal=none", "-o", log, "--", *words, *argv,
                           *([action] if action else [])], capture_output=True, text=True,
                          check=True, env={"PATH": os.environ["PATH"]})
    assert "cuInit=100" in done.stdout
    text = harness.read(log)
    after = text[text.index('write(1, "locked'):]
    return {m[1] for m in map(CALL.match, after.splitlines()) if m}


def run_strict(action, names, guard=True, env=None):
    """In a world without driver, so that only the null drivers can answer."""
    return harness.run([STRICT, action, *numbered(names)], world="none", guard=guard, trace=False,
                       env={"LD_LIBRARY_PATH": harness.NULL_DRIVER_DIR, **(env or {})})


def needed(case):
    return calls_after_lock(case, False) | {"exit_group", "rt_sigreturn"}


def test_guard_adds_only_documented_system_calls(case):
    """tests/lab/limits.md has the list."""
    unguarded = calls_after_lock(case, False)
    assert {"openat", "mmap", "write", "exit_group"} <= unguarded
    unguarded_early = calls_after_lock(case, False, action="none-early")
    # A program that had loaded a library before, and one that had not.
    late = calls_after_lock(case, True) - unguarded
    early = calls_after_lock(case, True, action="none-early") - unguarded_early
    assert late | early <= ADDED
    assert {"getpid", "fcntl"} <= late  # the line is there
    assert {"madvise"} <= early
    report = calls_after_lock(case, True,
                              {"CUDAGUARD_REPORT": case.path("report")}) - unguarded - late
    assert report <= ADDED | ADDED_FOR_REPORT
    assert ADDED_FOR_REPORT - unguarded - late - {"rt_sigprocmask"} <= report
    off = calls_after_lock(case, True, {"CUDAGUARD_POLICY": "OFF"}, "none-early") - unguarded_early
    assert off <= {"madvise"}


def test_control_strict_filter_kills_an_unlisted_call(case):
    names = needed(case) - {"mmap"}
    result = run_strict("kill-loaded", names, guard=False)
    assert result.rc == 128 + 31, str(result)  # SIGSYS


@pytest.mark.parametrize("env", [{"CUDAGUARD_LOG": "off"}, {}, {"CUDAGUARD_LOG": "all"},
                                 {"CUDAGUARD_POLICY": "OFF"}])
@pytest.mark.parametrize("action", ["kill-loaded", "kill-early"])
def test_strict_filter_does_not_kill_the_program(case, action, env):
    names = needed(case)
    unguarded = run_strict("kill-loaded", names, guard=False)
    assert (unguarded.rc, unguarded.out) == (0, "locked\ncuInit=100 nvml=9\n"), str(unguarded)
    off = "CUDAGUARD_POLICY" in env
    result = run_strict(action, names | ({"madvise"} if off else ADDED), env=env)
    assert (result.rc, result.out) == (0, "locked\ncuInit=100 nvml=9\n"), str(result)
    count = 0 if off else {"off": 0, "deny": 1, "all": 2}[env.get("CUDAGUARD_LOG", "deny")]
    assert len(guest.lines_of(result.err)) == count, str(result)


def test_python_frames_add_no_call(case):
    unguarded = calls_after_lock(case, False, action=None, argv=STACKED)
    report = case.path("report")
    added = calls_after_lock(case, True, {"CUDAGUARD_REPORT": report}, None, STACKED) - unguarded
    assert added <= ADDED | ADDED_FOR_REPORT
    record = harness.records(report)[0]
    assert [row["function"] for row in record["python"]] == ["ask", "<module>"], str(record)


@pytest.mark.parametrize("action", ["eperm-loaded", "eperm-early"])
@pytest.mark.parametrize("least", [False, True])
def test_filter_with_eperm_keeps_the_program_guarded(case, least, action):
    """No crash and guarded, also where the guard cannot even load its null drivers."""
    allowed = needed(case) | {"lseek", "fcntl"}
    harness.run([STRICT, "none", *numbered(allowed)], guard=False, trace=False).assert_reached(case)
    names = {"write", "exit_group"} if least else needed(case)
    result = harness.run([STRICT, action, *numbered(names)], trace=False)
    assert result.rc == 0, str(result)
    assert result.out.startswith("locked\ncuInit="), str(result)
    assert "cuInit=0" not in result.out
    result.assert_untouched(case)
