# SPDX-License-Identifier: Apache-2.0
"""--fence on the command line: the options that it allows, and programs that cannot be guarded."""

import os
import platform

import pytest

from support import fence, fixtures, harness, launcher, machine


class Words(fence.Case):

    def test_program_that_is_called_like_a_mode_is_started(self):
        """Without "--" it is refused (tests/unit/options_test.cpp)."""
        for word in ("auto", "require", "devices", "off"):
            program = self.make(word, "#!/bin/sh\necho it is $0\n")
            env = launcher.environment(PATH=self.directory + ":" + os.environ["PATH"])
            done = self.start("run", "--fence", "--", word, env=env)
            self.assertEqual(done.stdout, "it is %s\n" % program)
            done = self.start("run", "--fence", program)
            self.assertEqual(done.stdout, "it is %s\n" % program)

    def test_print_comments_that_variables_make_no_fence(self):
        """The shell ignores the comment."""
        plain = self.start("run", "--print")
        for how in ("--fence", "--fence=auto", "--fence=require"):
            done = self.start("run", how, "--print")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            more = done.stdout.replace(plain.stdout, "").splitlines()
            self.assertTrue(more and all(line.startswith("# ") for line in more), done.stdout)
            self.assertIn("--fence is not among these", more[0])
            text = self.unguarded("sh", "-c", done.stdout + "echo $CUDAGUARD_POLICY")
            self.assertEqual((text.stdout, text.stderr), ("FORCE_CPU\n", ""))
        self.assertEqual(self.start("run", "--fence=off", "--print").stdout, plain.stdout)
        # Under a fence, the launcher prints the fence's preset.
        for how in ("--fence", "--fence=off"):
            done = self.start("run", "--fence", launcher.LAUNCHER, "run", how, "--print")
            self.assertIn("export CUDAGUARD_PRESETS=fence,", done.stdout)
            self.assertNotIn("#", done.stdout)

    @pytest.mark.needs("ordinary_user", "new_privileges")
    def test_print_says_no_new_privs(self):
        """As an ordinary user."""
        done = self.unguarded(*self.ordinary_user(), "run", "--fence", "--print")
        self.assertIn("sets no_new_privs:\n# sudo and setuid programs inside gain no rights",
                      done.stdout)


make_case = fixtures.lent("case", Words)


@pytest.mark.parametrize(("policy", "listed"), [("VALIDATE", True), ("NO_CONTEXT", True),
                                                ("OFF", False)])
def test_fence_of_devices_says_that_it_can_leave_listed_gpus(case, policy, listed):
    advice = "or name the GPUs that it leaves: --gpus LIST"
    env = launcher.environment(CUDAGUARD_POLICY=policy)
    for how, says in (("--fence=devices", listed), ("--fence=require", False)):
        for words, given in (([], env), (["--policy", policy], None)):
            done = case.start("run", how, *words, "true", env=given)
            case.refused(done, 125, "--fence")
            assert (advice in done.stderr) == says, done.stderr


def test_verify_with_a_fence_ignores_the_policy_variable(case):
    # verify allows no CUDA, whatever the environment has.
    env = launcher.environment(CUDAGUARD_POLICY="OFF")
    assert case.start("verify", "--fence=require", "true", env=env).returncode == 0


STATIC = "it is a static executable"
x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="an i386 program")


@pytest.mark.parametrize(("name", "why", "code", "printed"), [
    ("hello_static", STATIC, 0, "hello\n"), ("hello_static_pie", STATIC, 0, "hello\n"),
    ("hello_driver", STATIC + " and names libcuda.so", 0, "libcuda.so.1\n"),
    ("hello_musl", "it is for musl, the guard is for glibc", 0, "hello\n"),
    pytest.param("i386_static", "it is a 32-bit program (i386), the guard is 64-bit x86-64", 7, "",
                 marks=x86_64)])
def test_program_that_cannot_be_guarded_starts_fenced(case, name, why, code, printed):
    """The launcher checks a program before the start, under the fence as well."""
    if name == "hello_musl":
        case.need("musl-gcc")
    program = launcher.program(name)
    assert case.unguarded(program).returncode == code
    for how in ([], ["--fence=off"]):
        done = case.start("run", *how, program)
        if why == STATIC:
            assert "is a static executable, not guarded (dynamic programs" in done.stderr
        else:
            case.refused(done, 125, "cannot be guarded")
    done = case.start("run", "--fence", program)
    assert (done.returncode, done.stdout) == (code, printed)
    assert done.stderr == ('cudaguard: "%s" is not guarded (%s); the fence refuses CUDA, but no '
                           "message names the caller\n" % (program, why))
    case.refused(case.start("run", "--fence", "--strict", program), 125,
                 '"%s" cannot be guarded: %s' % (program, why))


def test_setuid_program_starts_only_fenced_and_gains_nothing(case):
    """An ordinary user starts the program."""
    machine.need("setuid_programs")
    case.need("setpriv")
    run = [*machine.AS_NOBODY, case.installed(), "run"]
    program = case.copied("user")
    os.chmod(program, 0o4755)
    assert case.unguarded(*machine.AS_NOBODY, program).stdout == "0\n"
    for how in ([], ["--fence=off"]):
        case.refused(case.unguarded(*run, *how, program), 125, "cannot be guarded")
    # With no_new_privs it is not setuid: so it can be guarded.
    done = case.unguarded(*run, "--fence", "--strict", program)
    assert (done.stdout, done.stderr) == ("%d\n" % machine.NOBODY, "")


def test_fenced_program_has_the_guard_as_well(case):
    done = case.start("run", "--fence", "printenv", "LD_PRELOAD")
    assert (done.stdout, done.stderr) == (harness.GUARD + "\n", "")


def test_fence_of_devices_holds_or_is_refused_with_the_reason(case):
    """Whatever this kernel has."""
    done = case.start("run", "--fence=devices", "cat", "/dev/null")
    if done.returncode != 0:
        case.refused(done, 125, "--fence=devices: the device nodes cannot be fenced: ")
