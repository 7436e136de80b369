# SPDX-License-Identifier: Apache-2.0
"""Bad input makes one clear message and exit code 125 to 127. Nothing is started or overwritten,
and nothing crashes."""

import os
import stat

from support import harness, launcher


class CommandLine(launcher.Case):
    def check(self, words, *meaning, **more):
        """Nothing is started: the program would leave a file."""
        mark = self.path("mark")
        done = self.start(*words, "touch", mark, **more)
        self.refused(done, 125, *meaning)
        self.assertFalse(os.path.exists(mark))

    def test_control_run_starts_the_program(self):
        self.start("run", "touch", self.path("mark"))
        self.assertTrue(os.path.exists(self.path("mark")))

    def test_bad_words_are_refused(self):
        """The list has one of each kind. tests/unit has all (options_test, environment_test)."""
        for words, meaning in (
                (["--bad", "run"], "unknown option"), (["walk"], "unknown command"),
                (["run", "--gpu", "1"], '"--gpu"'), (["run", "--cpu=1"], "takes no value"),
                (["run", "--cpu", "--gpus", "1"], "contradict"),
                (["run", "--gpus", "a\x1b[31m\nb"], '"a?[31m?b"')):
            with self.subTest(words=words):
                self.check(words, meaning)
        for words in (["help", "walk"], ["run", "--"], ["run", "--gpus"]):
            with self.subTest(words=words):
                self.refused(self.start(*words), 125)

    def test_bad_lists_of_gpus_are_refused(self):
        for text, meaning in (("1,1", "repeats"), ("-1,0", "negative"),
                              (",".join(map(str, range(65))), "one too many")):
            with self.subTest(list=text[:40]):
                self.check(["run", "--gpus", text], "--gpus", meaning)
                self.check(["run"], "CUDAGUARD_VISIBLE_DEVICES=", meaning,
                           env=launcher.environment(CUDAGUARD_VISIBLE_DEVICES=text))
        for text in ("0", "MIG-2,GPU-1", "-1", "", " "):
            with self.subTest(good=text):
                self.assertEqual(self.start("run", "--gpus", text, "true").returncode, 0)

    def test_bad_variables_are_refused(self):
        for name, value in (("POLICY", "nonsense"), ("LOG", "x"), ("CHILDREN", "GPU"),
                            ("REPORT", "x" * 4096), ("REPORT", "/nonexistent/report")):
            with self.subTest(name=name, value=value[:20]):
                env = launcher.environment(CUDAGUARD_VISIBLE_DEVICES="1")
                env["CUDAGUARD_" + name] = value
                self.check(["run"], "CUDAGUARD_" + name, env=env)
        env = launcher.environment(CUDAGUARD_VISIBLE_DEVICES="1", CUDAGUARD_CHILDREN="FORCE_CPU",
                                   CUDAGUARD_ROOT="-1")
        self.check(["run"], "CUDAGUARD_ROOT", "a process id", env=env)


