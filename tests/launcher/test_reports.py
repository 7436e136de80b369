# SPDX-License-Identifier: Apache-2.0
"""Where --report may point, and which users may write there. Also the launcher's warnings: OFF in
the environment, output that cannot be written, and how --log=off silences them."""

import os

import pytest

from support import fixtures, harness, launcher, machine, messages, recorded

ATTEMPT = 'import ctypes; print(ctypes.CDLL("libcuda.so.1").cuInit(0))'


class Reports(launcher.Case):
    def test_file_with_other_contents_is_refused_and_kept(self):
        """Such a file is a script that an interpreter is given, a library or a note."""
        script = self.make("script.py", "print(1)\n", 0o644)
        note = self.make("note", "\n", 0o644)
        package = self.make("package.json", '{"name":"mine"}\n', 0o644)
        cut = self.make("cut", '{"v":1,"pid":1}\n{"v":1', 0o644)
        guard = os.path.join(os.path.dirname(os.path.dirname(self.installed())), "lib",
                             "libcudaguard.so")
        for path in (script, note, package, cut, guard):
            before = harness.bytes_of(path)
            for env, options, name in ((launcher.environment(), ["--report", path], "--report"),
                                       (launcher.environment(CUDAGUARD_REPORT=path), [],
                                        "CUDAGUARD_REPORT")):
                done = self.start("run", *options, "python3", script, env=env)
                self.refused(done, 125, name, path, "the file has other contents", "accepted: a new file")
                self.assertEqual(harness.bytes_of(path), before)

    def test_new_file_empty_file_and_records_are_accepted(self):
        for before in (None, ""):
            report = self.path("report%s" % before)
            if before is not None:
                self.make(os.path.basename(report), before, 0o644)
            for count in (1, 2):
                done = self.start("run", "--report", report, "python3", "-c", ATTEMPT)
                self.assertEqual((done.returncode, done.stdout), (0, "100\n"), done)
                self.assertEqual(harness.bytes_of(report).count(b"\n"), count)

    def test_report_that_cannot_be_made_prints_a_message(self):
        for path in ("/proc/report", "/sys/report"):
            done = self.start("run", "--report", path, "python3", "-c", ATTEMPT)
            self.assertEqual((done.returncode, done.stdout), (0, "100\n"), done)
            self.assertIn(NOT_RECORDED % ("--report ", path), done.stderr)


FORBIDDEN = "; " + messages.text("report_remedy")
NOT_RECORDED = 'cudaguard: %s"%s": Permission denied' + FORBIDDEN + "; nothing is recorded\n"


