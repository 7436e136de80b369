# SPDX-License-Identifier: Apache-2.0
"""Runs many processes of 64 threads each with the fake GPUs of tests/fakes."""

import collections
import contextlib
import json
import os
import sys
import tempfile
import unittest

from support import box, harness, settings

DIRECTORY = os.path.join(harness.BUILD, "tests", "races")
DRIVER = os.path.join(harness.FAKES, "lazy")
THREADS = 64
PROXIES = ("libcudaguard-driver.so", "libcudaguard-nvml.so")
# Every entry point gives a thread this answer.
SEEN = "2:%s,%s" % (box.GPUS[5][0], box.GPUS[2][0])
ALLOWED = "5,2"

# Each race names the program, the entry points of its threads (programs/racers.c) and whether one
# of them may reach cuInit.
Race = collections.namedtuple("Race", "program entry_points inits")
RACES = [Race("racers", "o", True), Race("racers", "p", True), Race("racers", "n", False),
         Race("racers", "r", True), Race("racers", "onrp", True), Race("racers_linked", "l", True),
         Race("racers_linked", "m", False), Race("racers_linked", "lmonrp", True)]

# code: the exit code. inits: real calls of cuInit. times: how many processes ended this way.
Outcome = collections.namedtuple("Outcome", "code out err inits times")


@contextlib.contextmanager
def library_directory(proxies=None, guard=harness.GUARD):
    """Makes a lib directory with this guard and these proxies; yields the guard's path in it."""
    with tempfile.TemporaryDirectory(prefix="cg-") as directory:
        os.chmod(directory, 0o755)
        os.mkdir(os.path.join(directory, "cudaguard"))
        for name in os.listdir(harness.NULL_DRIVER_DIR):
            source = os.path.join(proxies if proxies and name in PROXIES
                                  else harness.NULL_DRIVER_DIR, name)
            if not os.path.exists(source):
                kind = RuntimeError if settings.MUST_RUN else unittest.SkipTest
                raise kind("not built (cmake --build --preset full): " + source)
            os.symlink(source, os.path.join(directory, "cudaguard", name))
        os.symlink(guard, os.path.join(directory, "libcudaguard.so"))
        yield os.path.join(directory, "libcudaguard.so")


def race(program, entry_points, times, guard=harness.GUARD, slow=0, log=True, prefix=(), threads=THREADS,
         **env):
    """Returns the outcomes of `times` fresh processes. slow: microseconds that the real cuInit
    waits."""
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        if not os.path.exists(os.path.join(DRIVER, name)):
            raise RuntimeError("no fake driver in " + DRIVER)
    env = dict(env, LD_LIBRARY_PATH=DRIVER, CG_SLOW=str(slow))
    if guard:
        env["LD_PRELOAD"] = guard
    spec = {"argv": [*prefix, os.path.join(DIRECTORY, program), str(threads), entry_points], "env": env,
            "times": times, "log": log}
    result = harness.run([sys.executable, os.path.join(harness.SOURCE, "tests", "races", "many.py"), json.dumps(spec)],
                         world="none", guard=False, trace=False, timeout=600)
    if result.rc != 0:
        raise RuntimeError(str(result))
    return [Outcome(*fields) for fields in json.loads(result.out)]
