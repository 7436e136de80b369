# SPDX-License-Identifier: Apache-2.0
"""`doctor PROGRAM` against real files of every kind. Each verdict is held against what the
program does: unguarded, under `run`, under the guard alone, with the fake driver."""

import os
import platform
import shutil
import unittest

import pytest

from support import doctor_program, fixtures, harness, launcher, machine

PYTHON = "import ctypes; print('cuInit=%%d' %% ctypes.CDLL(%r).cuInit(0))"
DRIVER = os.path.join(harness.FAKE_DRIVER, "libcuda.so.1")
# /usr/bin first: python3 may be a script elsewhere (pyenv).
SYSTEM = {"PATH": "/usr/bin:/bin"}


class Kinds(doctor_program.Case):
    def test_dynamic_program_is_guarded(self):
        program = launcher.program("ask")
        self.assertEqual(self.verdict(program, "yes", []).facts("linked to"), [])
        self.assert_stopped([program, "libcuda.so.1"], "run", "preload")

    def test_interpreters_of_a_script_are_checked(self):
        script = self.make("script", "#!/usr/bin/env python3\n" + PYTHON % "libcuda.so.1")
        self.verdict(script, "yes", [], env=SYSTEM)  # transcripts/doctor_program.txt has the text
        self.assert_stopped([script], "run", "preload", env=SYSTEM)

    def test_program_given_as_a_descriptor_is_checked(self):
        with open("/bin/sh", "rb") as stream:
            done = self.start("doctor", "--json", "-", "/dev/fd/%d" % stream.fileno(),
                              env=launcher.environment(LD_LIBRARY_PATH=harness.FAKE_DRIVER),
                              pass_fds=[stream.fileno()])
        self.assertEqual(self.read(done.stdout, done.returncode).line, "guarded: yes")

    def test_script_that_gives_env_options_is_guarded_in_part(self):
        """doctor and run do not say whether env removes LD_PRELOAD."""
        for words, guarded in (("-S -i python3", "0"), ("-S LD_PRELOAD= python3", "0"),
                               ("-S --chdir=/ python3", "100")):
            script = self.make("script", "#!/usr/bin/env %s\n" % words + PYTHON % DRIVER)
            reasons = ["env_unknown"] + ["script_preload"] * ("LD_PRELOAD" in words)
            answer = self.verdict(script, "in part", reasons, env=SYSTEM)
            if "LD_PRELOAD" not in words:
                self.assertIn("what env starts by its #! line (%s)" % words, answer.line)
            self.assert_answers([script], "0", guarded, guarded, env=SYSTEM)

    def test_script_that_sets_ld_preload_is_guarded_in_part(self):
        script = self.make("script", "#!/bin/sh\nLD_PRELOAD=libm.so.6 exec python3 -c \"%s\"\n" %
                           PYTHON % DRIVER)
        self.verdict(script, "in part", ["script_preload"], env=SYSTEM)
        self.assert_answers([script], "0", "0", "0", env=SYSTEM)

    def test_sudo_is_guarded_but_not_what_it_starts(self):
        """A copy of env with -i: as in sudo, what it starts has no LD_PRELOAD."""
        sudo = self.path("sudo")
        shutil.copy(shutil.which("env"), sudo)
        answer = self.verdict(sudo, "in part", ["new_environment"])
        self.assertIn("to guard that: sudo cudaguard run -- PROGRAM", answer.line)
        ask = [launcher.program("ask"), DRIVER]
        self.assert_answers([sudo, "-i", *ask], "0", "0", "0")
        remedy = [sudo, "-i", launcher.LAUNCHER, "run", "--", *ask]
        self.assertEqual(self.answer(remedy, "unguarded"), "100")
        self.verdict(shutil.which("env"), "yes", [])

    def test_setuid_program_of_this_user_is_guarded_for_this_user(self):
        """The kernel changes nothing then (Privileged has the other users)."""
        program = self.path("ask")
        shutil.copy(launcher.program("ask"), program)
        self.assertEqual(self.verdict(program, "yes", []).facts("program"), [program])
        os.chmod(program, 0o4755)
        self.assertEqual(self.verdict(program, "yes", []).facts("program")[1:], [
            "it is setuid: if another user starts it, ld.so ignores LD_PRELOAD"])
        self.assert_stopped([program, "libcuda.so.1"], "run", "preload")

    def test_static_program_that_names_the_driver_is_not_guarded(self):
        program = harness.program("static_entry_point")
        self.verdict(program, "no", ["static_driver"])
        for way in ("unguarded", "preload"):  # `run` refuses it
            self.assertTrue(self.guarded([program], way).init_calls())

    def test_ld_so_and_the_launcher_as_commands_are_guarded(self):
        """Both preload into what they start."""
        ask = launcher.program("ask")
        loader = harness.loader_of(ask)
        for program, link in ((loader, "loader"), (launcher.LAUNCHER, "launcher")):
            answer = self.verdict(program, "yes", [])
            self.assertTrue(answer.facts("executable")[0].startswith(link + ", "))
        self.assert_stopped([loader, ask, "libcuda.so.1"], "run", "preload")
        self.assertEqual(
            self.answer([launcher.LAUNCHER, "run", ask, "libcuda.so.1"], "preload"), "100")

    def test_policy_off_means_not_guarded(self):
        """`run` obeys the environment, so OFF allows CUDA on purpose."""
        program = launcher.program("ask")
        off = {"CUDAGUARD_POLICY": "OFF"}
        self.verdict(program, "no", ["policy_off"], env=off)
        self.assert_answers([program, "libcuda.so.1"], "0", "0", "0", env=off)
        self.assertEqual(self.guarded(["--cpu", program, "libcuda.so.1"], "run", env=off).answers,
                         {"cuInit": "100"})
        self.verdict(program, "yes", [], env={"CUDAGUARD_POLICY": "VALIDATE"})


