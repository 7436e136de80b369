# SPDX-License-Identifier: Apache-2.0
"""Which file is started: as a shell finds it. Each case is put to bash too, and has the same exit
code and the same output. Only bash 5.3 has 126 for an interpreter that is missing, where env and
older releases have 127."""

import os
import shutil

import pytest

from support import fixtures, harness, launcher

INTERPRETER_IS_MISSING = ("./no-interpreter", "./relative", "./to-none")
GOOD = ("#!/bin/sh\nexit 7\n", "#! /bin/sh -e\nexit 7\n", "#!\t/bin/sh\t\nexit 7", "#!/usr/bin/env sh\nexit 7\n",
        "#!/usr/bin/env -S A=b sh -e\nexit 7\n")
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


class Files(Case):
    def setUp(self):
        super().setUp()
        for name in ("first", "first/directory", "second"):
            os.mkdir(self.path(name))
        os.symlink("nowhere", self.path("dangling"))
        os.symlink("cycle", self.path("cycle"))
        for name in ("plain", "first/plain"):
            self.make(name, SHOW, 0o644)
        for name in ("here", "second/tool", "second/plain", "second/directory"):
            self.make(name, SHOW)
        self.make("cut", b"\x7fELF")
        with open(harness.program("entry_point"), "rb") as stream:
            self.make("cut600", stream.read(600))
        for name, first in (("no-interpreter", "/no/interpreter"), ("relative", "relative-not"),
                            ("a-directory", "/tmp"), ("a-file", "/etc/passwd"),
                            ("env", "/usr/bin/env no"), ("loop", "./loop"), ("to-plain", "./plain"),
                            ("to-none", "./none-elf"), ("under-a-file", "./plain/x")):
            self.make(name, "#!%s\n" % first)
        for program, name in (("missing_loader", "none-elf"), ("directory_as_loader", "directory-elf"),
                              ("text_as_loader", "file-elf"), ("exits_7", "elf"), ("exits_7", "-elf")):
            self.copied(program, name)
        # A relative interpreter is one of the directory that one is in, not of the script's.
        shutil.copy("/bin/sh", self.path("shell"))
        self.make("second/script", "#!shell\nexit 7\n")
        for number, text in enumerate(GOOD):
            self.make("good%d" % number, text)
        # Each script is the interpreter of the next. The kernel's limit counts from each exec; env
        # makes one.
        for number in range(8):
            self.make("s%d" % number, "#!%s\nexit 7\n" % (
                self.path("s%d" % (number - 1)) if number else "/bin/sh"))
        self.make("env-loop", "#!/usr/bin/env loop2\n")
        os.symlink("env-loop", self.path("loop2"))
        self.make("e0", "#!/bin/sh\nexit 7\n")
        for number in range(1, 9):
            self.make("e%d" % number, "#!/usr/bin/env %s\n" % self.path("e%d" % (number - 1)))


make_files = fixtures.lent("files", Files, scope="module")


@pytest.mark.parametrize(("path", "code", "names"), [
    (None, 127, ["none", "./none", "./none/x", "./dangling", "", "./no-interpreter", "./relative",
                 "./env", "./none-elf", "./to-none", "x" * 300]),
    (None, 126, ["./plain", "./first", "./first/", "/", "./plain/x", "./under-a-file", "./cycle",
                 "./loop", "./a-directory", "./a-file", "./to-plain", "./cut", "./cut600",
                 "./directory-elf", "./file-elf", "/dev/null", "./" + "x" * 300, "/" + "x/" * 3000]),
    (None, 7, ["second/script", "./e8", *("./good%d" % number for number in range(len(GOOD))),
               *("./s%d" % number for number in range(5))]),
    ("/nowhere", 7, ["second/tool"]),  # a name with a slash is not searched
    ("DIRECTORY/first:DIRECTORY/second", 7, ["tool", "plain", "directory"]),
    ("DIRECTORY/second", 127, ["tool/"]), ("DIRECTORY/second", 7, ["script"]),
    ("DIRECTORY", 7, ["elf"]),
    ("first:second", 7, ["tool", "plain"]), ("first:second", 127, ["none"]),
    ("./first:./second", 7, ["tool"]), ("first/../second", 7, ["tool"]),
    ("/none:/etc/passwd:second", 7, ["tool"]), ("/etc/passwd", 127, ["tool"]),
    (".", 7, ["here", "elf"]), ("first:.", 7, ["elf"]), ("first", 126, ["plain"]),
    ("first", 127, ["tool"]), ("second", 127, ["here"])])
def test_file_and_exit_code_are_those_of_bash(files, path, code, names):
    for name in names:
        files.same(name, "a  b", code=code, path=path and path.replace("DIRECTORY", files.directory))


@pytest.mark.parametrize("name", ["./s5", "./s7", "./loop", "loop2"])
def test_chain_of_scripts_has_the_kernels_limit(files, name):
    if name != "loop2":  # env would follow it without an end
        files.same(name, code=126)
    done = files.start("run", name, env=launcher.environment(PATH=files.directory + ":/usr/bin:/bin"),
                       cwd=files.directory)
    files.refused(done, 126, "more than 5 scripts")


@pytest.mark.parametrize("path", ["", ":", "first:", ":first", "first::second"])
def test_empty_entry_of_path_is_the_current_directory(files, path):
    """The launcher asks ld.so about an ELF file there by its path: without a slash, ld.so would
    look for the file among the libraries."""
    files.same("elf", code=7, path=path)
    for name in ("elf", "-elf"):
        done = files.start("run", "--", name, env=launcher.environment(PATH=path),
                           cwd=files.directory)
        assert (done.returncode, done.stderr) == (7, ""), str(done)


@pytest.mark.parametrize(("words", "code"), [(["sh", "-c", "exit 7"], 7), (["here"], 127)])
def test_unset_path_means_the_systems_directories(files, words, code):
    """The current directory is not searched, as with execvp."""
    env = launcher.environment(PATH=None)
    unguarded = files.unguarded(shutil.which("env"), *words, env=env, cwd=files.directory)
    done = files.start("run", *words, env=env, cwd=files.directory)
    assert (unguarded.returncode, done.returncode) == (code, code), str(done)


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
