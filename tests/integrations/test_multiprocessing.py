# SPDX-License-Identifier: Apache-2.0
"""The workers of multiprocessing get the variable that docs/integrations sets in the parent, and
print the messages that README promises."""

import sys

import pytest

from support import fixtures, harness, messages, places

ASK = """import ctypes
import sys


def ask(_):
    return ctypes.CDLL("libcuda.so.1").cuInit(0)


if __name__ == "__main__":
    exec(sys.argv[1])
    print("worker=%d" % pool.map(ask, range(1))[0])
    print("parent=%d" % ask(0))
"""
# Each of the three workers asks.
POOL = """import ctypes, multiprocessing, sys


def ask(barrier):
    barrier.wait()
    return ctypes.CDLL("libcuda.so.1").cuInit(0)


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    print("parent=%d" % ctypes.CDLL("libcuda.so.1").cuInit(0))
    with context.Manager() as manager, context.Pool(3) as pool:
        print("workers=%s" % pool.map(ask, [manager.Barrier(3)] * 3, 1))
"""
UNGUARDED = 'import multiprocessing\npool = multiprocessing.get_context("spawn").Pool(2)\n'


class Pool(places.Case):
    def answers(self, text):
        path = self.make("ask.py", ASK, 0o644)
        result = harness.run([sys.executable, path, text], guard=False, trace=False,
                             bwrap=places.usr_local(self.directory))
        self.assertEqual(result.rc, 0, result)
        return result.answers

    def test_control_no_process_is_guarded_without_the_settings(self):
        self.assertEqual(self.answers(UNGUARDED), {"worker": "0", "parent": "0"})


make_pool_case = fixtures.lent("pool_case", Pool)


@pytest.mark.parametrize(("method", "answer"), [("spawn", "100"), ("forkserver", "100"),
                                                ("fork", "0")])
def test_only_workers_are_guarded(pool_case, method, answer):
    (settings,) = places.blocks("python", "python", "joblib and multiprocessing")
    assert 'get_context("spawn")' in settings
    assert pool_case.answers(settings.replace("spawn", method)) == {"worker": answer, "parent": "0"}


@pytest.mark.parametrize(("method", "count"), [("fork", 1), ("spawn", 4)])
def test_forked_workers_print_none_and_started_ones_one_each(case, method, count):
    path = case.make("pool.py", POOL, 0o644)
    command = [sys.executable, path]
    harness.run([*command, "spawn"], guard=False, trace=False).assert_reached(case)
    result = harness.run([*command, method], trace=False)
    assert result.out == "parent=100\nworkers=[100, 100, 100]\n", str(result)
    assert len(messages.find(result.err, "no_cuda")) == count, str(result)
