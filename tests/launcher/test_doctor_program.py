# SPDX-License-Identifier: Apache-2.0
"""`doctor PROGRAM` against real files of every kind. Each verdict is held against what the
program does: bare, under `run`, under the guard alone, with the fake driver."""

import os
import platform
import shutil
import unittest

import doctor_program
import harness
import launcher
from doctor_program import ASK

HELLO = "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }\n"
PYTHON = "import ctypes; print('cuInit=%%d' %% ctypes.CDLL(%r).cuInit(0))"
DRIVER = os.path.join(harness.FAKE_DRIVER, "libcuda.so.1")
# /usr/bin first: python3 may be a script elsewhere (pyenv).
SYSTEM = {"PATH": "/usr/bin:/bin"}


class Kinds(doctor_program.Case):
    def test_dynamic(self):
        program = self.compile("ask", ASK)
        report = self.verdict(program, "yes", "yes", [])
        (facts,) = report["executables"]
        self.assertEqual((report["name"], report["path"], report["files"]), (program,) * 2 +
                         ([program],))
        self.assertEqual((facts["link"], facts["bits"], facts["interpreter"],
                          facts["loads_guard"]),
                         ("dynamic", 64, harness.loader_of(program), True))
        for key in ("linked", "not_found", "runtimes"):
            self.assertEqual(facts[key], [], key)
        self.assert_stopped([program, "libcuda.so.1"], "run", "preload")

    def test_script(self):
        script = self.make("script", "#!/usr/bin/env python3\n" + PYTHON % "libcuda.so.1")
        report = self.verdict(script, "yes", "yes", [], env=SYSTEM)
        self.assertEqual(report["files"], [script, "/usr/bin/env", "/usr/bin/python3"])
        self.assertEqual([facts["path"] for facts in report["executables"]], report["files"][1:])
        self.assert_stopped([script], "run", "preload", env=SYSTEM)

    def test_script_found_on_path(self):
        self.make("tool", "#!%s -u\n" % "/usr/bin/python3")
        report = self.verdict("tool", "yes", "yes", [], env={"PATH": self.folder})
        self.assertEqual(report["files"], [self.path("tool"), "/usr/bin/python3"])

    def test_program_by_its_descriptor(self):
        with open("/bin/sh", "rb") as stream:
            done = self.start("doctor", "--json", "/dev/fd/%d" % stream.fileno(),
                              env=launcher.environment(LD_LIBRARY_PATH=harness.FAKE_DRIVER),
                              pass_fds=[stream.fileno()])
        self.assertEqual(self.read(done.stdout, done.returncode)["guarded"]["run"], "yes")

    def test_env_that_clears(self):
        text = "#!/usr/bin/env -S -i python3\n" + PYTHON % DRIVER
        for words in ("-S -i python3", "-S -u LD_PRELOAD python3", "-S LD_PRELOAD= python3",
                      "-S env -i /usr/bin/python3", "-iS python3"):
            script = self.make("script", text.replace("-S -i python3", words))
            reasons = ["env_clears"] + ["script_preload"] * ("LD_PRELOAD" in words)
            report = self.verdict(script, "no", "no", reasons, env=SYSTEM)
            self.assertEqual(report["env_words"], words)
            self.assertEqual([self.answer([script], way, env=SYSTEM) for way in ("bare", "preload")],
                             ["0", "0"], words)

    def test_env_that_is_not_followed(self):
        script = self.make("script", "#!/usr/bin/env -S --chdir=/ python3\n" + PYTHON % DRIVER)
        self.verdict(script, "in part", "in part", ["env_unknown"], env=SYSTEM)
        self.assert_answers([script], "0", "100", "100", env=SYSTEM)

    def test_script_that_preloads(self):
        script = self.make("script", "#!/bin/sh\nLD_PRELOAD=libm.so.6 exec python3 -c \"%s\"\n" %
                           PYTHON % DRIVER)
        report = self.verdict(script, "in part", "in part", ["script_preload"], env=SYSTEM)
        self.assertTrue(report["script_preloads"])
        self.assert_answers([script], "0", "0", "0", env=SYSTEM)

    def test_static(self):
        """It opens what it is told to; the driver's name is not in it."""
        for name, option in (("static", "-static"), ("static-pie", "-static-pie")):
            with self.subTest(kind=name):
                program = self.compile(name, ASK, option, "-w", "-Wl,--no-warnings")
                (facts,) = self.verdict(program, "no", "no", ["static"])["executables"]
                self.assertEqual((facts["link"], facts["interpreter"], facts["loads_guard"]),
                                 (name, None, None))
        program = self.path("static")
        self.assert_answers([program, DRIVER], "0", "0", "0")
        starter = self.compile(
            "init", "#include <unistd.h>\nint main(int argc, char** argv) "
            "{ (void)argc; return execvp(argv[1], argv + 1); }", "-static")
        self.verdict(starter, "no", "no", ["static"])
        ask = self.compile("ask", ASK)
        self.assert_stopped([starter, ask, "libcuda.so.1"], "run", "preload")

    def test_a_shared_library(self):
        """It has no interpreter either."""
        path = self.compile("library.so", "int main(void) { return 0; }", "-shared", "-fPIC",
                            "-Wl,--no-as-needed")
        for command in ("doctor", "run"):
            self.refused(self.start(command, path), 126, "is a shared library, no program")

    def test_static_that_names_the_driver(self):
        program = harness.program("static_door")
        self.verdict(program, "no", "no", ["static_driver"])
        for way in ("bare", "preload"):  # `run` refuses it
            self.assertTrue(self.guarded([program], way).init_calls())

    def test_not_our_business(self):
        """ld.so as a command, and a launcher in a launcher, preload into what they start."""
        ask = self.compile("ask", ASK)
        loader = harness.loader_of(ask)
        for program, link in ((loader, "loader"), (launcher.LAUNCHER, "launcher")):
            (facts,) = self.verdict(program, "yes", "yes", [])["executables"]
            self.assertEqual((facts["link"], facts["runtimes"]), (link, []))
        self.assert_stopped([loader, ask, "libcuda.so.1"], "run", "preload")
        self.assertEqual(
            self.answer([launcher.LAUNCHER, "run", ask, "libcuda.so.1"], "preload"), "100")

    def test_policy(self):
        """`run` goes by the environment; what it lets through is let through on purpose."""
        program = self.compile("ask", ASK)
        off = {"CUDAGUARD_POLICY": "OFF"}
        self.verdict(program, "no", "no", ["policy_off"], env=off)
        self.assert_answers([program, "libcuda.so.1"], "0", "0", "0", env=off)
        self.assertEqual(self.guarded(["--cpu", program, "libcuda.so.1"], "run", env=off).answers,
                         {"cuInit": "100"})
        self.verdict(program, "yes", "yes", [], env={"CUDAGUARD_POLICY": "VALIDATE"})

    def test_a_library_that_is_missing(self):
        self.compile("libgone.so", "int gone(void) { return 1; }", "-shared", "-fPIC")
        program = self.compile("user", "int gone(void); int main(void) { return gone(); }",
                               self.path("libgone.so"))
        os.unlink(self.path("libgone.so"))
        (facts,) = self.verdict(program, "yes", "yes", [])["executables"]
        self.assertEqual(facts["not_found"], [self.path("libgone.so")])


