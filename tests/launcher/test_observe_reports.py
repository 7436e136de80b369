# SPDX-License-Identifier: Apache-2.0
"""run --observe: the user's report, the tree's own report, foreign lines in it, and the options
that go with it."""

import json
import os
import re
import stat

from support import harness, launcher, machine, messages, observed
from support.observed import NO_ATTEMPT, OBSERVE, box


class Reports(observed.Case):
    STEPS = ["pid", "rt12.sync", "fork=f", "pid", "nv.init", "end"]

    def test_report_gets_every_record(self):
        """The records come after what was in the user's file."""
        mine = '{"v":1,"pid":1,"mine":1}\n'
        report, control = self.path("report"), self.path("control")
        for where in (["--report", report], ["--report=" + os.path.relpath(report)], []):
            env = {} if where else {"CUDAGUARD_REPORT": report}
            self.make("report", mine, 0o600)
            result = self.steps(self.STEPS, where, env=env)
            summary = self.summary(result)
            with open(report, encoding="utf-8") as stream:
                self.assertEqual(stream.readline(), mine)
                got = [json.loads(line) for line in stream]
            self.assertEqual([record["pid"] for record in got if record.get("event") == "init"],
                             [observed.pids(result)[""]])
            self.assertEqual({record["pid"] for record in got}, set(summary.order))
            # As the guard itself writes it.
            if os.path.exists(control):
                os.unlink(control)
            box.launch(["--policy", "VALIDATE", "--report", control], self.STEPS)
            different = ("ts", "pid", "ppid", "tid", "since", "argv", "caller")
            self.assertEqual(*[[{key: value for key, value in record.items()
                                 if key not in different} for record in some]
                               for some in (got, harness.records(control))])
        self.assertEqual(stat.S_IMODE(os.stat(report).st_mode), 0o600)

    def test_each_process_has_its_own_report(self):
        result = self.steps(self.STEPS, ["--report", self.path("r.%p")])
        summary = self.summary(result)
        for pid in summary.order:
            records = harness.records(self.path("r.%d" % pid))
            self.assertEqual({record["pid"] for record in records}, {pid})
        self.assertEqual(len(os.listdir(self.directory)), len(summary.order))

    def test_report_goes_to_stderr(self):
        result = self.steps(["pid", "cu.init"], ["--report", "/dev/stderr"])
        summary = self.summary(result)
        self.assertEqual(json.loads(summary.before)["pid"], observed.pids(result)[""])

    def test_failing_report_is_refused_or_reported_once(self):
        """The launcher refuses a path that cannot work at the start. If the report fails later, the
        launcher prints one message, and the summary is complete."""
        for report in (self.path("none", "x"), self.directory):
            self.refused(self.start("run", "--observe", "--report", report, "true"), 125, report)
        report = self.path("report")
        result = self.observe(["sh", "-c", "mkdir %s; %s cu.init; %s nv.init" % (
            report, box.program("open"), box.program("open"))], ["--report", report])
        summary = self.summary(result)
        accepted = messages.text("report_accepted").replace(", syslog:", "")
        self.assertEqual(summary.before, 'cudaguard: records are missing in the report "%s": Is a '
                         'directory (%s)\n' % (report, accepted))
        self.assertEqual(len(summary.order), 2)

    def test_rule_that_has_a_report_is_named(self):
        """Its records do not come to the list."""
        ask = ["python3", "-c", "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"]
        message = ("cudaguard: --observe: a rule has report=, so the records of the processes to "
                   "which it applies are missing\n" + NO_ATTEMPT)
        for rule, said in (("FORCE_CPU report=" + self.path("report"), True), ("FORCE_CPU", False)):
            done = self.start("run", "--observe", "--rule", rule, *ask)
            self.assertEqual((done.stderr == message, "1 process asked" in done.stderr),
                             (said, not said), done)
        self.assertEqual(len(harness.records(self.path("report"))), 1)

    def test_lost_record_is_named(self):
        """The guard marks the file to which it could not write."""
        for limit in "0", "unlimited":
            done = self.start("run", "--observe", "sh", "-c", "ulimit -S -f %s; %s cu.init" % (
                limit, box.program("open")), env=launcher.environment(**box.environment()))
            lost = "cudaguard: --observe: some records were not received or not written\n"
            self.assertEqual((lost + NO_ATTEMPT in done.stderr, "1 process asked" in done.stderr),
                             (limit == "0", limit != "0"), done)

    def test_private_report_is_unreadable_and_removed(self):
        """No other user can read or find the file. A process that becomes another user can write to
        the file. At the end the file is gone."""
        os.mkdir(self.path("tmp"))
        script = ('stat -c "%a %F" "$CUDAGUARD_REPORT" "${CUDAGUARD_REPORT%/*}"; '
                  'echo $CUDAGUARD_REPORT')
        for code in ("exit 3", "kill -KILL $$"):
            done = self.start("run", "--observe", "sh", "-c", "umask 0; %s; %s" % (script, code),
                              env=launcher.environment(TMPDIR=self.path("tmp")))
            lines = done.stdout.splitlines()
            self.assertEqual(lines[:2], ["622 regular empty file", "711 directory"], done)
            self.assertRegex(lines[2], "^" + re.escape(self.path("tmp")) +
                             r"/cudaguard-\w{6}/report-\w{6}\.jsonl$")
            self.assertEqual(os.listdir(self.path("tmp")), [])
        # Relative, and the program goes elsewhere; removed by the program.
        done = self.start("run", "--observe", "sh", "-c", 'cd /; echo x >>"$CUDAGUARD_REPORT"',
                          env=launcher.environment(TMPDIR="tmp"), cwd=self.directory)
        self.assertIn("records: 1 line left out", done.stderr)
        done = self.start("run", "--observe", "sh", "-c", 'rm -r "${CUDAGUARD_REPORT%/*}"',
                          env=launcher.environment(TMPDIR=self.path("tmp")))
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stderr, r"\Acudaguard: --observe: .*, which holds the records, was removed "
                         r"or changed\n" +
                         re.escape(NO_ATTEMPT) + r"\Z")
        self.assertEqual(os.listdir(self.path("tmp")), [])

    def test_umask_does_not_hide_the_private_report(self):
        machine.need("other_users")
        done = self.unguarded(*machine.AS_NOBODY, "sh", "-c",
                              'umask 777; "$0" run --observe true', self.installed())
        self.assertEqual((done.returncode, done.stderr), (0, NO_ATTEMPT), done)

    def test_nowhere_to_write(self):
        """Refused before anything is started."""
        mark = self.path("mark")
        os.mkdir(self.path("%p"))
        for directory in ("/no/such/directory", "/proc", self.path("%p")):
            done = self.start("run", "--observe", "touch", mark,
                              env=launcher.environment(TMPDIR=directory))
            self.refused(done, 125, directory, "TMPDIR")
            self.assertFalse(os.path.exists(mark))
        self.assertEqual(self.start("run", "--observe", "touch", mark).returncode, 0)
        self.assertTrue(os.path.exists(mark))


