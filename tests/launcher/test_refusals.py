# SPDX-License-Identifier: Apache-2.0
"""What can never be guarded is refused before it starts: real files of every kind, each run
unguarded first."""

import os
import platform
import shutil
import struct

import pytest

from support import fixtures, harness, launcher, machine

EM_ARM = 40


class Privileged(launcher.Case):
    """The launcher runs as an ordinary user, for whom the bits mean something."""

    def setUp(self):
        super().setUp()
        self.need("setpriv")
        machine.need("setuid_programs")
        self.launcher = self.installed()
        self.program = self.copied("secure")

    def as_nobody(self, *words):
        return self.unguarded(*machine.AS_NOBODY, *words)

    def test_control_ordinary_program_is_guarded(self):
        done = self.as_nobody(self.launcher, "run", self.program)
        self.assertEqual((done.stdout, done.stderr), ("secure=0 preload\n", ""))

    def test_setgid_program_without_the_groups_x_is_guarded(self):
        """The bit is a lock then, not a privilege."""
        os.chmod(self.program, 0o2745)
        done = self.as_nobody(self.launcher, "run", self.program)
        self.assertEqual(done.stdout, "secure=0 preload\n", done)

    def test_setuid_script_is_guarded(self):
        """The kernel ignores the bit on scripts, and so does the launcher."""
        script = self.make("script", "#!%s\n" % self.program)
        os.chmod(script, 0o4755)
        done = self.as_nobody(self.launcher, "run", script)
        self.assertEqual(done.stdout, "secure=0 preload\n", done)

    def test_setuid_program_is_guarded_under_no_new_privs(self):
        """If the program cannot gain rights, the same file is guarded."""
        os.chmod(self.program, 0o4755)
        done = self.as_nobody("setpriv", "--no-new-privs", self.launcher, "run", self.program)
        self.assertEqual(done.stdout, "secure=0 preload\n", done)

    def test_program_that_cannot_be_read_is_guarded(self):
        """Licensed solvers are installed so. The launcher cannot look, so it says so."""
        os.chmod(self.program, 0o711)
        self.assertEqual(self.as_nobody("env", "LD_PRELOAD=libm.so.6", self.program).stdout,
                         "secure=0 preload\n")
        said = '"%s" cannot be checked: Permission denied' % self.program
        for words in (["run"], ["verify"]):
            done = self.as_nobody(self.launcher, *words, "--", self.program)
            self.assertEqual((done.returncode, done.stdout), (0, "secure=0 preload\n"), done)
            self.assertEqual(done.stderr.count("cannot be checked"), 1, done)
            self.assertIn(said, done.stderr)
        self.refused(self.as_nobody(self.launcher, "run", "--strict", self.program), 125, said)
        done = self.as_nobody(self.launcher, "doctor", self.program)
        self.assertIn("guarded: in part, because %s cannot be checked" % self.program, done.stdout)
        # Even so, its rights can be seen.
        os.chmod(self.program, 0o4711)
        self.refused(self.as_nobody(self.launcher, "run", self.program), 125, "setuid")

    def test_attempt_of_a_program_that_cannot_be_read_has_its_name(self):
        """Its memory cannot be read either, and /proc shows none of its files."""
        fake = shutil.copytree(harness.FAKE_DRIVER, self.path("fake"), symlinks=True)
        program = self.copied("ask_driver", "solver")
        before = ["env", "LD_LIBRARY_PATH=" + fake]
        for mode, lost in ((0o755, False), (0o711, True)):
            os.chmod(program, mode)
            self.assertEqual(self.as_nobody(*before, program).stdout, "cuInit=0\n")
            done = self.as_nobody(*before, self.launcher, "verify", "--", program)
            self.assertEqual(done.stdout, "cuInit=100\n", done)
            self.assertIn("FAIL: 1 place asked for CUDA, in 1 of 1 process\n  solver\n",
                          done.stderr)
            self.assertEqual("could not be read" in done.stderr, lost, done)
            done = self.as_nobody(*before, self.launcher, "verify", "--allow", "lib:solver", "--",
                                  program)
            self.assertEqual(done.returncode, 0, done)


