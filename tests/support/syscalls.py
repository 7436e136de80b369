# SPDX-License-Identifier: Apache-2.0
"""Records every system call of every process of a tree in a form that two runs share.

Numbers and addresses differ from run to run; names, strings and errors do not. The mapping of one
preloaded library (from its openat to the close of that descriptor) is removed and kept separately.
"""

import collections
import os
import re
import subprocess

from support import machine

CALL = re.compile(r"^(\d+)\s+(\w+)\((.*)$")
RESUMED = re.compile(r"^(\d+)\s+<\.\.\. (\w+) resumed>(.*)$")
STRINGS = re.compile(r'"((?:[^"\\]|\\.)*)"')
ANSWER = re.compile(r"\)\s+= (?:-1 (\w+)|(\S+))")

Call = collections.namedtuple("Call", "name strings error")


class Process:
    def __init__(self, key):
        self.key = key  # the arguments of the last exec, or "fork of KEY"
        self.calls = []  # Call objects, without the mapping of the library
        self.mapping = []  # names of the calls that map the library
        self.mapping_fd = None


def read(path, library):
    """Parses strace's log to {pid: Process}."""
    processes = {}
    pending = {}
    with open(path, encoding="utf-8", errors="replace") as stream:
        for line in stream:
            match = RESUMED.match(line)
            if match:
                pid, name, rest = match.groups()
                rest = pending.pop(pid, "") + rest
            else:
                match = CALL.match(line)
                if not match:
                    continue
                pid, name, rest = match.groups()
                if rest.rstrip().endswith("<unfinished ...>"):
                    pending[pid] = rest.replace("<unfinished ...>", "")
                    continue
            process = processes.setdefault(pid, Process("?"))
            note(process, processes, name, rest, library)
    return processes


def note(process, processes, name, rest, library):
    answer = ANSWER.search(rest)
    error, value = answer.groups() if answer else (None, None)
    strings = tuple(STRINGS.findall(rest))
    if name in ("clone", "clone3", "fork", "vfork") and value and value.isdigit():
        child = processes.setdefault(value, Process("?"))
        if child.key == "?":
            child.key = "fork of " + process.key
    if name == "execve" and error is None:
        process.key = rest[:rest.find("], 0x")] if "], 0x" in rest else rest
    if name == "openat" and strings and strings[0] == library and error is None:
        process.mapping_fd = value
    if process.mapping_fd is not None:
        process.mapping.append(name)
        if name == "close" and re.match(re.escape(process.mapping_fd) + r"\s*\)", rest):
            process.mapping_fd = None
        return
    process.calls.append(Call(name, strings, error))


def trace(argv, preload, log, env, cwd=None, timeout=300):
    """Runs argv under strace -f with one preloaded library. Returns (process, {pid: Process})."""
    environment = dict(env, LD_PRELOAD=preload)
    machine.need("tracing")
    command = ["strace", "-f", "-qq", "-s", "4096", "-e", "signal=none", "-o", log, "--", "env",
               "-i"] + ["%s=%s" % item for item in sorted(environment.items())] + argv
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=timeout, check=False, env={"PATH": os.environ["PATH"]})
    return done, read(log, preload)
