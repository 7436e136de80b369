# SPDX-License-Identifier: Apache-2.0
"""Programs that bring their own ld.so, run paths of their own, or an interpreter that is none."""

import os
import platform
import re
import shutil
import unittest

import pytest

from support import fixtures, harness, launcher

pytestmark = pytest.mark.all

RUN = [launcher.LAUNCHER, "run"]


class OwnLoader(launcher.Case):
    """The interpreter is a file of a bundle that carries a glibc."""

    def setUp(self):
        super().setUp()
        self.need("gcc")
        loader = harness.loader_of("/usr/bin/env")
        libraries = re.findall(r"(/\S+) \(0x", self.unguarded("ldd", "/usr/bin/env").stdout)
        os.mkdir(self.path("bundle"))
        for library in {*libraries, loader}:
            shutil.copy(library, self.path("bundle"))
        shutil.move(self.path("bundle", os.path.basename(loader)), self.path("bundle", "start"))
        self.options = ["-Wl,-dynamic-linker," + self.path("bundle", "start"),
                        "-Wl,-rpath," + self.path("bundle"), "-ldl"]

    def check(self, program, **more):
        harness.run([program], guard=False, **more).assert_reached(self)
        result = harness.run(RUN + [program], guard=False, **more)
        self.assertEqual((result.rc, result.answers.get("cuInit")), (0, "100"), result)
        self.assertEqual(result.init_calls(), [], result)
        return result

    def test_program_of_a_bundle_is_guarded(self):
        program = self.compile("program", "ask.c", "-DDRIVER", *self.options)
        self.assertIn(self.path("bundle", "libc.so.6"), self.unguarded("ldd", program).stdout)
        self.check(program).assert_untouched(self)

    def test_linked_program_of_a_bundle_is_guarded(self):
        program = self.compile("linked", "linked.c", *self.options, "-L" + harness.FAKE_DRIVER,
                               "-l:libcuda.so.1")
        self.check(program)


class RunPaths(launcher.Case):
    def check(self, *options, env=None):
        program = self.compile("program", "calls_use.c", "-L" + self.directory, "-l:libuser.so",
                               "-Wl,--allow-shlib-undefined", *options)
        harness.run([program], world="none", guard=False, env=env).assert_reached(self)
        result = harness.run(RUN + [program], world="none", guard=False, env=env)
        self.assertEqual((result.rc, result.answers.get("cuInit")), (0, "100"), result)
        self.assertEqual(result.init_calls(), [], result)
        preload = harness.run(RUN + ["--print", program], world="none", guard=False, env=env)
        self.assertIn(harness.GUARD + ":" + harness.NULL_DRIVER_CUDA, preload.out)


make_run_paths = fixtures.lent("run_paths", RunPaths)


# A RUNPATH is not for the libraries' own libraries.
@pytest.mark.parametrize(("library", "kind"), [
    ([], "--disable-new-dtags"), (["-Wl,-rpath,$ORIGIN"], "--enable-new-dtags"),
    (["-Wl,-rpath,$ORIGIN"], "--disable-new-dtags")])
def test_bundles_library_linked_to_the_driver_is_guarded(run_paths, library, kind):
    """By RUNPATH or RPATH, with the driver beside it; by $ORIGIN and by LD_LIBRARY_PATH."""
    directory = run_paths.directory
    shutil.copy(os.path.join(harness.FAKE_DRIVER, "libcuda.so.1"), directory)
    run_paths.compile("libuser.so", "driver_user.c", "-shared", "-fPIC", "-L" + directory,
                      "-l:libcuda.so.1", *library)
    for path in (directory, "$ORIGIN", "$ORIGIN/../" + os.path.basename(directory)):
        run_paths.check("-Wl,-rpath," + path, "-Wl," + kind)
    run_paths.check(env={"LD_LIBRARY_PATH": directory})


@unittest.skipUnless(platform.machine() == "x86_64", "written in its system calls")
class NoLoader(launcher.Case):
    """The interpreter is another program, which the launcher would start."""

    def program(self, steps, *options):
        interpreter = self.compile("interpreter", "interpreter.c", "-DSTEPS=" + steps, "-nostdlib",
                                   "-fno-stack-protector", *options)
        return self.compile("program", "ask.c", "-DDRIVER", "-Wl,-dynamic-linker," + interpreter)

    def test_interpreter_that_is_no_ld_so_is_not_started(self):
        """Neither run nor doctor starts it with a question. If they did, it would make a file."""
        made = self.path("made")
        program = self.program('call(85, (long)"%s", 0644, 0); call(60, 7, 0, 0);' % made,
                               "-static")
        self.assertEqual(self.unguarded(program).returncode, 7)
        os.unlink(made)
        self.refused(self.start("run", program), 125, "cannot be guarded",
                     "is not glibc's ld.so")
        done = self.unguarded(*harness.sandbox("none"), launcher.LAUNCHER, "doctor", program)
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("is not glibc's ld.so", done.stdout.splitlines()[0])
        self.assertFalse(os.path.exists(made))
        done = self.start("verify", "--", launcher.program("executes"), "exec", program)
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("1 guarded, 1 unguarded: %s (its interpreter is not glibc's ld.so)" % program,
                      " ".join(done.stderr.split()))
