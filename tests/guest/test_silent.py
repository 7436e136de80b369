# SPDX-License-Identifier: Apache-2.0
"""Programs that ask for no CUDA do not notice the guard: same output, same exit code, and no system
call beyond the mapping that any preloaded library costs."""

import collections
import difflib
import os
import re
import shutil
import subprocess

import pytest

from support import guest, harness, syscalls

# The compiler itself is the program under test, so this source is not built.
HELLO = "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 3; }\n"
# The test's own variables; nothing of the machine's.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/nonexistent",
               "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_DATE": "1700000000 +0000",
               "GIT_COMMITTER_DATE": "1700000000 +0000", "PERL_HASH_SEED": "0",
               "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}

# What each shell line must print, as a check that it did something.
PROGRAMS = {
    "bash": ("for i in 1 2 3; do echo line $i; done; x=$(echo captured | tr a-z A-Z); echo $x; "
             "echo to-stderr >&2; (exit 5); echo $?; read -r y < Makefile; echo $y; exit 7", 7,
             "CAPTURED"),
    "git": ("git init -q r && cd r && git config user.email a@b && git config user.name n && "
            "cp -p ../hello.c . && git add hello.c && git commit -q -m first && "
            "git log --stat --format=%H && git status --short && git rev-parse HEAD", 0, "hello.c"),
    "gcc": ("gcc -O1 -Wall -o hello hello.c && ./hello", 3, "hello"),
    "perl": ("perl -e 'print join(q(,), sort map { $_ * 2 } 1..5), qq(\\n); exit 4'", 4, "10,2,4"),
    "python3": ("/usr/bin/python3 -I -S -c 'import sys; print(sum(range(10))); sys.exit(6)'", 6,
                "45"),
    "make": ("make -j 4 all && cat out.*", 0, "8 made"),
}
MAKEFILE = """all: out.1 out.2 out.3 out.4 out.5 out.6 out.7 out.8
out.%:
\t@echo $* made > $@
"""


def shell(line):
    return ["/bin/bash", "-c", line]


def work_directory(case, name):
    directory = case.path(name)
    os.mkdir(directory)
    with open(os.path.join(directory, "hello.c"), "w", encoding="utf-8") as stream:
        stream.write(HELLO)
    # Old: git reads a file again that is as young as its index.
    os.utime(os.path.join(directory, "hello.c"), (1600000000, 1600000000))
    with open(os.path.join(directory, "Makefile"), "w", encoding="utf-8") as stream:
        stream.write(MAKEFILE)
    return directory


def plain_run(case, line, preload):
    """In a directory of always the same name, so that outputs can be equal."""
    directory = work_directory(case, "work")
    environment = dict(ENVIRONMENT)
    if preload:
        environment["LD_PRELOAD"] = preload
    done = subprocess.run(shell(line), cwd=directory, env=environment, stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=300, check=False)
    shutil.rmtree(directory)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_guarded_programs_print_the_same(case, name):
    case.need(name)
    line, code, text = PROGRAMS[name]
    unguarded = plain_run(case, line, None)
    guarded = plain_run(case, line, harness.GUARD)
    assert unguarded[0] == code, str(unguarded)
    assert text.encode() in unguarded[1]
    assert guarded == unguarded


def traced(case, argv, preload):
    directory = work_directory(case, "work")
    # gcc names its temporary files at random, which reaches argv and every path.
    os.mkdir(os.path.join(directory, "tmp"))
    log = case.path("log")
    try:
        done, processes = syscalls.trace(argv, preload, log, ENVIRONMENT, cwd=directory)
    finally:
        shutil.rmtree(directory)
    return done, processes


def both(case, argv):
    empty_run, empty = traced(case, argv, guest.EMPTY)
    guard_run, guarded = traced(case, argv, harness.GUARD)
    assert (guard_run.returncode, guard_run.stdout,
            guard_run.stderr) == (empty_run.returncode, empty_run.stdout, empty_run.stderr)
    return empty, guarded


def assert_mapping_only(process):
    """The calls between the guard's openat and its close: what ld.so does for any library."""
    allowed = {"openat", "read", "pread64", "newfstatat", "fstat", "mmap", "mprotect", "close"}
    assert set(process.mapping) <= allowed, str(process.key)


@pytest.mark.parametrize("name", ["bash", "git", "gcc", "perl", "python3"])
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
    empty, guarded = both(case, shell(PROGRAMS[name][0]))
    for process in guarded.values():
        assert_mapping_only(process)
    assert sum(len(p.mapping) for p in guarded.values()) > 5
    assert len(guarded) == len(empty)
    loaders = 0
    for mine, other in zip(in_order(guarded), in_order(empty)):
        assert len(other.calls) > 0
        if '"/usr/bin/ld"' in mine.key:  # loads its plug-in for link-time optimisation
            assert_null_drivers_added(other, mine, "liblto_plugin.so")
            loaders += 1
        else:
            # Between which calls of a shell a child ends (SIGCHLD) is chance.
            assert difference(other, mine, in_order=name != "bash") == [], str(mine.key)
    assert loaders == (1 if name == "gcc" else 0)


