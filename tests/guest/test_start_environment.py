# SPDX-License-Identifier: Apache-2.0
"""The configuration is that of the environment which the kernel handed over: whatever is loaded
before libc has set `environ`, and whatever the program does to its environment later. In these
programs getenv() finds nothing, with the guard or without, so the fake driver cannot log: its cuInit
answers 0."""

import os

from support import guest, harness

LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(harness.LIB)), "bin", "cudaguard")
REACHED = {"cuInit": "0"}
DENIED = {"cuInit": "100"}
EARLY = {"preinit": guest.binary("early_preinit"), "ifunc": guest.binary("early_ifunc"),
         "initfirst": guest.binary("early_initfirst")}


class StartEnvironment(guest.Case):
    def test_program_that_loads_before_libc_is_ready_is_guarded(self):
        for name, program in EARLY.items():
            with self.subTest(name):
                self.assertEqual(harness.run([program], guard=False).answers, REACHED)
                result = harness.run([program])
                self.assertEqual(result.answers, DENIED, result)
                result.assert_untouched(self)
                result = harness.run([program], env={"CUDAGUARD_POLICY": "OFF"})
                self.assertEqual((result.answers, result.err), (REACHED, ""), result)
                report = self.path("report-" + name)
                result = harness.run([program], env={"CUDAGUARD_LOG": "off",
                                                     "CUDAGUARD_REPORT": report})
                result.assert_untouched(self)
                self.assertEqual(result.err, "", result)
                self.assertEqual([one["api"] for one in harness.records(report)], ["cuInit"])

    def test_verify_counts_a_process_that_loads_early(self):
        for name, program in EARLY.items():
            with self.subTest(name):
                result = harness.run([LAUNCHER, "verify", "--", program], guard=False, trace=False,
                                     world="none")
                self.assertEqual(result.rc, 1, result)
                self.assertIn(", in 1 of 1 process", result.err)

    def test_cleared_or_overwritten_environment_changes_nothing(self):
        for how in ("clear", "overwrite"):
            for log, lines in (("off", 0), ("deny", 1)):
                with self.subTest(how=how, log=log):
                    report = self.path("%s-%s" % (how, log))
                    result = harness.run([guest.binary("early"), how],
                                         env={"CUDAGUARD_REPORT": report, "CUDAGUARD_LOG": log})
                    result.assert_untouched(self)
                    self.assertEqual(len(guest.lines_of(result.err)), lines, result)
                    self.assertEqual([one["api"] for one in harness.records(report)], ["cuInit"])
            result = harness.run([guest.binary("early"), how], env={"CUDAGUARD_POLICY": "OFF"})
            self.assertEqual((result.answers, result.err), (REACHED, ""), result)

    def test_program_does_not_lift_the_policy_before_its_first_load(self):
        lift = ["setenv:CUDAGUARD_POLICY=OFF", "setenv:CUDAGUARD_LOG=off"]
        self.steps(*lift, "ask", guard=False).assert_reached(self)
        for steps in ([*lift, "ask"], [*lift, "fork", "ask", "end"]):
            with self.subTest(steps):
                result = self.steps(*steps)
                result.assert_untouched(self)
                self.assertEqual(guest.lines_of(result.err), [guest.DENIED % "steps"], result)
