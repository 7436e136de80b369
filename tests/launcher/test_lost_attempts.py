# SPDX-License-Identifier: Apache-2.0
"""verify hears of an attempt before the process counts it as reported. So no attempt is lost if
something else happens to its thread while the launcher is busy. The programs stop the launcher and
its keeper, so that each attempt has to wait for it."""

import re

import pytest

from support import fixtures, harness, launcher
from launcher import test_verify_tree
from support.observed import box

SHAPES = ("jump", "jump-and-ask-again", "fork-in-handler", "killed-by-alarm", "threads")


class LostAttempts(test_verify_tree.Case):
    def setUp(self):
        super().setUp()
        self.program = launcher.program("waits_for_launcher")

    def shape(self, name, pids):
        # The shell forgets how the program ended.
        return ["sh", "-c", '"$0" %s %s; true' % (name, pids), self.program]

    def test_control_unguarded_programs_ask(self):
        for name in SHAPES:
            unguarded = harness.run(self.shape(name, "0 0"), world="none", guard=False, trace=False,
                                    env=box.environment())
            self.assertTrue(unguarded.fake_calls, unguarded)


make_case = fixtures.lent("case", LostAttempts)


@pytest.mark.parametrize("name", SHAPES)
def test_attempt_is_reported(case, name):
    result, tree = case.tree(case.shape(name, "$PPID $(pgrep -P $PPID cudaguard)"))
    case.ends(result, 1, " asked for CUDA, in ")
    # The thread that sees the other one's call as known may end the process before
    # verify has read the details (tests/lab/limits.md).
    details = " by waits_for_launcher| or the like" if name == "threads" else " by waits_for_launcher"
    assert re.search("cuInit(%s)" % details, result.err), result.err
    assert tree["doubts"] == [], str(result)