def assert_null_drivers_added(before, after, first_request):
    """`after` is `before` with one piece put in: the null drivers' loading, and nothing else;
    the library that the program asked for comes next."""
    old, new = comparable(before), comparable(after)
    start = 0
    while start < len(old) and old[start] == new[start]:
        start += 1
    end = start + len(new) - len(old)
    assert new[:start] + new[end:] == old, str(difference(before, after))
    added = [c for c in after.calls if "%s %s %s" % c in new[start:end] and c.strings != ("",)]
    allowed = {"openat", "read", "fstat", "newfstatat", "mprotect", "close",
               "madvise", "mmap", "munmap", "brk"}
    assert {call.split()[0] for call in new[start:end]} <= allowed
    opened = set()
    for call in added:
        for path in call.strings:
            if path == "/etc/cudaguard.conf":  # the machine's file, which is not there
                assert (call.name, call.error) == ("openat", "ENOENT")
            elif call.name in ("openat", "newfstatat") and path:
                assert path.startswith(harness.NULL_DRIVER_DIR), str(path)
                if call.name == "openat" and call.error is None:
                    opened.add(os.path.realpath(path))
    assert opened == {
        os.path.realpath(harness.NULL_DRIVER_CUDA),
        os.path.realpath(harness.NULL_DRIVER_NVML)
    }
    following = [line for line in new[end:] if line.startswith("openat")]
    assert first_request in following[0]
    assert end - start > 12


@pytest.mark.parametrize(
    ("argv", "request_"),
    [(["/usr/bin/python3", "-I", "-S", "-c", "import ctypes; import _json"], "_ctypes"),
     (["/usr/bin/perl", "-MPOSIX", "-MList::Util", "-e", "print POSIX::floor(2.5)"], "Fcntl.so")])
def test_null_drivers_are_loaded_once_before_the_first_dlopen(case, argv, request_):
    empty, guarded = both(case, argv)
    before = [p for p in empty.values() if argv[0] in p.key]
    after = [p for p in guarded.values() if argv[0] in p.key]
    assert (len(before), len(after)) == (1, 1)
    assert_null_drivers_added(before[0], after[0], request_)


def test_guard_adds_no_system_call_to_make(case):
    # Which child of make runs when is chance: compare each with its like, and of make itself
    # which calls it makes.
    empty, guarded = both(case, ["make", "-j", "4", "all"])

    def children(processes):
        return {p.key: p for p in processes.values() if p.key.startswith('"/bin/sh"')}

    mine, others = children(guarded), children(empty)
    assert len(others) == 8
    assert set(mine) == set(others)
    for key, process in mine.items():
        assert_mapping_only(process)
        assert len(after_exec(process)) > 10
        assert after_exec(process) == after_exec(others[key])

    def of_make(processes):
        chance = {"rt_sigreturn", "wait4", "pselect6", "read", "restart_syscall"}
        return {c.name for p in processes.values() if not p.key.startswith('"/bin/sh"')
                for c in p.calls} - chance

    assert of_make(guarded) == of_make(empty)


def in_order(processes):
    return [processes[pid] for pid in sorted(processes, key=int)]


# Their order depends on addresses (malloc's and ld.so's alignment), their number does not.
MEMORY = {"mmap", "munmap", "brk"}
# What they deliver is random or depends on time.
CONTENT = {"read", "pread64", "write", "recvmsg"}
# A second one where the random number is of no use (mkstemp).
CHANCE = {"getrandom"}


# Names of temporary files of gcc and git; the process itself.
RANDOM_NAME = re.compile(r"/(cc|t|tmp_obj_)\w{6}\b|(?<=^/proc)/\d+\b")


def comparable(process):
    return ["%s %s %s" % (c.name, () if c.name in CONTENT else
                          tuple(RANDOM_NAME.sub("/XXXXXX", text) for text in c.strings), c.error)
            for c in process.calls
            if c.name not in MEMORY | CHANCE and not (c.name == "execve" and "-i" in c.strings[:3])]


def after_exec(process):
    """What make's child does before exec depends on whether another one has make's stdin."""
    calls = comparable(process)
    last = max(i for i, call in enumerate(calls) if call.startswith("execve"))
    return calls[last:]


def difference(before, after, in_order=True):
    """The calls that were added (+) or are missing (-), as text; empty if none."""
    same_order = list if in_order else sorted
    found = [line for line in difflib.ndiff(same_order(comparable(before)),
                                            same_order(comparable(after))) if line[0] in "+-"]

    def memory(process):
        return collections.Counter(c.name for c in process.calls if c.name in MEMORY)

    return found + ["more or fewer: %s" % name for name in MEMORY
                    if memory(before)[name] != memory(after)[name]]
