# SPDX-License-Identifier: Apache-2.0
"""Which file is started: as a shell finds it. Each case is put to bash too, and has the same exit
code and the same output. Only bash 5.3 has 126 for an interpreter that is missing, where env and
older releases have 127."""

import os
import shutil

import pytest

from support import fixtures, harness, launcher

INTERPRETER_IS_MISSING = ("./no-interpreter", "./relative", "./to-none")
SHOW = "#!/bin/sh\necho \"$0 $*\"\nexit 7\n"


class Case(launcher.Case):
    def setUp(self):
        super().setUp()
        self.need("bash")
        self.bash = shutil.which("bash")

    def by_bash(self, words, env):
        return self.unguarded(self.bash, "-c", '"$@"', "bash", *words, env=env, cwd=self.directory)

    def same(self, *words, code, path=None):
        """Bash ends with `code`, and so does the launcher; path: PATH, or as it is."""
        env = launcher.environment(**({} if path is None else {"PATH": path}))
        wanted = self.by_bash(words, env)
        accepted = (126, 127) if words[0] in INTERPRETER_IS_MISSING else (code,)
        self.assertIn(wanted.returncode, accepted, wanted)
        done = self.start("run", *words, env=env, cwd=self.directory)
        self.assertEqual((done.returncode, done.stdout), (code, wanted.stdout), done)
        if code in (126, 127):
            self.refused(done, code)
        else:
            self.assertEqual(done.stderr, "")


class Codes(Case):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("directory"))
        os.symlink("nowhere", self.path("dangling"))
        os.symlink("cycle", self.path("cycle"))
        self.make("plain", SHOW, 0o644)
        self.make("cut", b"\x7fELF")
        with open(harness.program("entry_point"), "rb") as stream:
            self.make("cut600", stream.read(600))
        for name, first in (("no-interpreter", "/no/interpreter"), ("relative", "relative-not"),
                            ("a-directory", "/tmp"), ("a-file", "/etc/passwd"),
                            ("env", "/usr/bin/env no"), ("loop", "./loop"), ("to-plain", "./plain"),
                            ("to-none", "./none-elf"), ("under-a-file", "./plain/x")):
            self.make(name, "#!%s\n" % first)
        self.copied("missing_loader", "none-elf")
        self.copied("directory_as_loader", "directory-elf")
        self.copied("text_as_loader", "file-elf")


make_codes = fixtures.lent("codes", Codes, scope="module")


@pytest.mark.parametrize(("name", "code"), [
    *[(name, 127) for name in (
        "none", "./none", "./none/x", "./dangling", "", "./no-interpreter", "./relative", "./env",
        "./none-elf", "./to-none", "x" * 300)],
    *[(name, 126) for name in (
        "./plain", "./directory", "./directory/", "/", "./plain/x", "./under-a-file", "./cycle",
        "./loop", "./a-directory", "./a-file", "./to-plain", "./cut", "./cut600", "./directory-elf",
        "./file-elf", "/dev/null", "./" + "x" * 300, "/" + "x/" * 3000)]])
def test_exit_codes_are_those_of_bash(codes, name, code):
    codes.same(name, code=code)


make_case = fixtures.lent("case", Case)


@pytest.mark.parametrize(("text", "code"), [
    ("echo \"$0 $*\"\nexit 7\n", 7), ("", 0), ("#!\nexit 3\n", 3), ("#! \t \nexit 3\n", 3),
    ("\nno-such-command\n", 127)])
def test_text_without_an_interpreter_line_is_run_by_sh(case, text, code):
    """As by execvp, which env and timeout use."""
    case.make("by-env", "#!/usr/bin/env ./text\n")
    case.make("text", text)
    env = launcher.environment(PATH="." + ":" + os.environ["PATH"])
    for words in (["./text", "a b", "c"], ["./text"], ["text", "x"], ["./by-env", "x"]):
        wanted = case.unguarded("env", *words, env=env, cwd=case.directory)
        assert wanted.returncode == code, str(wanted)
        for command in (["run"], ["run", "--observe"], ["verify", "--fence=off"]):
            done = case.start(*command, *words, env=env, cwd=case.directory)
            assert done.stdout == wanted.stdout, (command, words)
            if command != ["verify", "--fence=off"]:
                assert done.returncode == code, str(done)


