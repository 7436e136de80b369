# SPDX-License-Identifier: Apache-2.0
"""verify waits for a process that becomes its child while it looks at the last child that it has."""

import os

import pytest

from launcher import test_keeper, test_observe_signals
from launcher.test_keeper import OPENS, PTRACE_DETACH, hold_at, trace
from support import fixtures, verified

PROGRAM = """import ctypes, os, sys
child = os.fork()
if child == 0:
    open(sys.argv[1]).read()
    if os.fork() == 0:
        open(sys.argv[2]).read()
        ctypes.CDLL('libcuda.so.1').cuInit(0)
    os._exit(0)
print(os.getpid(), child, flush=True)
"""


make_case = fixtures.lent("case", test_keeper.Case)


@pytest.mark.needs("tracing")
@pytest.mark.timeout(120)
def test_child_of_a_child_that_ends_meanwhile_is_waited_for(case):
    for name in ("end", "ask"):
        os.mkfifo(case.path(name))
    program = case.make("program.py", PROGRAM)
    verify = case.popen([*verified.VERIFY, "--", "python3", program, case.path("end"),
                         case.path("ask")])
    main, child = map(int, verify.stdout.readline().split())
    case.until(lambda: not os.path.exists("/proc/%d" % main), "the program's end")
    # The launcher has read its list of children, and looks at the only one.
    hold_at(verify.pid, OPENS, lambda: None,
            ["/proc/%d/task/%d/children" % (verify.pid, verify.pid), "/proc/%d/stat" % child])
    case.go("end")
    case.until(lambda: case.state(child) == "Z", "the child's end")
    trace(PTRACE_DETACH, verify.pid)
    case.until(lambda: not os.path.exists("/proc/%d" % child), "the look at the child")
    case.go("ask")
    _, err = verify.communicate(timeout=test_observe_signals.PATIENCE)
    assert (verify.returncode, "program.py:7" in err) == (1, True), err
