# SPDX-License-Identifier: Apache-2.0
"""Finds the tree that this package was installed with: bin/, share/, and the libraries."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys


class NotUsable(RuntimeError):
    """The launcher is missing or refuses to run; the text gives the reason."""


def prefix() -> str:
    """The directory above this package that has bin/cudaguard. It can be a virtual environment, the
    target of `pip --user` or `--target`, or an installed tree (share/cudaguard/python). An editable
    install leaves the package in the checkout, so this Python's prefix is tried last."""
    above = os.path.dirname(os.path.abspath(__file__))
    directories = []
    while above != os.path.dirname(above):
        above = os.path.dirname(above)
        directories.append(above)
    for directory in (*directories, sys.prefix):
        if os.access(os.path.join(directory, "bin", "cudaguard"), os.X_OK):
            return directory
    raise NotUsable("there is no bin/cudaguard in a directory above %s, nor in %s" % (__file__, sys.prefix))


def launcher() -> str:
    """The path of the command `cudaguard`, a static program."""
    return os.path.join(prefix(), "bin", "cudaguard")


def library() -> str:
    """The path of libcudaguard.so, for LD_PRELOAD. Raises NotUsable if it cannot be preloaded.
    ld.so splits LD_PRELOAD at spaces and colons, so the path must have neither."""
    # The launcher checks the path. With an empty environment it adds nothing else to LD_PRELOAD.
    done = subprocess.run([launcher(), "run", "--cpu", "--print"], env={}, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for line in os.fsdecode(done.stdout).splitlines():
        words = shlex.split(line)
        if words[:1] == ["export"] and words[1].startswith("LD_PRELOAD="):
            return words[1][len("LD_PRELOAD="):]
    raise NotUsable(os.fsdecode(done.stderr).strip() or "cudaguard run --print names no library")
