# SPDX-License-Identifier: Apache-2.0
"""Under verify each execve waits for an answer. Signals around it do no harm, and tracers work below
verify."""

import sys

import pytest

from launcher import test_verify_tree
from support import fixtures, harness

# Signals reach the children at any time around their execve. A handler without SA_RESTART can make
# execve fail with EINTR (tests/lab/limits.md).
STORM = r"""
import os, random, signal
signal.signal(signal.SIGUSR1, lambda *_: None)
ends = {}
for i in range(300):
    pid = os.fork()
    if pid == 0:
        while True:
            try:
                os.execv("/bin/true", ["true"])
            except InterruptedError:
                pass
    number = (signal.SIGUSR1, signal.SIGSTOP, signal.SIGKILL)[i % 3]
    for _ in range(random.randrange(100)):
        os.getppid()
    os.kill(pid, number)
    os.kill(pid, signal.SIGCONT)
    end = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert end == 0 or -end in (signal.SIGKILL, signal.SIGUSR1), (number, end)
"""


class Case(test_verify_tree.Case):
    def passes(self, *words):
        """Runs the words without cudaguard and under verify, with the same output."""
        unguarded = harness.run(words, world="none", guard=False, trace=False)
        result = self.verify(words)
        self.assertEqual((unguarded.rc, unguarded.out), (0, result.out), (unguarded, result))
        self.assertIn(result.rc, (0, 3), result)
        return result


make_case = fixtures.lent("case", Case)


def test_signals_around_execve_do_no_harm(case):
    case.passes(sys.executable, case.make("storm.py", STORM))


@pytest.mark.needs("tracing")
@pytest.mark.parametrize("words", [
    ["strace", "-f", "-o", "/dev/null", "sh", "-c", "/bin/echo inside; true"],
    ["gdb", "-q", "-batch", "-nx", "-ex", "set startup-with-shell off", "-ex", "run", "-ex",
     "info inferiors", "/bin/true"]], ids=lambda words: words[0])
def test_tracers_work_below_verify(case, words):
    case.need(words[0])
    done = case.verify(words)
    assert done.rc in (0, 3), done
    assert ("inside" if words[0] == "strace" else "exited normally") in done.out, done