@unittest.skipUnless(platform.machine() == "x86_64", "names the machines from an x86-64's view")
class Machines(doctor_program.Case):
    def test_i386(self):
        self.need("gcc")
        program = self.compile("i386", "void _start(void) { __asm__(\"int $0x80\" : : \"a\"(1)); }",
                               "-m32", "-nostdlib", "-static")
        (facts,) = self.verdict(program, "no", "no", ["architecture"])["executables"]
        self.assertEqual((facts["link"], facts["bits"], facts["machine"]), (None, 32, "i386"))

    def test_aarch64(self):
        self.need("aarch64-linux-gnu-gcc")
        program = self.compile("arm", HELLO, compiler="aarch64-linux-gnu-gcc")
        (facts,) = self.verdict(program, "no", "no", ["architecture"])["executables"]
        self.assertEqual((facts["link"], facts["bits"], facts["machine"], facts["interpreter"]),
                         ("dynamic", 64, "AArch64", "/lib/ld-linux-aarch64.so.1"))

    def test_musl(self):
        self.need("musl-gcc")
        program = self.compile("musl", HELLO, compiler="musl-gcc")
        (facts,) = self.verdict(program, "no", "no", ["musl"])["executables"]
        self.assertEqual(facts["loads_guard"], None)
        # Nothing of ours is in its memory: musl's ld.so says so, or starts it all the same.
        done = self.bare("env", "LD_PRELOAD=" + harness.GUARD, "LD_TRACE_LOADED_OBJECTS=1", program)
        self.assertNotIn("cuInit", done.stdout)


