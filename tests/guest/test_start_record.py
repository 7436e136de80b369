# SPDX-License-Identifier: Apache-2.0
"""With CUDAGUARD_HELLO=1, every guarded process makes one start record before its main. Nothing
else is different."""

import json
import os
import re
import subprocess

from support import guest, harness


class StartRecord(guest.Case):
    def shell(self, script, guard=True, **env):
        """The records of a shell script, by a report of its own."""
        report = self.path("report.%d" % len(os.listdir(self.directory)))
        result = harness.run(["/bin/sh", "-c", script, "sh", guest.STEPS], guard=guard,
                             env={"CUDAGUARD_REPORT": report, "CUDAGUARD_HELLO": "1", **env})
        return result, harness.records(report)

    def test_each_exec_makes_one_start_record(self):
        result, records = self.shell('/bin/true; (/bin/true); "$1" fork print:x end; exec /bin/echo')
        self.assertEqual(result.rc, 0, result)
        self.assertEqual([record["event"] for record in records], ["start"] * 5)
        # A fork gives none, an exec does, in the same process too.
        self.assertEqual([os.path.basename(record["argv"][0]) for record in records],
                         ["sh", "true", "true", "steps", "echo"])
        self.assertEqual(records[0]["pid"], records[-1]["pid"])
        self.assertEqual({record["ppid"] for record in records[1:3]} - {records[0]["pid"]}, set())
        for record in records:
            self.assertEqual(record["policy"], "FORCE_CPU")
            self.assertEqual(record["pid"], record["tid"])
            self.assertNotIn("api", record)

    def test_records_have_the_user_the_job_and_the_host(self):
        with open("/proc/sys/kernel/hostname", encoding="utf-8") as stream:
            host = stream.read()[:-1]
        with open("/proc/self/cgroup", encoding="utf-8") as stream:
            groups = [line.split(":", 2)[2] for line in stream.read().splitlines()]
        for job in ("1234", None):
            _, records = self.shell('"$1" ask', SLURM_JOB_ID=job)
            self.assertEqual([record.get("event") for record in records], ["start", "start", None])
            for record in records:
                self.assertEqual(record["uid"], os.geteuid())
                self.assertEqual(record.get("slurm"), job)
            # To find these out would take as long as all else at a start.
            for record in records[:2]:
                self.assertEqual((record["host"], record["cgroup"]), ("", ""))
            for record in records[2:]:
                self.assertEqual(record["host"], host)
                self.assertIn(record["cgroup"], groups)
                self.assertEqual(len(record["cgroup"]), max(map(len, groups)))

    def test_record_has_the_effective_user(self):
        """The program gives up its rights before the attempt."""
        if os.geteuid() != 0:
            harness.skip(self, "needs root")
        report = self.path("report")
        os.chmod(self.directory, 0o777)
        env = {"CUDAGUARD_REPORT": report, "LD_PRELOAD": harness.GUARD, "CUDAGUARD_LOG": "off"}
        program = ("import ctypes, os; os.seteuid(4711); ctypes.CDLL('libcuda.so.1').cuInit(0)")
        subprocess.run([guest.PYTHON, "-c", program], env=env, check=True)
        self.assertEqual([record["uid"] for record in harness.records(report)], [4711])

    def test_guard_that_is_loaded_late_records_the_arguments(self):
        """The arguments still lie where the kernel put them; the variables may not."""
        report = self.path("report")
        program = "import ctypes, os; os.environ['FIRST'] = '2'; ctypes.CDLL(%r)" % harness.GUARD
        words = [guest.PYTHON, "-c", program]
        env = {"FIRST": "1", "CUDAGUARD_REPORT": report, "CUDAGUARD_HELLO": "1"}
        self.assertEqual(subprocess.run(words, env=env, check=False).returncode, 0)
        record, = harness.records(report)
        self.assertEqual(record["argv"], words)

    def test_start_record_needs_its_variable(self):
        for env in ({"CUDAGUARD_HELLO": None}, {"CUDAGUARD_HELLO": ""}, {"CUDAGUARD_HELLO": "0"},
                    {"CUDAGUARD_HELLO": "11"}, {"CUDAGUARD_REPORT": None}):
            with self.subTest(env):
                result, records = self.shell("/bin/true", **env)
                self.assertEqual((result.rc, result.err, records), (0, "", []))
        # The control: with the variable there are records, and without the guard there are none.
        self.assertEqual(len(self.shell("/bin/true")[1]), 2)
        self.assertEqual(self.shell("/bin/true", guard=False)[1], [])

    def test_start_record_has_the_policy(self):
        for policy, env in (
                ("OFF", {"CUDAGUARD_POLICY": "OFF"}), ("CLAMP", {"CUDAGUARD_POLICY": "clamp"}),
                ("VALIDATE", {"CUDAGUARD_VISIBLE_DEVICES": "0"}),
                ("FORCE_CPU", {"CUDAGUARD_POLICY": "nonsense"}),
                ("FORCE_CPU", {"CUDAGUARD_POLICY": "VALIDATE", "CUDAGUARD_CHILDREN": "FORCE_CPU",
                               "CUDAGUARD_ROOT": "1"})):
            with self.subTest(env):
                result, records = self.shell("/bin/true", **env)
                self.assertEqual([record["policy"] for record in records], [policy] * 2)
                # A value that is wrong is complained about where it would be without.
                self.assertEqual((result.rc, result.err), (0, ""))

    def test_start_record_changes_no_answer(self):
        for policy, steps, reached in (("OFF", ["ask"], True), (None, ["ask"], False),
                                       (None, ["setenv:CUDAGUARD_POLICY=OFF", "ask"], False),
                                       (None, ["fork", "ask", "end", "ask"], False)):
            with self.subTest(policy=policy, steps=steps):
                outcomes = []
                for hello in (None, "1"):
                    report = self.path("settled")
                    result = self.steps(*steps, env={"CUDAGUARD_HELLO": hello,
                                                     "CUDAGUARD_POLICY": policy,
                                                     "CUDAGUARD_REPORT": report})
                    # The kernel's numbers differ; lines, order and answers do not.
                    records = [{key: record.get(key) for key in ("event", "api", "decision")}
                               for record in harness.records(report)]
                    if hello:
                        self.assertEqual(records.pop(0)["event"], "start")
                    out = re.sub(r"child=\d+", "child=", result.out)
                    outcomes.append((result.rc, out, guest.lines_of(result.err), records,
                                     result.init_calls()))
                    if os.path.exists(report):
                        os.unlink(report)
                self.assertEqual(outcomes[0], outcomes[1])
                self.assertEqual(bool(outcomes[1][-1]), reached, outcomes[1])

    def test_failing_report_is_named_at_the_first_attempt(self):
        """The guard prints the one message at the first attempt, also without CUDAGUARD_HELLO."""
        env = {"CUDAGUARD_REPORT": "/no/such/directory/report", "CUDAGUARD_HELLO": "1"}
        self.assertEqual(self.steps("print:x", env=env).err, "")
        messages = guest.lines_of(self.steps("ask", env=env).err)
        self.assertEqual(len(messages), 2, messages)
        self.assertIn("No such file or directory", messages[1])

    def test_start_record_goes_to_stderr(self):
        result = self.steps("print:x", env={"CUDAGUARD_REPORT": "/dev/stderr",
                                            "CUDAGUARD_HELLO": "1"})
        self.assertEqual(json.loads(result.err)["event"], "start", result)

    def test_start_record_adds_only_documented_system_calls(self):
        """Without the variable the guard makes no system call. With the variable it makes those
        that docs/limits.md lists for a report."""
        def calls(**env):
            log = self.path("strace")
            words = ["%s=%s" % item for item in env.items()]
            subprocess.run(["strace", "-qq", "-o", log, "--", "env", "-i", *words, "/bin/true"],
                           check=True)
            with open(log, encoding="utf-8") as stream:
                text = stream.read()
            return [line.split("(")[0] for line in text.splitlines()]

        report = self.path("traced")
        plain = calls(LD_PRELOAD=harness.GUARD)  # nothing beyond its mapping: test_silent.py
        self.assertEqual(calls(LD_PRELOAD=harness.GUARD, CUDAGUARD_REPORT=report), plain)
        self.assertFalse(os.path.exists(report))
        hello = calls(LD_PRELOAD=harness.GUARD, CUDAGUARD_REPORT=report, CUDAGUARD_HELLO="1")
        self.assertEqual(len(harness.records(report)), 1)
        listed = {"openat", "newfstatat", "read", "close", "mmap", "mprotect", "write", "getpid",
                  "fstat", "fcntl", "munmap", "getppid", "gettid", "clock_gettime", "readlinkat",
                  "rt_sigprocmask", "rt_sigtimedwait"}
        self.assertGreater(len(hello), len(plain))
        self.assertLessEqual(set(hello) - set(plain), listed)
