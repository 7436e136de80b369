# SPDX-License-Identifier: Apache-2.0
"""The workers of multiprocessing get the variable that docs/integrations sets in the parent."""

import sys

import pytest

from support import harness, places

ASK = """import ctypes
import sys


def ask(_):
    return ctypes.CDLL("libcuda.so.1").cuInit(0)


if __name__ == "__main__":
    exec(sys.argv[1])
    print("worker=%d" % pool.map(ask, range(1))[0])
    print("parent=%d" % ask(0))
"""


# The control is a pool without the settings.
@pytest.mark.parametrize(("method", "guard", "answer"), [
    ("spawn", True, "100"), ("forkserver", True, "100"), ("fork", True, "0"),
    ("spawn", False, "0")])
def test_only_workers_are_guarded(case, method, guard, answer):
    (settings,) = places.blocks("python", "python", "joblib and multiprocessing")
    assert 'get_context("spawn")' in settings and "os.environ" in settings
    program = settings.replace("spawn", method)
    if not guard:
        program = program.replace('os.environ["LD_PRELOAD"]', "unused")
    path = case.make("ask.py", ASK, 0o644)
    result = harness.run([sys.executable, path, program], guard=False, trace=False,
                         bwrap=places.usr_local(case.directory))
    assert result.rc == 0, result
    assert result.answers == {"worker": answer, "parent": "0"}, result