def test_text_without_an_interpreter_line_is_guarded(case):
    script = case.make("text", "printenv LD_PRELOAD\n")
    assert case.unguarded("env", script).stdout == ""
    done = case.start("run", script)
    assert (done.stdout, done.stderr) == (harness.GUARD + "\n", "")


class Path(Case):
    def setUp(self):
        super().setUp()
        for directory in ("first", "second"):
            os.mkdir(self.path(directory))
        self.make("first/plain", SHOW, 0o644)
        os.mkdir(self.path("first", "directory"))
        for name in ("tool", "plain", "directory"):
            self.make("second/" + name, SHOW)
        self.make("here", SHOW)
        self.copied("exits_7", "elf")
        self.copied("exits_7", "-elf")

    def test_unset_path_means_the_systems_directories(self):
        """The current directory is not searched, as with execvp."""
        env = launcher.environment(PATH=None)
        for words, code in ((["sh", "-c", "exit 7"], 7), (["here"], 127)):
            unguarded = self.unguarded(shutil.which("env"), *words, env=env, cwd=self.directory)
            self.assertEqual(unguarded.returncode, code)
            done = self.start("run", *words, env=env, cwd=self.directory)
            self.assertEqual(done.returncode, code, done)

    def test_name_with_a_slash_is_not_searched(self):
        self.same("second/tool", "x", code=7, path="/nowhere")
        self.same("tool/", code=127, path=self.path("second"))

    def test_relative_interpreter_is_in_the_current_directory(self):
        """A relative interpreter is one of the directory that one is in, not of the script's."""
        shutil.copy("/bin/sh", self.path("shell"))
        self.make("second/script", "#!shell\nexit 7\n")
        self.same("second/script", code=7)
        self.same("script", code=7, path=self.path("second"))

    def test_env_resets_the_kernels_limit_on_scripts(self):
        """The kernel's limit counts from each exec; env makes one."""
        self.make("e0", "#!/bin/sh\nexit 7\n")
        for number in range(1, 9):
            self.make("e%d" % number, "#!/usr/bin/env %s\n" % self.path("e%d" % (number - 1)))
        self.same(self.path("e8"), code=7)


make_path_case = fixtures.lent("path_case", Path, scope="module")


@pytest.mark.parametrize(("path", "name"), [
    ("DIRECTORY/first:DIRECTORY/second", "tool"), ("DIRECTORY/first:DIRECTORY/second", "plain"),
    ("DIRECTORY/first:DIRECTORY/second", "directory"), ("first:second", "tool"),
    ("first:second", "plain"), ("./first:./second", "tool"), ("first/../second", "tool"),
    ("/none:/etc/passwd:second", "tool"), (".", "here"), (".", "elf"), ("first:.", "elf"),
    ("DIRECTORY", "elf")])
def test_path_is_searched_in_order(path_case, path, name):
    path_case.same(name, "a  b", code=7, path=path.replace("DIRECTORY", path_case.directory))


@pytest.mark.parametrize(("path", "name", "code"), [
    ("first", "plain", 126), ("first", "tool", 127), ("second", "here", 127),
    ("/etc/passwd", "tool", 127), ("first:second", "none", 127)])
def test_name_that_is_not_in_path_is_not_found(path_case, path, name, code):
    path_case.same(name, code=code, path=path)


@pytest.mark.parametrize("path", ["", ":", "first:", ":first", "first::second"])
def test_empty_entry_of_path_is_the_current_directory(path_case, path):
    """The launcher asks ld.so about an ELF file there by its path: without a slash, ld.so would
    look for the file among the libraries."""
    path_case.same("elf", code=7, path=path)
    for name in ("elf", "-elf"):
        done = path_case.start("run", "--", name, env=launcher.environment(PATH=path),
                               cwd=path_case.directory)
        assert (done.returncode, done.stderr) == (7, ""), str(done)