@pytest.mark.needs("user_namespaces")
class Kernel(launcher.Case):
    """binfmt_misc starts files of which the launcher knows nothing."""

    REGISTER = """set -e
mount -t binfmt_misc none "$0"
printf ':cgtest:M::CGTEST::%s:' "$1" >"$0/register"
printf ':cgtext:E::cgtext::%s:' "$1" >>"$0/register"
shift
exec "$@"
"""

    def with_binfmt(self, *words, interpreter=None, place=None):
        """Runs the words in namespaces where binfmt_misc starts the two kinds of files."""
        os.makedirs(self.path("binfmt"), exist_ok=True)
        interpreter = interpreter or self.make("interpreter", "#!/bin/sh\n"
                                               'echo "$LD_PRELOAD:${1##*/} $2"\n')
        return self.unguarded("unshare", "-Urm", "sh", "-c", self.REGISTER,
                              place or self.path("binfmt"), interpreter, *words)

    def setUp(self):
        super().setUp()
        if self.with_binfmt("true").returncode != 0:
            harness.skip(self, "binfmt_misc cannot be mounted here (Linux 6.7 and user namespaces)")

    def test_program_that_only_the_kernel_knows_is_started(self):
        program = self.make("x.foo", b"CGTEST\0\0data")
        text = self.make("y.cgtext", "exit 7\n")
        for file in (program, text):
            control = self.with_binfmt(file, "word")
            self.assertEqual(control.stdout, ":%s word\n" % os.path.basename(file), control)
        for words in (["run"], ["run", "--fence"], ["run", "--observe"], ["verify"]):
            done = self.with_binfmt(launcher.LAUNCHER, *words, "--", program, "word")
            self.assertEqual((done.returncode, done.stdout),
                             (0, harness.GUARD + ":x.foo word\n"), done)
            self.assertEqual(done.stderr.count("is neither an ELF file nor a script"), 1, done)
        done = self.with_binfmt(launcher.LAUNCHER, "run", text, "word")
        self.assertEqual(done.stdout, harness.GUARD + ":y.cgtext word\n", done)
        # A text, too, which /bin/sh would run if binfmt_misc did not know its name.
        for file, where in ((program, None), (text, "/proc/sys/fs/binfmt_misc")):
            done = self.with_binfmt(launcher.LAUNCHER, "run", "--strict", file, place=where)
            self.refused(done, 125, "is neither an ELF file nor a script", "--strict")


make_kernel = fixtures.lent("kernel", Kernel)
EXECUTES = [launcher.program("executes"), "child"]


@pytest.mark.needs("user_namespaces")
@pytest.mark.parametrize(("name", "data"), [("magic", b"CGTEST\0\0data"), ("y.cgtext", b"text\n")])
def test_verify_counts_what_binfmt_misc_starts(kernel, name, data):
    """By its magic or its name, also a program that has ended before verify can see what runs it."""
    child = [*EXECUTES, kernel.make(name, data)]
    where = {"interpreter": launcher.program("static_7"), "place": "/proc/sys/fs/binfmt_misc"}
    assert kernel.with_binfmt(*child, **where).returncode == 7
    done = kernel.with_binfmt(launcher.LAUNCHER, "verify", "--", *child, **where)
    assert "2 programs started: 1 guarded, 1 unknown: " in done.stderr, done
    assert "(binfmt_misc decides what runs it)" in " ".join(done.stderr.split()), done


ARM = struct.pack("<4s12BHHI", b"\x7fELF", 1, 1, 1, *[0] * 9, 2, EM_ARM, 1) + bytes(32)
x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="its program is for 32-bit ARM")


@pytest.mark.needs("user_namespaces")
@pytest.mark.parametrize("data", [pytest.param(ARM, marks=x86_64), b"abc\0def"], ids=["arm", "data"])
def test_verify_does_not_count_what_the_kernel_does_not_know(kernel, data):
    child = [*EXECUTES, kernel.make("unknown", data)]
    where = {"place": "/proc/sys/fs/binfmt_misc"}  # which has other kinds of files
    assert kernel.with_binfmt(*child, **where).stdout == "Exec format error\n"
    done = kernel.with_binfmt(launcher.LAUNCHER, "verify", "--", *child, **where)
    assert "\n  1 program started: 1 guarded\n" in done.stderr, done


