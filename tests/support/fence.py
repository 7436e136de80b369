# SPDX-License-Identifier: Apache-2.0
"""Runs programs under `cudaguard run --fence` and without it."""

import os
import sys

from support import harness, launcher

PROGRAMS = os.path.join(harness.BUILD, "tests", "fence")

# Some of NVIDIA's requests as its libraries send them: RM_CONTROL, SYS_PARAMS, CHECK_VERSION_STR,
# CARD_INFO, UVM_INITIALIZE.
NVIDIA = ["c020462a", "c00846d6", "c04846d2", "ca0046c8", "30000001"]
# The framebuffer's requests FBIOGET_VSCREENINFO, FBIO_WAITFORVSYNC, i.MX's SEND_UPDATE and
# WAIT_FOR_UPDATE_COMPLETE, and a terminal's TCGETS.
OTHERS = ["4600", "40044620", "4048462e", "c008462f", "5401"]


def program(name):
    return os.path.join(PROGRAMS, name)


# A program that has a filter of its own.
OWN_FILTERS = [sys.executable, os.path.join(harness.SOURCE, "tests", "fence", "programs",
                                            "own_filters.py")]
# This program sends one of each and prints the answers.
ASK = [program("requests"), "/dev/null", NVIDIA[0], "5401"]
UNGUARDED = "c020462a ENOTTY\n5401 ENOTTY\n"
FENCED = "c020462a ENODEV\n5401 ENOTTY\n"


class Case(launcher.Case):
    def need_fence_of_devices(self):
        done = self.start("run", "--log=off", "--fence=devices", "true")
        if done.returncode != 0:
            harness.skip(self, done.stderr.strip())

    def answers(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        return dict(line.split() for line in done.stdout.splitlines())
