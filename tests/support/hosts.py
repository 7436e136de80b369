# SPDX-License-Identifier: Apache-2.0
"""The tests of tests/hosts share this module."""

import os
import subprocess

from support import harness, messages

BIN = os.path.join(harness.BUILD, "tests", "hosts")
PROGRAMS = os.path.join(harness.SOURCE, "tests", "hosts", "programs")
MCS = os.path.join(harness.DEPS, "pythons", "mcs", "bin", "mcs.exe")
PYTHON = "/usr/bin/python3"  # Debian's: greenlet is a Debian package
OURS = {"cause": "FORCE_CPU", "remedy": "CUDAGUARD_POLICY=OFF"}


def without_ours(err):
    return messages.without(err, "no_cuda", **OURS)


class Case(harness.DirectoryCase):
    def compare(self, argv, message=True, env=None, **options):
        """Runs the program without and with the guard. Only the answers of cuInit and the guard's
        own messages may differ.

        message: False if the guard cannot know that descriptor 2 is stderr; it then prints none.
        """
        report = self.path("report.jsonl")
        env = dict(env or {}, CUDAGUARD_REPORT=report)
        unguarded = harness.run(argv, guard=False, env=env, **options)
        self.assertEqual(unguarded.rc, 0, unguarded)
        self.assertIn("cuInit=0", unguarded.out, unguarded)
        unguarded.assert_reached(self)
        guarded = harness.run(argv, env=env, **options)
        guarded.assert_untouched(self)
        self.assertEqual(guarded.rc, 0, guarded)
        self.assertEqual(guarded.out, unguarded.out.replace("cuInit=0", "cuInit=100"), guarded)
        self.assertEqual(bool(messages.find(guarded.err, "no_cuda", **OURS)), message, guarded)
        self.assertEqual(without_ours(guarded.err), unguarded.err, guarded)
        self.assertEqual({record["api"] for record in harness.records(report)}, {"cuInit"}, guarded)

    def compile_c_sharp(self, out):
        """Compiles asks.cs to this file in the test's directory, by Mono's compiler."""
        self.need("mono")
        if not os.path.exists(MCS):
            harness.skip(self, "run scripts/fetch-pythons %s mcs" % harness.DEPS)
        subprocess.run(["mono", MCS, "-out:" + self.path(out), os.path.join(PROGRAMS, "asks.cs")],
                       check=True)
        return self.path(out)
