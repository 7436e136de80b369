# SPDX-License-Identifier: Apache-2.0
"""Programs that ask for no CUDA do not notice the guard: same output, same exit code, and no system
call beyond the mapping that any preloaded library costs. (test_first_dlopen.py has what the first
dlopen adds.)"""

import collections
import difflib
import os
import re
import shutil

import pytest

from support import guest, harness, syscalls

# The test's own variables; nothing of the machine's.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/nonexistent",
               "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_DATE": "1700000000 +0000",
               "GIT_COMMITTER_DATE": "1700000000 +0000", "PERL_HASH_SEED": "0",
               "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}

# What each shell line must print, as a check that it did something.
PROGRAMS = {
    "bash": ("for i in 1 2 3; do echo line $i; done; x=$(echo captured | tr a-z A-Z); echo $x; "
             "echo to-stderr >&2; (exit 5); echo $?; read -r y < old; echo $y; exit 7", 7,
             "CAPTURED"),
    "git": ("git init -q r && cd r && git config user.email a@b && git config user.name n && "
            "cp -p ../old . && git add old && git commit -q -m first && "
            "git log --stat --format=%H && git status --short && git rev-parse HEAD", 0, "old"),
    "perl": ("perl -e 'print join(q(,), sort map { $_ * 2 } 1..5), qq(\\n); exit 4'", 4, "10,2,4"),
    "python3": ("/usr/bin/python3 -I -S -c 'import sys; print(sum(range(10))); sys.exit(6)'", 6,
                "45"),
}


def traced(case, line, preload):
    """In a directory of always the same name, so that outputs can be equal."""
    directory = case.path("work")
    os.mkdir(directory)
    old = case.make("work/old", "a line\n")
    # git reads a file again that is as young as its index.
    os.utime(old, (1600000000, 1600000000))
    try:
        return syscalls.trace(["/bin/bash", "-c", line], preload, case.path("log"), ENVIRONMENT,
                              cwd=directory)
    finally:
        shutil.rmtree(directory)


@pytest.mark.parametrize("name", PROGRAMS)
def test_guard_adds_no_system_call(case, name):
    case.need(name)
    # Two processes of a pipeline may end in either order. What the guard does is there
    # every time.
    for attempt in (3, 2, 1, 0):
        try:
            compare_calls(case, name)
            break
        except AssertionError:
            if attempt == 0:
                raise


def compare_calls(case, name):
    line, code, text = PROGRAMS[name]
    empty_run, empty = traced(case, line, guest.EMPTY)
    guard_run, guarded = traced(case, line, harness.GUARD)
    assert empty_run.returncode == code, str(empty_run)
    assert text.encode() in empty_run.stdout
    assert (guard_run.returncode, guard_run.stdout,
            guard_run.stderr) == (empty_run.returncode, empty_run.stdout, empty_run.stderr)
    # The calls between the guard's openat and its close are what ld.so does for any library.
    allowed = {"openat", "read", "pread64", "newfstatat", "fstat", "mmap", "mprotect", "close"}
    assert {call for process in guarded.values() for call in process.mapping} <= allowed
    assert sum(len(p.mapping) for p in guarded.values()) > 5
    assert len(guarded) == len(empty)
    for mine, other in zip(in_order(guarded), in_order(empty)):
        assert len(other.calls) > 0
        # Between which calls of a shell a child ends (SIGCHLD) is chance.
        assert difference(other, mine, list if name != "bash" else sorted) == [], str(mine.key)


def in_order(processes):
    return [processes[pid] for pid in sorted(processes, key=int)]


# Their order depends on addresses (malloc's and ld.so's alignment), their number does not.
MEMORY = {"mmap", "munmap", "brk"}
# What they deliver is random or depends on time.
CONTENT = {"read", "pread64", "write", "recvmsg"}
# A second one where the random number is of no use (mkstemp).
CHANCE = {"getrandom"}

# Names of temporary files of git; the process itself.
RANDOM_NAME = re.compile(r"/(t|tmp_obj_)\w{6}\b|(?<=^/proc)/\d+\b")


def comparable(process):
    return ["%s %s %s" % (c.name, () if c.name in CONTENT else
                          tuple(RANDOM_NAME.sub("/XXXXXX", text) for text in c.strings), c.error)
            for c in process.calls
            if c.name not in MEMORY | CHANCE and not (c.name == "execve" and "-i" in c.strings[:3])]


def difference(before, after, order):
    """The calls that were added (+) or are missing (-), as text; empty if none."""
    found = [line for line in difflib.ndiff(order(comparable(before)), order(comparable(after)))
             if line[0] in "+-"]

    def memory(process):
        return collections.Counter(c.name for c in process.calls if c.name in MEMORY)

    return found + ["more or fewer: %s" % name for name in MEMORY
                    if memory(before)[name] != memory(after)[name]]