def test_file_that_no_kernel_knows_is_not_started(case):
    """execve says so, after the launcher has said that it does not know."""
    program = case.make("garbage", b"\1\0data")
    with pytest.raises(OSError, match="Exec format error"):
        case.unguarded(program)
    for words, code in ((["run"], 126), (["verify"], 125)):
        done = case.start(*words, program)
        assert (done.returncode, done.stdout) == (code, ""), str(done)
        assert done.stderr.splitlines()[-1] == (
            'cudaguard: "%s" cannot be started: Exec format error' % program)
    case.refused(case.start("run", "--strict", program), 125, "neither an ELF file")


@pytest.mark.parametrize("line", [r"-S -u\_LD_PRELOAD\_sh", "--split=--unset=LD_PRELOAD sh"])
def test_limit_script_that_gives_env_options_starts_with_a_warning(case, line):
    script = case.make("script", '#!/usr/bin/env %s\necho "[$LD_PRELOAD]"\n' % line)
    env = launcher.environment(LD_PRELOAD="libm.so.6")
    control = case.unguarded(script, env=env)
    assert control.stdout == "[]\n", str(control)
    why = "it is not known what env starts by its #! line (%s)" % line
    done = case.start("run", script)
    assert (done.returncode, done.stdout) == (0, "[]\n"), str(done)
    assert done.stderr.splitlines() == [
        'cudaguard: "%s" cannot be checked: %s; it is started as a program that is linked to the '
        "driver (--strict refuses)" % (script, why)]
    case.refused(case.start("run", "--strict", script), 125, why)
    assert case.start("doctor", script).stdout.startswith("guarded: in part, because " + why)


class Loader(launcher.Case):

    def test_no_code_of_the_program_runs(self):
        """A constructor and main() are counted: once by the program, none by the question."""
        log = self.path("log")
        env = launcher.environment(NOTES=log)
        program = launcher.program("notes")
        self.assertEqual(self.start("run", "--print", program, env=env).returncode, 0)
        self.assertFalse(os.path.exists(log))
        self.assertEqual(self.start("run", program, env=env).returncode, 0)
        self.assertEqual(harness.read(log), "constructor main ")

    def test_variables_that_change_ld_sos_output_do_no_harm(self):
        for name, value in (("LD_DEBUG", "all"), ("LD_VERBOSE", "1"), ("LD_PROFILE", "libc.so.6"),
                            ("LD_PRELOAD", "/nonexistent/lib.so")):
            env = launcher.environment(**{name: value, "LD_PROFILE_OUTPUT": self.directory})
            done = self.start("run", "printenv", "LD_PRELOAD", env=env)
            self.assertEqual(done.returncode, 0, name)
            self.assertTrue(done.stdout.startswith(harness.GUARD), name)


GUARD_THAT_CANNOT_BE_LOADED = {
    "invalid ELF header": lambda guard: b"no library" * 200,
    "cannot be preloaded": lambda guard: guard[:100],
    "cannot open shared object file": lambda guard: guard[:18] + b"\x28\0" + guard[20:],
}


@pytest.mark.parametrize("why", GUARD_THAT_CANNOT_BE_LOADED)
def test_guard_that_cannot_be_loaded_is_refused(case, why):
    """ld.so itself would say so and start the program unguarded."""
    for name in ("lib", "bin"):
        os.mkdir(case.path(name))
    command = shutil.copy(launcher.LAUNCHER, case.path("bin"))
    mark = case.path("mark")
    damaged = GUARD_THAT_CANNOT_BE_LOADED[why](harness.bytes_of(harness.GUARD))
    path = case.make("lib/libcudaguard.so", damaged)
    unguarded = case.unguarded("env", "LD_PRELOAD=" + path, "true")
    assert unguarded.returncode == 0
    assert "ignored" in unguarded.stderr
    done = case.start("run", "touch", mark, launcher=command)
    case.refused(done, 125, "cannot be guarded", "ld.so says", why)
    assert not os.path.exists(mark)
