# SPDX-License-Identifier: Apache-2.0
"""The launcher waits for the fence's notifications and for signals at once. These tests of run
--observe (exit codes, signals, job control, descriptors, terminals) run with --fence."""

import pytest

from launcher.test_observe_signals import *  # noqa: F403
from launcher.test_observe_terminal import *  # noqa: F403
from support import fence, observed

pytestmark = pytest.mark.full  # it waits for most of a minute


@pytest.fixture(autouse=True)
def fenced():
    observed.OBSERVE.append("--fence=require")  # the list that all of them have
    yield
    observed.OBSERVE.remove("--fence=require")


class Fenced(fence.Case):
    """The control: the programs are fenced."""

    def test_control_program_is_fenced(self):
        done = self.unguarded(*observed.OBSERVE, fence.program("asks_static"), "ask")
        self.assertIn(" ENODEV\n", done.stdout)
        self.assertIn("1 process asked", done.stderr)
