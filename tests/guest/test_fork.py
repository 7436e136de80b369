# SPDX-License-Identifier: Apache-2.0
"""Fork while other threads are inside the loader and inside the guard: no hang, right answers,
and a child's attempt is recorded with the child's own process id."""

import json

from support import guest, harness

FORKS = guest.binary("forks")


class Forks(guest.Case):
    def check(self, count, answer, how, guard=True, **env):
        result = harness.run([FORKS, str(count), str(answer), how], guard=guard, trace=False,
                             timeout=600, env=env)
        self.assertEqual(result.rc, 0, result)
        self.assertGreater(int(result.answers["loads"]), 100, result)
        return result

    def test_control_driver_is_reached_without_the_guard(self):
        result = self.check(20, 3, "ready", guard=False)
        result.assert_reached(self)
        self.assertEqual(result.answers["right"], "20", result)

    def test_300_forked_children_make_one_record_each(self):
        report = self.path("report")
        result = self.check(300, 100, "ready", CUDAGUARD_REPORT=report)
        self.assertEqual(result.answers["parent"], "100")
        self.assertEqual(result.answers["right"], "300", result)
        result.assert_untouched(self)
        records = harness.records(report)
        own = int(result.answers["own"])
        inits = [r for r in records if r["api"] == "cuInit"]
        self.assertEqual(sum(r["pid"] == own for r in inits), 1)
        children = [r for r in inits if r["pid"] != own]
        self.assertEqual(len({r["pid"] for r in children}), 300)
        self.assertEqual(len(children), 300)
        self.assertEqual({r["ppid"] for r in children}, {own})
        self.assertTrue(all(r["tid"] == r["pid"] for r in children))
        # Only the parent prints the messages.
        self.assertEqual(sorted(guest.lines_of(result.err)),
                         [guest.DENIED % "forks", guest.NO_GPU % "forks"], result)

    def test_children_of_300_forks_that_load_never_reach_the_driver(self):
        """What dies or hangs here does so in ld.so, and more often without the guard (the control
        cannot be asserted: it is chance); no child may get to the driver."""
        result = self.check(300, 100, "load", CUDAGUARD_LOG="off")
        self.assertEqual(result.answers["wrong"], "0", result)
        self.assertGreater(int(result.answers["right"]), 50, result)
        result.assert_untouched(self)
        for line in result.err.splitlines():
            self.assertRegex(line, r"ld\.so|^$")

    def test_child_and_grandchild_make_records_of_their_own(self):
        report = self.path("report")
        result = self.steps("ask", "fork", "touches", "ask", "fork", "touches", "ask", "end",
                            "touches", "end", "touches", env={"CUDAGUARD_REPORT": report})
        result.assert_untouched(self)
        counts = [line for line in result.out.splitlines() if line.startswith("touches=")]
        self.assertEqual(counts, ["touches=0", "touches=0", "touches=1", "touches=1"])
        with open(report, encoding="utf-8") as stream:
            pids = [json.loads(line)["pid"] for line in stream]
        self.assertEqual(len(set(pids)), 3, pids)

    def in_child(self, before, changes, guard=True):
        """What a forked child gets whose parent changes the variable before the fork."""
        env = {"CUDAGUARD_POLICY": before} if before else {}
        result = self.steps("load:libm.so.6", *changes, "fork", "ask", "fork", "ask", "end", "end",
                            "ask", env=env, guard=guard)
        self.assertEqual((result.rc, "child-status" in result.out), (0, False), result)
        return result, [line for line in result.out.splitlines() if line.startswith("cuInit=")]

    def test_forked_child_has_the_policy_of_its_parent(self):
        """Whatever the parent does to the variable: launchers take it away."""
        for before in ("OFF", "FORCE_CPU", None):
            for changes in (["unsetenv:CUDAGUARD_POLICY"], ["setenv:CUDAGUARD_POLICY="],
                            ["setenv:CUDAGUARD_POLICY=FORCE_CPU"], ["setenv:CUDAGUARD_POLICY=OFF"],
                            ["setenv:CUDAGUARD_POLICY=nonsense"], []):
                with self.subTest(before=before, changes=changes):
                    unguarded, wanted = self.in_child(before, changes, guard=False)
                    # In a child of a process that uses CUDA the driver answers 3.
                    self.assertEqual(wanted, ["cuInit=0", "cuInit=3", "cuInit=0"], unguarded)
                    result, values = self.in_child(before, changes)
                    if before == "OFF":
                        self.assertEqual(values, wanted, result)
                        self.assertEqual(result.fake_calls, unguarded.fake_calls)
                        self.assertEqual(result.err, "", result)
                    else:
                        self.assertEqual(values, ["cuInit=100"] * 3, result)
                        result.assert_untouched(self)
