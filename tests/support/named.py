# SPDX-License-Identifier: Apache-2.0
"""What the message, the record, verify and --allow name for the code that has asked for CUDA."""

import os
import re

from support import harness, launcher, messages

ASK = "import ctypes\nctypes.CDLL('libcuda.so.1').cuInit(0)\n"


class Case(launcher.Case):
    def write(self, files):
        """Writes {name: text} below the test's directory."""
        for name, text in files.items():
            self.make(name, text, 0o644)

    def names(self, code, *words, starter="", **env):
        """Fails unless all name this code for the program, which reaches the driver unguarded.
        `starter` follows it in the message. Returns the records and verify's output."""
        report = self.path("report.jsonl")
        env = {"HOME": self.directory, "PYTHONDONTWRITEBYTECODE": "1", **env}
        here = {"trace": False, "cwd": self.directory}
        harness.run(words, guard=False, env=env, **here).assert_reached(self)
        guarded = harness.run(words, world="none", env={**env, "CUDAGUARD_REPORT": report}, **here)
        self.assertEqual(guarded.rc, 0, guarded)
        found = [record for record in harness.records(report) if "api" in record]
        os.remove(report)
        self.assertEqual({record.get("code") for record in found}, {code}, (found, str(guarded)))
        asked_by = re.compile(re.escape(code) + " through .*" + re.escape(starter))
        self.assertTrue(messages.find(guarded.err, "no_cuda", asked_by=asked_by), guarded)
        for options, rc in (["--allow", "line:" + code], 0), ([], 1):
            verified = harness.run([launcher.LAUNCHER, "verify", *options, "--", *words],
                                   world="none", guard=False, env=env, **here)
            self.assertEqual(verified.rc, rc, verified)
            self.assertRegex(verified.err, re.escape(code) + ".*" + re.escape(starter))
        return found, verified.err

    def typed(self, command, asked_by):
        """Fails unless the message names this for a command that a user types into a shell."""
        here = {"trace": False, "cwd": self.directory, "stdin": command + "\ntrue\n"}
        harness.run(["sh"], guard=False, **here).assert_reached(self)
        guarded = harness.run(["sh"], world="none", **here)
        self.assertTrue(messages.find(guarded.err, "no_cuda", asked_by=asked_by), guarded)
