# SPDX-License-Identifier: Apache-2.0
"""After cudaguard_watch, a process records its attempts again, and may name another file."""

from support import guest, harness


class Watch(guest.Case):
    def apis(self, path):
        return [record["api"] for record in harness.records(path)]

    def watched(self, *steps, **env):
        result = self.steps(*steps, env=env)
        self.assertEqual(result.rc, 0, result)
        return result

    def test_watch_makes_new_records_and_no_second_message(self):
        report = self.path("report")
        result = self.watched("ask", "ask", "nvml", "watch", "ask", "ask", "watch", "nvml",
                              "attempts", CUDAGUARD_REPORT=report)
        self.assertEqual(self.apis(report), ["cuInit", "nvmlInit_v2", "cuInit", "nvmlInit_v2"])
        # The count goes on, and the guard prints the message once.
        self.assertEqual([line for line in result.out.splitlines() if "watch" in line or
                          "attempts" in line], ["watch=3", "watch=5", "attempts=6"])
        self.assertEqual(guest.lines_of(result.err), [guest.DENIED % "steps"])
        result.assert_untouched(self)

    def test_control_without_watch_each_kind_has_one_record(self):
        """Without the guard the program reaches the driver."""
        report = self.path("report")
        self.watched("ask", "ask", "nvml", "ask", "nvml", CUDAGUARD_REPORT=report)
        self.assertEqual(self.apis(report), ["cuInit", "nvmlInit_v2"])
        self.steps("watch", "ask", guard=False).assert_reached(self)

    def test_watch_can_name_another_file(self):
        for env in ({}, {"CUDAGUARD_REPORT": self.path("first")}):
            second, third = self.path("second"), self.path("third.%d" % len(env))
            self.watched("ask", "watch:" + second, "ask", "watch", "ask", "watch:" + third,
                         "fork", "ask", "end", "ask", "watch:" + "x" * 5000, "ask", **env)
            # A forked child writes to the same file.
            self.assertEqual(self.apis(third), ["cuInit", "cuInit"])
        self.assertEqual(self.apis(self.path("first")), ["cuInit"])
        self.assertEqual(self.apis(second), ["cuInit"] * 4)

    def test_watch_works_only_if_the_policy_refuses_something(self):
        for policy, answer, apis in (("OFF", "-1", []), ("VALIDATE", "-1", []),
                                     ("NO_CONTEXT", "0", ["cuInit"])):
            report = self.path("report")
            result = self.watched("watch:" + report, "ask", "attempts", CUDAGUARD_POLICY=policy)
            self.assertEqual((result.answers["watch"], self.apis(report), result.answers["attempts"]),
                             (answer, apis, "0"), result)
            result.assert_reached(self)