make_kinds = fixtures.lent("kinds", Kinds)


def test_static_program_that_starts_or_opens_others_is_not_guarded(kinds):
    program = launcher.program("ask_static")
    kinds.assert_answers([program, DRIVER], "0", "0", "0")
    starter = launcher.program("starts")
    kinds.verdict(starter, "no", ["static"])
    ask = launcher.program("ask")
    kinds.assert_stopped([starter, ask, "libcuda.so.1"], "run", "preload")


@unittest.skipUnless(platform.machine() == "x86_64", "names the machines from an x86-64's view")
class Machines(doctor_program.Case):
    def test_i386_program_is_not_guarded(self):
        for name, fact in (("i386_static", "32-bit i386"), ("i386_dynamic", "dynamic, 32-bit i386")):
            answer = self.verdict(launcher.program(name), "no", ["architecture"])
            self.assertEqual(answer.facts("executable"), [fact])

    def test_musl_program_is_not_guarded(self):
        self.need("musl-gcc")
        program = launcher.program("hello_musl")
        self.verdict(program, "no", ["musl"])
        # Nothing of ours is in its memory: musl's ld.so says so, or starts it all the same.
        done = self.unguarded("env", "LD_PRELOAD=" + harness.GUARD, "LD_TRACE_LOADED_OBJECTS=1",
                              program)
        self.assertNotIn("cuInit", done.stdout)


