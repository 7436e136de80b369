# SPDX-License-Identifier: Apache-2.0
"""Lists the Python interpreters for the tests: this machine's, pyenv's and the ones that
scripts/fetch-pythons fetched."""

import glob
import json
import os
import subprocess

from support import harness

FETCHED = os.path.join(harness.DEPS, "pythons")
# The quick fetch brings these, so a run that may not skip needs them.
QUICK = ("debian-3.9", "debian-3.13", "debian-3.14", "debian-3.14-shared", "pypy")
# The guard can read the frames of these versions.
KNOWN = ((3, 6), (3, 15))
# A fetched interpreter compiles its modules once, as an installed one has, instead of at each
# start.
ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": None}


def found():
    """Returns {name: path of its program}."""
    paths = {"system": "/usr/bin/python3"}
    for path in glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3")):
        paths["pyenv-" + path.split("/")[-3]] = path
    for path in glob.glob(FETCHED + "/*/bin/python3"):
        if os.path.exists(os.path.join(os.path.dirname(path), "..", ".fetched")):
            paths[path.split("/")[-3]] = path
    return {name: path for name, path in sorted(paths.items()) if os.access(path, os.X_OK)}


def facts(path):
    """Returns what the interpreter reports about itself."""
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
        """Returns true if the guard can read this interpreter's stack."""
        return (self.implementation == "cpython" and not self.free_threaded and
                KNOWN[0] <= self.version[:2] <= KNOWN[1])
