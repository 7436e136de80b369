#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a command and writes its elapsed time and peak memory to a file.

  measure.py FILE COMMAND...

It runs inside the sandbox, so the numbers do not contain the start of bubblewrap and strace. If the
command leaves processes behind, they get some seconds and are then killed, because strace waits for
them.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
SECONDS_LEFT = 5


def main():
    file, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    start = time.monotonic()
    child = os.posix_spawnp(command[0], command, os.environ)
    _, status, usage = os.wait4(child, 0)
    with open(file, "w", encoding="utf-8") as stream:
        json.dump({"seconds": round(time.monotonic() - start, 1),
                   "memory_mb": usage.ru_maxrss // 1024}, stream)
    end_children(time.monotonic() + SECONDS_LEFT)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def end_children(deadline):
    """Waits for the processes that were left to us, and kills them after the deadline. Their own
    children then become ours."""
    mine = pathlib.Path(f"/proc/self/task/{os.getpid()}/children")
    while children := mine.read_text().split():
        if time.monotonic() > deadline:
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
