# SPDX-License-Identifier: Apache-2.0
"""The Python interpreters that tests are run with: this machine's, pyenv's, and what
scripts/fetch-pythons has fetched."""

import glob
import json
import os
import subprocess

from support import harness

FETCHED = os.path.join(harness.DEPS, "pythons")
# What the quick fetch brings; a run that may skip nothing needs them.
QUICK = ("debian-3.9", "debian-3.13", "debian-3.14", "debian-3.14-shared", "pypy")
# The versions whose frames the guard knows how to read.
KNOWN = ((3, 6), (3, 14))
# A fetched one compiles its own modules once, as an installed one has, not at each start.
ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": None}


def found():
    """{name: path of its program}"""
    paths = {"system": "/usr/bin/python3"}
    for path in glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3")):
        paths["pyenv-" + path.split("/")[-3]] = path
    for path in glob.glob(FETCHED + "/*/bin/python3"):
        if os.path.exists(os.path.join(os.path.dirname(path), "..", ".fetched")):
            paths[path.split("/")[-3]] = path
    return {name: path for name, path in sorted(paths.items()) if os.access(path, os.X_OK)}


def facts(path):
    """What the interpreter says of itself."""
    ask = ("import json, platform, sys, sysconfig; print(json.dumps([sys.implementation.name, "
           "sys.version_info[:3], bool(sysconfig.get_config_var('Py_GIL_DISABLED'))]))")
    done = subprocess.run([path, "-c", ask], capture_output=True, text=True, check=True)
    return Facts(*json.loads(done.stdout))


class Facts:
    def __init__(self, implementation, version, free_threaded):
        self.implementation = implementation
        self.version = tuple(version)
        self.free_threaded = free_threaded

    def readable(self):
        """Is its stack to be had?"""
        return (self.implementation == "cpython" and not self.free_threaded and
                KNOWN[0] <= self.version[:2] <= KNOWN[1])