class AnothersReport(launcher.Case):
    """A report that this user may not write: the program starts, and nothing is recorded."""

    def setUp(self):
        super().setUp()
        machine.need("other_users")
        self.need("setpriv")
        self.command = self.installed()
        self.report = self.make("report", "", 0o644)

    def as_nobody(self, *words, **more):
        return self.unguarded(*machine.AS_NOBODY, self.command, *words, **more)

    def test_the_owner_is_recorded(self):
        """The control."""
        done = self.start("run", "--report", self.report, "python3", "-c", ATTEMPT)
        self.assertEqual(len(done.stderr.splitlines()), 1, done)
        self.assertEqual(len(harness.records(self.report)), 1)

    def spool(self):
        """A spool directory's path, without the slash."""
        os.mkdir(self.path("spool"))
        os.chmod(self.path("spool"), 0o1733)
        return self.path("spool")

    def test_strict_refuses_a_report_that_takes_no_record(self):
        done = self.as_nobody("run", "--strict", "--report", self.report, "true")
        self.refused(done, 125, "--report", "Permission denied")
        spool = self.path("spool") + "/"
        asked = {"--report ": ["--report", spool], "report=": ["--rule", "FORCE_CPU report=" + spool]}
        for mode, error in ((None, "No such file or directory"), (0o755, "Permission denied"),
                            (0o777, "others could replace files in this directory"),
                            (0o1733, "")):
            if mode is not None:
                os.makedirs(spool, exist_ok=True)
                os.chmod(spool, mode)
            for name, options in asked.items():
                done = self.as_nobody("run", "--strict", *options, "echo", "started")
                message = 'cudaguard: %s"%s": %s' + (
                    " (%s)" % messages.text("report_accepted")
                    if mode is None else FORBIDDEN) + "\n"
                self.assertEqual((done.returncode, done.stdout, done.stderr),
                                 (125, "", message % (name, spool, error)) if error else
                                 (0, "started\n", ""), done)

    def test_verify_and_observe_give_their_result(self):
        env = launcher.environment(CUDAGUARD_REPORT=self.report, TMPDIR="/tmp")
        done = self.as_nobody("verify", "--", "true", env=env)
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("PASS: no CUDA use (1 process checked)\n", done.stderr)
        done = self.as_nobody("run", "--observe", "--cpu", "python3", "-c", ATTEMPT, env=env)
        self.assertIn("1 process asked: 1 refused", done.stderr)
        self.assertEqual(done.stderr.count("nothing is recorded"), 1)

    def test_shared_directory_works_for_every_user(self):
        """What docs/records.md advises: one directory, and a name for each host and user."""
        os.mkdir(self.path("records"))
        os.chmod(self.path("records"), 0o1777)
        env = launcher.environment(CUDAGUARD_REPORT=self.path("records", "%h-%u.jsonl"))
        for start in (self.start, self.as_nobody):
            for _ in range(2):
                done = start("run", "python3", "-c", ATTEMPT, env=env)
                self.assertEqual(done.returncode, 0, done)
        host = os.uname().nodename
        names = ["%s-0.jsonl" % host, "%s-65534.jsonl" % host]
        self.assertEqual(sorted(os.listdir(self.path("records"))), sorted(names))
        for name in names:
            self.assertEqual(len(harness.records(self.path("records", name))), 2)

    def test_each_command_writes_to_a_spool_directory(self):
        """The guard writes the records of `run`, the launcher those of the others."""
        spool = self.spool()
        ask = ["python3", "-c", ATTEMPT]
        for count, words in enumerate((["run"], ["run", "--observe", "--cpu"], ["verify"],
                                       ["run", "--if-healthy=1", "true"]), 1):
            for start, user in ((self.start, 0), (self.as_nobody, 65534)):
                done = start(words[0], "--report", spool + "/", *words[1:], *ask,
                             env=launcher.environment(TMPDIR="/tmp"))
                names = [name for name in os.listdir(spool) if name.startswith("%d-" % user)]
                self.assertEqual(len(names), 1, done)
                status = os.stat(os.path.join(spool, names[0]))
                self.assertEqual((status.st_uid, status.st_mode & 0o777), (user, 0o600))
                records = [one for one in harness.records(os.path.join(spool, names[0]))
                           if one.get("api") == "cuInit" or one.get("event") == "health"]
                self.assertEqual(len(records), count, done)
        self.assertEqual(len(os.listdir(spool)), 2)

    def test_planted_file_in_a_spool_is_not_written_to(self):
        ask = ["--", "python3", "-c", ATTEMPT]
        spool = self.spool() + "/"
        done = self.start("verify", "--report", spool, *ask)
        self.assertEqual(done.returncode, 1, done)  # the control
        (name,) = os.listdir(spool)
        path = spool + name
        os.truncate(path, 0)
        os.chown(path, 65534, 65534)
        for words, rc in ((["verify"], 1), (["run"], 0), (["run", "--observe", "--cpu"], 0)):
            done = self.start(words[0], "--report", spool, *words[1:], *ask)
            self.assertEqual(done.returncode, rc, done)
            self.assertIn("the file belongs to another user", done.stderr)
            self.assertEqual(os.path.getsize(path), 0)
        # At the last moment: the looks at the file before it is opened find none.
        self.need("strace")
        done = self.unguarded("strace", "-o", self.path("trace"), "-P", path, "-e",
                              "inject=newfstatat:error=ENOENT:when=1..4", launcher.LAUNCHER,
                              "verify", "--report", spool, *ask)
        self.assertEqual(harness.read(self.path("trace")).count("INJECTED"), 4)
        self.assertEqual(os.path.getsize(path), 0, done)
        self.assertIn("the file belongs to another user", done.stderr)

    def test_syslog_is_for_run_alone(self):
        for words in (["verify"], ["run", "--observe"]):
            done = self.start(words[0], "--report", "syslog:", *words[1:], "true")
            self.refused(done, 125, "--report", "syslog:", "writes to files only", "name a file")
            done = self.start(*words, "true", env=launcher.environment(CUDAGUARD_REPORT="syslog:"))
            self.assertEqual(done.returncode, 0, done)
            self.assertIn("writes to files only; nothing is recorded", done.stderr)
        done = self.start("run", "--report", "syslog:", "--print")
        self.assertIn("CUDAGUARD_REPORT=syslog:\n", done.stdout)

    def test_report_named_like_the_standard_output_is_refused(self):
        for words, syslog in ((["run"], True), (["run", "--observe"], False), (["verify"], False)):
            done = self.start(words[0], "--report", "-", *words[1:], "true", cwd=self.directory)
            self.refused(done, 125, '--report "-" is not accepted (accepted: a file (of that name: '
                         "./-), DIRECTORY/")
            self.assertEqual("syslog:" in done.stderr, syslog, done)
            self.assertFalse(os.path.exists(self.path("-")))
        done = self.start("verify", "--report", "./-", "python3", "-c", ATTEMPT, cwd=self.directory)
        self.assertEqual((done.returncode, os.path.exists(self.path("-"))), (1, True), done)

    def test_observe_and_verify_use_the_same_names(self):
        for words in (["verify", "--"], ["run", "--observe", "--cpu"]):
            report = self.path("r-%s-%%h-%%u-%%p" % words[0])
            self.start(words[0], "--report", report, *words[1:], "python3", "-c", ATTEMPT)
            names = [name for name in os.listdir(self.directory) if name.startswith("r-" + words[0])]
            self.assertEqual(len(names), 1, names)
            record = [one for one in harness.records(self.path(names[0])) if "api" in one][0]
            self.assertEqual(names[0], "r-%s-%s-0-%d" % (words[0], record["host"], record["pid"]))


