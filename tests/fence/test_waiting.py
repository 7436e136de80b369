# SPDX-License-Identifier: Apache-2.0
"""The launcher waits for the fence's questions and for signals at once: what run --observe is held
to (tests/launcher: exit codes, signals, job control, descriptors, terminals), with --fence."""

import os
import sys

import harness
import fence

sys.path.insert(0, os.path.join(harness.SOURCE, "tests", "launcher"))
import observed  # noqa: E402

observed.OBSERVE.append("--fence=require")  # the list that all of them have
from test_observe_signals import *  # noqa: E402,F401,F403
from test_observe_terminal import *  # noqa: E402,F401,F403


class Fenced(fence.Case):
    """The control: they are."""

    def test_fenced(self):
        done = self.bare(*observed.OBSERVE, fence.program("asks_static"), "ask")
        self.assertIn(" ENODEV\n", done.stdout)
        self.assertIn("1 process asked", done.stderr)


if __name__ == "__main__":
    harness.main()
