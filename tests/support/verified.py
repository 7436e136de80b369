# SPDX-License-Identifier: Apache-2.0
"""Runs programs under `verify` and reads the block at the end of the output."""

import json
import os
import subprocess
import time

from support import harness, launcher, observed, recorded
from support.observed import box

VERIFY = [launcher.LAUNCHER, "verify"]
# Gives verify's result about the records on its standard input.
RESULT = os.path.join(harness.BUILD, "tests", "launcher", "result_of_records")


def record(pid=7, api="cuInit", command=("prog", "a"), caller="/lib/libx.so+0x10", **more):
    """Returns a guard's record as one line, and before it the line of its native stack if given."""
    fields = {"v": 1, "ts": time.time(), "pid": pid, "ppid": 1, "tid": pid, "uid": 0,
              "host": "node7", "exe": "/usr/bin/" + os.path.basename(command[0]),
              "argv": list(command), "cgroup": "/x", "api": api, "decision": "deny",
              "asked": "nvml" if api.startswith("nvml") else "cuda",
              "caller": caller, "library": os.path.basename(caller).split("+")[0], **more}
    return recorded.with_native(recorded.with_line_frame(fields)) + "\n"


def documented(case, words, options=(), before=(), **more):
    """Runs the words under verify without a driver. Returns the run and verify's document."""
    document = case.path("verify.json")
    result = harness.run([*before, *VERIFY, *options, "--json", document, "--", *words],
                         world="none", guard=False, trace=False, **more)
    case.assertTrue(os.path.exists(document), result)
    return result, json.loads(harness.read(document))


def keeper_of(case, launcher_pid):
    """Waits until the launcher's keeper has a session of its own, as the programs may have."""
    def found():
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(launcher_pid)], text=True,
                                capture_output=True, check=True).stdout.split()
        here = os.readlink("/proc/%d/exe" % launcher_pid)
        return [pid for pid in map(int, listed)
                if os.getsid(pid) == pid and os.readlink("/proc/%d/exe" % pid) == here]
    case.until(found, "the keeper's session")
    keeper, = found()
    return keeper


class Case(observed.Case):
    command = VERIFY

    def verify(self, words, options=(), env=None, **more):
        """Runs the words under verify in the machine with eight GPUs."""
        return harness.run(self.command + list(options) + ["--"] + [str(word) for word in words],
                           world="none", guard=False, trace=False,
                           env=box.environment(**(env or {})), **more)

    def steps(self, steps, options=(), name="open", **more):
        return self.verify([box.program(name)] + list(steps), options, **more)

    def forged(self, text, options=(), **more):
        """Returns verify's result about these records, as of a program that succeeded."""
        return harness.run([RESULT, "verify", *options, "--", "prog"], stdin=text, world="none",
                           guard=False, trace=False, env=box.environment(), **more)

    def ends(self, result, rc, *wanted):
        """Checks the exit code, the block's first line and that the driver was not entered. Returns
        the block."""
        self.assertEqual(result.rc, rc, result)
        word = {0: "PASS", 1: "FAIL", 2: "FAIL", 3: "INCOMPLETE"}[rc]
        block = result.err[result.err.index("cudaguard: " + word):]
        lines = block.splitlines()
        # A long path is not broken.
        self.assertEqual([line for line in lines
                          if len(line) > 100 and max(map(len, line.split())) < 80], [], block)
        self.assertTrue(block.endswith("\n"), block)
        self.assertTrue(all(line.isprintable() for line in lines), block)
        self.assertEqual(result.fake_calls, [], result)
        for text in wanted:
            self.assertIn(text, block)
        return block