make_reports = fixtures.lent("reports", AnothersReport)


@pytest.mark.parametrize("file", ["report", "new"])
@pytest.mark.parametrize("name", ["--report ", "CUDAGUARD_REPORT="])
def test_run_prints_one_message_and_starts_the_program(reports, file, name):
    path = reports.path(file)
    options = ["--report", path] if name == "--report " else []
    env = launcher.environment(CUDAGUARD_REPORT=None if options else path)
    script = 'python3 -c "$0"; python3 -c "$0"; echo "${CUDAGUARD_REPORT-unset}"'
    done = reports.as_nobody("run", *options, "sh", "-c", script, ATTEMPT, env=env)
    assert (done.returncode, done.stdout) == (0, "100\n100\nunset\n"), str(done)
    first, *guards = done.stderr.splitlines()
    assert first + "\n" == NOT_RECORDED % (name, path)
    assert len(guards) == 2, str(done)
    assert os.path.getsize(reports.report) == 0


class Warnings(launcher.Case):
    def test_off_in_the_environment_prints_a_warning(self):
        env = launcher.environment(CUDAGUARD_POLICY="off")
        done = self.start("run", "true", env=env)
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"\Acudaguard: CUDAGUARD_POLICY=OFF .*--cpu overrides it.*\n\Z")
        for options in (["--cpu"], ["--policy", "OFF"]):
            self.assertEqual(self.start("run", *options, "true", env=env).stderr, "")

    def test_log_off_silences_warnings(self):
        """The control: without it each prints a line."""
        static = launcher.program("static_7")
        off = launcher.environment(CUDAGUARD_POLICY="OFF")
        cases = [(["run", static], None), (["run", "sh", "-c", "exit 7"], off),
                 (["run", "--report", "/proc/report", "sh", "-c", "exit 7"], None)]
        for (command, *words), env in cases:
            env = env or launcher.environment()
            self.assertNotEqual(self.start(command, *words, env=env).stderr, "", words)
            done = self.start(command, "--log=off", *words, env=env)
            self.assertEqual((done.returncode, done.stderr), (7, ""), words)
            done = self.start(command, *words, env={**env, "CUDAGUARD_LOG": "off"})
            self.assertEqual((done.returncode, done.stderr), (7, ""), words)

    def test_log_off_keeps_errors(self):
        for words, code in ((["none"], 127), (["--gpus=x", "true"], 125)):
            self.refused(self.start("run", "--log=off", *words), code)

    def test_output_that_cannot_be_written_is_an_error(self):
        records = self.make("r.jsonl", recorded.text(recorded.line()), 0o644)
        for words, what in ((["--help"], "cannot print"), (["--version"], "cannot print"),
                            (["run", "--print"], "cannot print"), (["doctor"], "cannot print"),
                            (["report", records], "cannot print"),
                            (["report", "--json", "-", records], '--json "-"')):
            for where, why in ((">/dev/full", "No space left on device"),
                               (">&-", "Bad file descriptor")):
                done = self.unguarded("sh", "-c", '"$0" "$@" ' + where, launcher.LAUNCHER, *words)
                self.refused(done, 125, what, why)