class Reports(launcher.Case):
    def check(self, report, meaning, program="true", **more):
        self.refused(self.start("run", "--report", report, program, **more), 125, meaning)

    def test_unusable_report_is_refused_and_no_file_is_made(self):
        os.mkdir(self.path("directory"))
        os.symlink("nowhere", self.path("link"))
        kept = '{"v":1,"kept":1}\n'
        self.make("file", kept, 0o644)
        os.symlink("file", self.path("link2"))
        before = sorted(os.listdir(self.directory))
        self.check(self.path("directory"), "Is a directory")
        self.check(self.path("directory/"), "Is a directory")
        self.check(self.path("missing", "report"), "No such file or directory")
        self.check(self.path("file", "report"), "Not a directory")
        self.check(self.path("link"), "symbolic link")
        self.check(self.path("link2"), "symbolic link")
        self.check("x" * 5000, "4095 bytes")
        self.assertEqual(sorted(os.listdir(self.directory)), before)
        for good in ("file", "new", "new.%p"):
            self.assertEqual(self.start("run", "--report", self.path(good), "true").returncode, 0)
        with open(self.path("file"), encoding="utf-8") as stream:
            self.assertEqual(stream.read(), kept)
        self.assertEqual(sorted(os.listdir(self.directory)), before, "a file was made for nothing")

    def test_check_of_the_report_keeps_a_pipes_reader(self):
        """The check must not end the data that a reader gets."""
        os.mkfifo(self.path("pipe"))
        reader = os.open(self.path("pipe"), os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        done = self.start("run", "--report", self.path("pipe"), "python3", "-c",
                          "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)")
        self.assertEqual(done.returncode, 0, done)
        self.assertTrue(os.read(reader, 65536).startswith(b'{"v":1,'))

    def test_report_that_is_the_programs_own_file_is_refused(self):
        script = self.make("script", "#!/bin/sh\necho started\n")
        program = self.copied("exits_0")
        for report in (script, self.path(".", "script")):
            self.check(report, "the program's own file", script)
        self.check(program, "the program's own file", program)
        os.link(script, self.path("twin"))
        for report in (script, self.path("twin")):
            self.check(report, "hard link", script)
        done = self.start("run", "--report=" + script, script,
                          env=launcher.environment(CUDAGUARD_LOG="all"))
        self.refused(done, 125)
        with open(script, encoding="utf-8") as stream:
            self.assertEqual(stream.read(), "#!/bin/sh\necho started\n")


class Programs(launcher.Case):
    def check(self, code, name, *meaning, **more):
        self.refused(self.start("run", name, **more), code, *meaning)

    def test_missing_program_exits_with_127(self):
        os.symlink("nowhere", self.path("link"))
        for name in ("no-such-program", self.path("none"), "./none", self.path("link"),
                     self.path("a", "b"), ""):
            with self.subTest(name=name):
                self.check(127, name, "No such file")
        self.check(127, "sh", "No such file", env={"PATH": self.directory})
        self.assertEqual(self.start("run", "sh", "-c", "exit 7", env={}).returncode, 7)

    def test_program_that_is_not_executable_exits_with_126(self):
        self.make("plain", "#!/bin/sh\n", 0o644)
        self.check(126, self.path("plain"), "not executable")
        self.check(126, self.directory, "Is a directory")
        self.check(126, "plain", "not executable", env={"PATH": self.directory})
        self.check(126, "/dev/null", "not executable")
        os.mkfifo(self.path("pipe"), 0o755)
        os.chmod(self.path("pipe"), 0o755)
        self.check(126, self.path("pipe"), "not executable")
        self.check(126, ".", "Is a directory")
        # A directory of that name in PATH is not the program.
        os.mkdir(self.path("sh"))
        env = {"PATH": self.directory + ":" + os.environ["PATH"]}
        self.assertEqual(self.start("run", "sh", "-c", "exit 7", env=env).returncode, 7)

    def test_script_with_a_bad_interpreter_is_refused(self):
        for text, code, meaning in (
                ("#!/no/interpreter\n", 127, "the interpreter of"),
                ("#!relative\n", 127, '"relative": No such file'),
                ("#!/usr/bin/env no-such-program\n", 127, "no-such-program"),
                ("#!/tmp\n", 126, "Is a directory"), ("#!/etc/passwd\n", 126, "not executable"),
                ("#!" + "x" * 5000, 127, "No such file"), (b"\0" * 300, 126, "neither"),
                (b"#!\0/bin/sh\n", 126, "neither"), (b"MZ\x90\0", 126, "neither")):
            with self.subTest(text=text[:30]):
                self.check(code, self.make("script", text), meaning)
        for text in ("#!/bin/sh\nexit 7\n", "#! /bin/sh -e\nexit 7\n", "#!\t/bin/sh\t\nexit 7",
                     "#!/usr/bin/env sh\nexit 7\n", "#!/usr/bin/env -S A=b sh -e\nexit 7\n"):
            with self.subTest(good=text):
                script = self.make("script", text)
                self.assertEqual(self.unguarded(script).returncode, 7)
                done = self.start("run", script)
                self.assertEqual((done.returncode, done.stderr), (7, ""))

    def test_chain_of_scripts_has_the_kernels_limit(self):
        """Each script is the interpreter of the next. A loop has no end."""
        previous = "/bin/sh"
        for i in range(8):
            previous = self.make("s%d" % i, "#!%s\nexit 7\n" % previous)
        for i in range(8):
            unguarded = self.unguarded("env", self.path("s%d" % i))
            done = self.start("run", self.path("s%d" % i))
            self.assertEqual(done.returncode == 126, unguarded.returncode == 126,
                             (i, unguarded, done))
        self.check(126, self.path("s7"), "more than 5 scripts")
        self.make("loop", "#!%s\n" % self.path("loop"))
        self.check(126, self.path("loop"), "more than 5 scripts")
        self.make("env", "#!/usr/bin/env loop2\n")
        os.symlink("env", self.path("loop2"))
        self.check(126, "loop2", "more than 5 scripts",
                   env={"PATH": self.directory + ":" + os.environ["PATH"]})

    def test_missing_ld_so_exits_with_127(self):
        program = launcher.program("missing_loader")
        self.check(127, program, "the interpreter of", "/no/ld.so")

    def test_truncated_program_is_not_started(self):
        """launcher.elf_fuzz cuts a program anywhere."""
        with open(harness.program("entry_point"), "rb") as stream:
            whole = stream.read()
        for size in (4, 63, 64, 120, 1000, 8999):
            with self.subTest(size=size):
                done = self.start("run", self.make("cut", whole[:size]))
                self.refused(done, 126)
        done = self.start("run", self.make("cut", whole), "no-such-way")
        self.assertNotEqual(done.stderr[:11], "cudaguard: ", done)

    def test_unreadable_program_is_refused(self):
        """The launcher cannot know whether such a program can be guarded."""
        if os.geteuid() != 0:
            harness.skip(self, "needs root to become an ordinary user")
        self.need("setpriv")
        program = self.copied("exits_7")
        as_nobody = ["setpriv", "--reuid=65534", "--clear-groups"]
        self.assertEqual(self.unguarded(*as_nobody, program).returncode, 7)
        os.chmod(program, stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        self.assertEqual(self.unguarded(*as_nobody, program).returncode, 7)
        self.refused(self.unguarded(*as_nobody, self.installed(), "run", program), 125,
                     "cannot be read")