class Privileged(doctor_program.Case):
    """As an ordinary user, to whom the bits mean something. The program finds the driver by its run
    path, which ld.so honours in privileged programs too."""

    def setUp(self):
        super().setUp()
        self.need("setpriv", "gcc")
        machine.need("setuid_programs")
        if os.statvfs(self.directory).f_flag & os.ST_NOSUID:
            harness.skip(self, "the directory for temporary files is mounted nosuid")
        self.command = self.installed()
        os.mkdir(self.path("driver"))
        shutil.copy(DRIVER, self.path("driver"))
        self.program = self.compile("ask", "ask.c", "-Wl,-rpath," + self.path("driver"))

    def as_nobody(self, *words, **env):
        """Not in the sandbox, which takes all privileges away; with no driver of the machine's."""
        env = launcher.environment(LD_LIBRARY_PATH=self.path("driver"), **env)
        return self.unguarded(*machine.AS_NOBODY, *words,
                              env=env)

    def asked(self):
        done = self.as_nobody(self.command, "doctor", "--json", "-", self.program)
        return self.read(done.stdout, done.returncode)

    def check(self, kind):
        answer = self.asked()
        self.assertEqual((answer.code, [row["id"] for row in answer.reasons][0]), (2, kind))
        done = self.as_nobody(self.program, "libcuda.so.1",
                              LD_PRELOAD=self.path("install", "lib", "libcudaguard.so"))
        self.assertEqual(done.stdout, "cuInit=0\n", "it is not guarded")
        refused = self.as_nobody(self.command, "run", self.program)
        self.refused(refused, 125, answer.reasons[0]["text"])

    def test_setuid_program_is_not_guarded(self):
        os.chmod(self.program, 0o4755)
        self.check("setuid")

    def test_setgid_program_is_not_guarded(self):
        os.chmod(self.program, 0o2755)
        self.check("setgid")

    @pytest.mark.needs("file_capabilities")
    def test_program_with_capabilities_is_not_guarded(self):
        machine.give_capability(self.program)
        self.check("capabilities")

    def test_control_ordinary_program_is_guarded(self):
        """The owner of a setuid program is guarded, too."""
        self.assertEqual(self.asked().line, "guarded: yes")
        done = self.as_nobody(self.program, "libcuda.so.1", CUDAGUARD_LOG="off",
                              LD_PRELOAD=self.path("install", "lib", "libcudaguard.so"))
        self.assertEqual(done.stdout, "cuInit=100\n")
        os.chmod(self.program, 0o4755)
        self.verdict(self.program, "yes", [], self.command)


class Installation(doctor_program.Case):

    def test_guard_that_cannot_be_loaded_means_not_guarded(self):
        command = self.installed()
        self.make("install/lib/libcudaguard.so", "no library" * 100)
        self.assertIn("invalid ELF header",
                      self.verdict("/usr/bin/env", "no", ["loader"], command).line)

    def test_missing_null_driver_means_guarded_in_part(self):
        """Plug-ins that are linked to the driver get the real one."""
        command = self.installed()
        os.unlink(self.path("install", "lib", "cudaguard", "libcuda.so.1"))
        entry_point = harness.program("entry_point")
        answer = self.verdict(entry_point, "in part", ["installation"], command)
        self.assertEqual([row["text"] for row in answer.reasons],
                         ["%s is missing or cannot be read" %
                          self.path("install", "lib", "cudaguard", name)
                          for name in ("libcuda.so.1", "libcuda.so")])
        plugin = "plugin=" + harness.program("plugin_linked_cuda.so")
        self.assertTrue(harness.run([command, "run", entry_point, plugin], guard=False,
                                    trace=False).fake_calls)
        self.assert_stopped([entry_point, plugin], "run")
        # Without the null driver `run` does not start what is linked to the driver.
        self.verdict(harness.program("linked_cuda"), "no", ["installation", "null_driver"], command)

    def test_truncated_null_driver_means_guarded_in_part(self):
        """The note with its version is at its beginning."""
        command = self.installed()
        path = self.path("install", "lib", "cudaguard", "libcuda.so.1")
        self.verdict("/usr/bin/env", "yes", [], command)
        os.truncate(path, os.path.getsize(path) - 1)
        answer = self.verdict("/usr/bin/env", "in part", ["installation"], command)
        self.assertIn(path + " is damaged", answer.line)


class NoProgram(doctor_program.Case):
    def start(self, *words, **more):
        """Doctor asks the driver: the fake one, as this is not in the sandbox."""
        return super().start(*words, env=launcher.environment(LD_LIBRARY_PATH=harness.FAKE_DRIVER),
                             **more)


make_no_program = fixtures.lent("no_program", NoProgram)


@pytest.mark.parametrize(("name", "code"), [
    ("none", 127), ("./cut", 126), (launcher.program("missing_loader"), 127)])
def test_program_that_cannot_start_has_the_error_of_run(no_program, name, code):
    """Doctor prints the same message and returns the same code as `run`."""
    no_program.make("cut", b"\x7fELF")
    for words in (["doctor"], ["doctor", "--json", "-"]):
        done = no_program.start(*words, name, cwd=no_program.directory)
        no_program.refused(done, code)
        assert done.stderr == no_program.start("run", name, cwd=no_program.directory).stderr


def test_program_that_only_the_kernel_may_know_is_not_judged(no_program):
    program = no_program.make("binary", "MZ\0")
    no_program.refused(no_program.start("doctor", program), 126, program,
                       "is neither an ELF file nor a script; only the kernel knows")