class Options(observed.Case):

    def test_program_that_cannot_start_leaves_no_file(self):
        env = launcher.environment(TMPDIR=self.directory)
        self.refused(self.start("run", "--observe", self.path("none"), env=env), 127,
                     "No such file")
        binary = self.make("binary", "MZ\0")
        done = self.start("run", "--observe", binary, env=env)
        self.assertEqual((done.returncode, done.stdout), (126, ""), done)
        self.assertIn("cannot be started: Exec format error", done.stderr)
        self.refused(self.start("run", "--observe", env=env), 125, "no program")
        # Only execve reports that a process has the file open for writing.
        program = self.copied("exits_7", "busy")
        self.assertEqual(self.start("run", "--observe", program, env=env).returncode, 7)
        left = sorted(os.listdir(self.directory))
        with open(program, "ab"):
            done = self.start("run", "--observe", program, env=env)
        self.refused(done, 126, "cannot be started", "busy")
        self.assertEqual(sorted(os.listdir(self.directory)), left)

    def test_print_shows_the_variables_and_makes_no_file(self):
        env = launcher.environment(TMPDIR=self.directory)
        done = self.start("run", "--observe", "--print", "touch", self.path("mark"), env=env)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.splitlines(), [
            "export CUDAGUARD_POLICY=VALIDATE", "export CUDAGUARD_ROOT=$$",
            "export CUDAGUARD_LOG=error", "export CUDAGUARD_PRESETS=",
            "export ASAN_OPTIONS='verify_asan_link_order=0'",
            "export LD_PRELOAD=" + harness.GUARD])
        self.assertEqual(os.listdir(self.directory), [])

    def test_first_process_is_the_program_and_not_the_launcher(self):
        """CUDAGUARD_ROOT may have named the launcher's process before."""
        show = "echo $$ ${CUDAGUARD_ROOT%%:*} $PPID"
        done = self.unguarded("sh", "-c",
                              'CUDAGUARD_CHILDREN=FORCE_CPU CUDAGUARD_ROOT=$$ exec "$@"',
                              "sh", *OBSERVE, "sh", "-c", show)
        self.assertEqual(done.stdout.split()[0], done.stdout.split()[1], done)
        done = self.unguarded("env", "CUDAGUARD_CHILDREN=FORCE_CPU", "CUDAGUARD_ROOT=77", *OBSERVE,
                              "sh", "-c", show)
        self.assertEqual(done.stdout.split()[1], "77", done)

    def test_summary_goes_to_standard_error_alone(self):
        out = self.path("out")
        script = '"$@" 2>&- >"$0"; echo $?; "$@" >&- <&- 2>&-; echo $?; "$@" >&- <&-; echo $?'
        result = box.start(["sh", "-c", script, out] + OBSERVE + [box.program("open"), "cu.init"])
        self.assertEqual(result.out, "0\n0\n0\n", result)
        self.assertEqual(len(observed.TOTALS.findall(result.err)), 1, result)
        self.assertEqual(harness.read(out), "cu.init=0\n")
