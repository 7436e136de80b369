# SPDX-License-Identifier: Apache-2.0
"""The tests of `doctor PROGRAM` share this. It compares the answer with what `run` does, and runs
the program against the fake driver to check the verdict."""

import json
import os

from support import doctor, harness, launcher

# `run` refuses programs for these reasons. The other reasons concern programs that it starts.
REFUSED = {"architecture", "musl", "setuid", "setgid", "capabilities", "loader", "static_driver",
           "null_driver", "variable"}
CODES = {"yes": 0, "in part": 1, "no": 2}


class Case(doctor.Case):
    def read(self, out, code):
        """Returns the answer about a program and checks its exit code."""
        answer = doctor.Answer(code, json.loads(out))
        guarded = answer.document["guarded"]
        self.assertTrue(answer.line.startswith("guarded: " + guarded), answer.line)
        # Problems of the machine itself make a good verdict at worst "in part".
        self.assertEqual(code, CODES[guarded] or (1 if answer.problems else 0))
        return answer

    def verdict(self, program, guarded, wanted, command=launcher.LAUNCHER, **more):
        """Returns the answer. Fails unless it is this verdict for these reasons and `run` agrees.
        """
        result = harness.run([command, "doctor", "--json", "-", program], guard=False, trace=False,
                             **more)
        self.assertEqual((result.err, result.init_calls()[1:]), ("", []), result)
        answer = self.read(result.out, result.rc)
        ids = sorted({reason["id"] for reason in answer.reasons})
        self.assertEqual((answer.document["guarded"], ids), (guarded, sorted(wanted)))
        started = harness.run([command, "run", "--print", program], guard=False, trace=False,
                              **more)
        refused = [reason for reason in answer.reasons if reason["id"] in REFUSED]
        self.assertEqual(started.rc, 125 if refused else 0, started)
        if refused and refused[0]["id"] != "null_driver":
            self.assertIn(refused[0]["text"], started.err)
        return answer

    def answer(self, words, way, **more):
        """Returns what cuInit returned in the program: "0" from the fake driver, "100" from
        cudaguard."""
        result = self.guarded(words, way, **more)
        self.assertIn("cuInit", result.answers, result)
        return result.answers["cuInit"]

    def guarded(self, words, way, **more):
        start = [launcher.LAUNCHER, "run"] if way == "run" else []
        more.setdefault("trace", False)
        return harness.run(start + words, guard=way == "preload", **more)

    def assert_answers(self, words, unguarded, run, preload, **more):
        """Compares cuInit's answer in each of the three ways to start the program."""
        self.assertEqual([self.answer(words, way, **more) for way in ("unguarded", "run",
                                                                      "preload")],
                         [unguarded, run, preload])

    def assert_stopped(self, words, *ways, **more):
        """Fails unless the program initialises the driver unguarded and calls nothing of it in
        these ways."""
        self.assertTrue(self.guarded(words, "unguarded", **more).init_calls(), "the control")
        for way in ways:
            result = self.guarded(words, way, **more)
            self.assertEqual(result.fake_calls, [], result)

    def copy_of_driver(self, directory="copy"):
        """Copies the fake driver to a directory and returns the directory's path."""
        os.mkdir(self.path(directory))
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            os.symlink(os.path.join(harness.FAKE_DRIVER, name), self.path(directory, name))
        return self.path(directory)
