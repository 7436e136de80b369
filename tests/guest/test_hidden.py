# SPDX-License-Identifier: Apache-2.0
"""The guard's exports leave later look-ups while other threads may be looking up."""

import os
import subprocess

from support import guest, harness


def run(**env):
    environment = harness.child_environment("none", True, env, (), os.devnull)
    done = subprocess.run([guest.binary("hidden")], env=environment, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, str(done)
    return done.stdout


def test_hidden_name_keeps_its_address():
    """ld.so reads the name of an entry and then its address. So a thread that has just found the
    name must find the address, too."""
    assert run(CUDAGUARD_POLICY="VALIDATE") == "found=1\nsame=1\n"  # where all names stay
    assert run() == "found=0\nsame=1\n"