class Privileged(doctor_program.Case):
    """As an ordinary user, to whom the bits mean something. The program finds the driver by its run
    path, which ld.so honours in privileged programs too."""

    def setUp(self):
        super().setUp()
        self.need("setpriv", "setcap", "gcc")
        if os.geteuid() != 0:
            harness.skip(self, "needs root for setuid files and file capabilities")
        if os.statvfs(self.folder).f_flag & os.ST_NOSUID:
            harness.skip(self, "the folder for temporary files is mounted nosuid")
        self.command = self.installed()
        os.mkdir(self.path("driver"))
        shutil.copy(DRIVER, self.path("driver"))
        self.program = self.compile("ask", ASK, "-Wl,-rpath," + self.path("driver"))

    def as_nobody(self, *words, **env):
        """Not in the sandbox, which takes all privileges away; with no driver of the machine's."""
        env = launcher.environment(LD_LIBRARY_PATH=self.path("driver"), **env)
        return self.bare("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *words,
                         env=env)

    def check(self, kind):
        done = self.as_nobody(self.command, "doctor", "--json", self.program)
        report = self.read(done.stdout, done.returncode)
        self.assertEqual((done.returncode, doctor_program.ids(report)), (2, [kind]), report)
        (facts,) = report["executables"]
        self.assertIs(facts["loads_guard"], False)
        done = self.as_nobody(self.program, "libcuda.so.1",
                              LD_PRELOAD=self.path("install", "lib", "libcudaguard.so"))
        self.assertEqual(done.stdout, "cuInit=0\n", "it is not guarded")
        refused = self.as_nobody(self.command, "run", self.program)
        self.refused(refused, 125, report["guarded"]["reasons"][0]["text"])

    def test_setuid(self):
        os.chmod(self.program, 0o4755)
        self.check("setuid")

    def test_setgid(self):
        os.chmod(self.program, 0o2755)
        self.check("setgid")

    def test_capabilities(self):
        self.bare("setcap", "cap_net_raw+ep", self.program)
        self.check("capabilities")

    def test_several(self):
        """All reasons, where `run` gives the first."""
        os.chmod(self.program, 0o6755)
        done = self.as_nobody(self.command, "doctor", "--json", self.program)
        report = self.read(done.stdout, done.returncode)
        self.assertEqual(doctor_program.ids(report), ["setgid", "setuid"])

    def test_plain(self):
        """The control: without the bits, and to the owner, it is guarded."""
        done = self.as_nobody(self.command, "doctor", "--json", self.program)
        self.assertEqual(self.read(done.stdout, done.returncode)["guarded"]["run"], "yes")
        done = self.as_nobody(self.program, "libcuda.so.1", CUDAGUARD_LOG="off",
                              LD_PRELOAD=self.path("install", "lib", "libcudaguard.so"))
        self.assertEqual(done.stdout, "cuInit=100\n")
        os.chmod(self.program, 0o4755)
        self.verdict(self.program, "yes", "yes", [], self.command)


