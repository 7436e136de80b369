# SPDX-License-Identifier: Apache-2.0
"""Where --report may point: nothing that is something else is appended to. And two things that are
said rather than left to be found out: OFF in the environment, output that cannot be written."""

import os

from support import launcher

TOUCH = 'import ctypes; print(ctypes.CDLL("libcuda.so.1").cuInit(0))'


def read(path):
    with open(path, "rb") as stream:
        return stream.read()


class Reports(launcher.Case):
    def test_other_things(self):
        """A script that an interpreter is given, a library, a note: refused, and left as they are."""
        script = self.make("script.py", "print(1)\n", 0o644)
        note = self.make("note", "\n", 0o644)
        package = self.make("package.json", '{"name":"mine"}\n', 0o644)
        cut = self.make("cut", '{"v":1,"pid":1}\n{"v":1', 0o644)
        guard = os.path.join(os.path.dirname(os.path.dirname(self.installed())), "lib",
                             "libcudaguard.so")
        for path in (script, note, package, cut, guard):
            before = read(path)
            for env, options, name in ((launcher.environment(), ["--report", path], "--report"),
                                       (launcher.environment(CUDAGUARD_REPORT=path), [],
                                        "CUDAGUARD_REPORT")):
                done = self.start("run", *options, "python3", script, env=env)
                self.refused(done, 125, name, path, "something else in it", "accepted: a new file")
                self.assertEqual(read(path), before)

    def test_records(self):
        """A new file, an empty one and one of records are good."""
        for before in (None, ""):
            report = self.path("report%s" % before)
            if before is not None:
                self.make(os.path.basename(report), before, 0o644)
            for count in (1, 2):
                done = self.start("run", "--report", report, "python3", "-c", TOUCH)
                self.assertEqual((done.returncode, done.stdout), (0, "100\n"), done)
                self.assertEqual(read(report).count(b"\n"), count)

    def test_where_no_file_can_be_made(self):
        for path in ("/proc/report", "/sys/report"):
            done = self.start("run", "--report", path, "true")
            self.refused(done, 125, path, "permission denied")


class Said(launcher.Case):
    def test_off_in_the_environment(self):
        env = launcher.environment(CUDAGUARD_POLICY="off")
        done = self.start("run", "true", env=env)
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"\Acudaguard: CUDAGUARD_POLICY=OFF .*--cpu overrides it.*\n\Z")
        for options in (["--cpu"], ["--policy", "OFF"]):
            self.assertEqual(self.start("run", *options, "true", env=env).stderr, "")

    def test_output_that_cannot_be_written(self):
        for words in (["--help"], ["--version"], ["run", "--print"]):
            for where in (">/dev/full", ">&-"):
                done = self.bare("sh", "-c", '"$0" "$@" ' + where, launcher.LAUNCHER, *words)
                self.refused(done, 125, "cannot print")
