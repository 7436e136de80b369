#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a command and writes its elapsed time and peak memory to a file.

  measure.py FILE COMMAND...

It runs inside the sandbox, so the numbers do not contain the start of bubblewrap and strace.
"""

import json
import os
import sys
import time


def main():
    file, *command = sys.argv[1:]
    start = time.monotonic()
    child = os.posix_spawnp(command[0], command, os.environ)
    _, status, usage = os.wait4(child, 0)
    with open(file, "w", encoding="utf-8") as stream:
        json.dump({"seconds": round(time.monotonic() - start, 1),
                   "memory_mb": usage.ru_maxrss // 1024}, stream)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