class Installation(doctor_program.Case):
    def test_no_guard(self):
        command = self.installed()
        os.unlink(self.path("install", "lib", "libcudaguard.so"))
        self.refused(self.start("doctor", "true", launcher=command), 125, "libcudaguard.so",
                     "missing")

    def test_guard_that_cannot_be_loaded(self):
        command = self.installed()
        self.make("install/lib/libcudaguard.so", "no library" * 100)
        report = self.verdict("/usr/bin/env", "no", "no", ["loader"], command)
        self.assertIn("invalid ELF header", report["guarded"]["reasons"][0]["text"])
        self.assertIs(report["executables"][0]["loads_guard"], False)

    def test_no_stand_in(self):
        """In part: plug-ins that are linked to the driver get the real one."""
        command = self.installed()
        os.unlink(self.path("install", "lib", "cudaguard", "libcuda.so.1"))
        door = harness.program("door")
        report = self.verdict(door, "in part", "in part", ["installation"], command)
        gone = [self.path("install", "lib", "cudaguard", name)
                for name in ("libcuda.so.1", "libcuda.so")]
        self.assertEqual(report["broken_files"], [{"path": path, "missing": True} for path in gone])
        plugin = "plugin=" + harness.program("plugin_linked_cuda.so")
        self.assertTrue(harness.run([command, "run", door, plugin], guard=False,
                                    trace=False).fake_calls)
        self.assert_stopped([door, plugin], "run")
        # Without the stand-in `run` does not start what is linked to the driver.
        self.verdict(harness.program("linked_cuda"), "no", "in part",
                     ["installation", "linked", "stand_in"], command)

    def test_damaged_stand_in(self):
        command = self.installed()
        self.make("install/lib/cudaguard/libnvidia-ml.so.1", "\x7fELF" * 100)
        report = self.verdict("/usr/bin/env", "in part", "in part", ["installation"], command)
        self.assertEqual([row["missing"] for row in report["broken_files"]], [False])

    def test_cut_stand_in(self):
        """Wherever it ends: the note with its version is at its beginning."""
        command = self.installed()
        path = self.path("install", "lib", "cudaguard", "libcuda.so.1")
        self.assertEqual(self.verdict("/usr/bin/env", "yes", "yes", [], command)["broken_files"],
                         [])
        for size in (os.path.getsize(path) - 1, os.path.getsize(path) // 2, 4096):
            os.truncate(path, size)
            report = self.verdict("/usr/bin/env", "in part", "in part", ["installation"], command)
            self.assertEqual(report["broken_files"], [{"path": path, "missing": False}], size)


class NoProgram(doctor_program.Case):
    def start(self, *words, **more):
        """Doctor asks the driver: the fake one, as this is not in the sandbox."""
        return super().start(*words, env=launcher.environment(LD_LIBRARY_PATH=harness.FAKE_DRIVER),
                             **more)

    def test_what_run_cannot_start(self):
        """The same line and code as from `run`."""
        self.make("plain", "", 0o644)
        self.make("text", "text\n")
        self.make("cut", b"\x7fELF")
        self.make("loop", "#!./loop\n")
        self.make("script", "#!/no/interpreter\n")
        program = self.compile("gone", HELLO, "-Wl,-dynamic-linker,/no/ld-linux.so.2")
        for name, code in (("none", 127), ("./none", 127), (".", 126), ("./plain", 126),
                           ("./text", 126), ("./cut", 126), ("./loop", 126), ("./script", 127),
                           (program, 127)):
            with self.subTest(program=name):
                for words in (["doctor"], ["doctor", "--json"]):
                    done = self.start(*words, name, cwd=self.folder)
                    self.refused(done, code)
                    self.assertEqual(done.stderr, self.start("run", name, cwd=self.folder).stderr)

    def test_cut_anywhere(self):
        """A report or a refusal, whatever is left of the file."""
        whole = self.compile("whole", HELLO)
        with open(whole, "rb") as stream:
            image = stream.read()
        for size in [0, 1, 4, 16, 63, 64, 65, 120, 500, 1000, 4000, len(image) - 1]:
            program = self.make("cut", image[:size])
            done = self.start("doctor", program)
            self.assertIn(done.returncode, (0, 1, 126), (size, done))
            self.assertEqual(done.returncode == 126, done.stdout == "", done)


if __name__ == "__main__":
    harness.main()
