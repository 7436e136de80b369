# SPDX-License-Identifier: Apache-2.0
"""What the tests of scripts/'s integrations share."""

import os
import shutil
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), area)
                for area in ("launcher", "roots")]

import harness  # noqa: E402
import launcher  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
DOOR = harness.program("door")
OPEN = [DOOR, "lib=libcuda.so.1"]


def script(*names):
    return os.path.join(harness.SOURCE, "scripts", *names)


def read(*names):
    with open(script(*names), encoding="utf-8") as stream:
        return stream.read()


def usr_local(folder):
    """An installed tree, made at `folder`, and bubblewrap's words for it at /usr/local."""
    shutil.copytree(harness.LIB, os.path.join(folder, "lib"), symlinks=True)
    os.mkdir(os.path.join(folder, "bin"))
    shutil.copy(launcher.LAUNCHER, os.path.join(folder, "bin"))
    return ["--tmpfs", "/usr/local", "--ro-bind", os.path.join(folder, "bin"), "/usr/local/bin",
            "--ro-bind", os.path.join(folder, "lib"), "/usr/local/lib"]


class Case(launcher.Case):
    def guarded(self, answers, fake_calls):
        """What a program said and what the recording fake has seen of it."""
        self.assertEqual((answers.get("cuInit"), fake_calls), ("100", []))

    def reached(self, answers, fake_calls):
        self.assertEqual(answers.get("cuInit"), "0")
        self.assertIn("cuInit", fake_calls)
