# SPDX-License-Identifier: Apache-2.0
"""Runs a program in a framework's virtual environment unguarded and guarded, and compares the two.

The environments come from scripts/fetch-frameworks. What a guarded program prints is compared with
the same program on a machine without a driver.
"""

import glob
import os
import tempfile

from support import harness, messages

HERE = os.path.join(harness.SOURCE, "tests", "frameworks")
ENVIRONMENTS = os.path.join(harness.DEPS, "frameworks")
OURS = {"cause": "FORCE_CPU", "call": None, "remedy": "CUDAGUARD_POLICY=OFF"}


def same(text):
    return text


class Case(harness.Case):
    environment = None  # the name of the virtual environment
    timeout = 300

    def setUp(self):
        super().setUp()
        self.need_environment(self.environment)

    def need_environment(self, name):
        mark = os.path.join(ENVIRONMENTS, name + ".unreachable")  # the package index was
        if os.path.exists(mark):
            self.skipTest(harness.read(mark).strip())
        self.need_fetched(name)

    def packages(self):
        """Returns the environment's directory of packages."""
        return glob.glob(os.path.join(ENVIRONMENTS, self.environment, "lib/python3*/site-packages"))[0]

    def nvidia_libraries(self):
        """Returns the directories of NVIDIA's wheels in the form of LD_LIBRARY_PATH."""
        return ":".join(sorted(glob.glob(self.packages() + "/nvidia/*/lib")))

    def tool(self, name):
        return os.path.join(ENVIRONMENTS, self.environment, "bin", name)

    def argv(self, program, *arguments):
        return [self.tool("python"), os.path.join(HERE, "programs", program)] + list(arguments)

    def run_program(self, argv, world, guard, env=None):
        result = harness.run(argv, world=world, guard=guard, env=env, timeout=self.timeout)
        self.assertFalse(result.timed_out, str(result))
        return result

    def control(self, argv, env=None):
        """Fails unless the unguarded program enters NVIDIA's real driver."""
        self.need_real_driver()
        unguarded = self.run_program(argv, "real", False, env)
        self.assertTrue(unguarded.device_opens,
                        "control: the unguarded program opens no device\n%s" % unguarded)
        return unguarded

    def guarded(self, argv, world, env=None, attempts=True, linked=False):
        """Runs it guarded with the report on; returns the result without the guard's own lines.

        result.attempted: the processes that the report names.
        """
        with tempfile.TemporaryDirectory(prefix="cg-") as directory:
            os.chmod(directory, 0o777)
            report = os.path.join(directory, "report.jsonl")
            result = self.run_program(argv, world, True, dict(env or {}, CUDAGUARD_REPORT=report))
            records = harness.records(report)
        result.attempted = {record["pid"] for record in records}
        result.assert_untouched(self, linked)
        found = [(int(message["pid"]), message["name"])
                 for message in messages.find(result.err, *messages.DENIED, **OURS)]
        spoke = {pid for pid, _ in found}
        # Each process prints the message once. A forked child prints none if its parent has printed
        # it.
        self.assertEqual(len(found), len(set(found)), str(result))
        forked = {record["pid"] for record in records if record["ppid"] in result.attempted}
        self.assertLessEqual(result.attempted - forked, spoke,
                             "no line for a process that asked\n%s" % result)
        self.assertLessEqual(spoke, result.attempted, str(result))
        self.assertEqual(bool(spoke), attempts, str(result))
        result.err = messages.without(result.err, *messages.DENIED, **OURS)
        return result

    def compare(self, argv, env=None, normal=same, expect=None, reference_env=None,
                worlds=("none", "fake", "real")):
        """Runs the control, the reference without a driver and the guarded program in these worlds
        (the quick run: only in the last).

        normal: removes from a text what differs from run to run. expect: what it prints guarded.
        reference_env: variables of the reference alone. Returns (unguarded, guarded).
        """
        unguarded = self.control(argv, env)
        reference = self.run_program(argv, "none", False, dict(env or {}, **(reference_env or {})))
        self.assertFalse(reference.reached_driver(), str(reference))
        last = None
        for world in worlds if harness.FULL else worlds[-1:]:
            last = self.guarded(argv, world, env)
            self.same_words(reference, last, normal, world)
            if expect is not None:
                self.assertEqual(last.out, expect, str(last))
        # With the guard's message switched off, the output must be equal to the byte.
        if harness.FULL:
            quiet = self.run_program(argv, "fake", True, dict(env or {}, CUDAGUARD_LOG="off"))
            quiet.assert_untouched(self)
            self.same_words(reference, quiet, normal, "fake, CUDAGUARD_LOG=off")
        print("\n  opens of /dev/nvidia*: unguarded %d, guarded %d" %
              (len(unguarded.device_opens), len(last.device_opens)))
        return unguarded, last

    def answers(self, argv, out, worlds=("none", "fake", "real")):
        """Fails unless the guarded program prints this in each world. The unguarded one enters
        NVIDIA's driver."""
        self.control(argv)
        for world in worlds:
            result = self.guarded(argv, world)
            self.assertEqual((result.rc, result.out, result.err), (0, out, ""), str(result))

    def same_words(self, reference, guarded, normal, where):
        what = "guarded (%s) it is not as without a driver\n%s" % (where, guarded)
        self.assertEqual(guarded.rc, reference.rc, what)
        self.assertEqual(normal(guarded.out), normal(reference.out), what)
        self.assertEqual(normal(guarded.err), normal(reference.err), what)
