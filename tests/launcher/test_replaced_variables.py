# SPDX-License-Identifier: Apache-2.0
"""A library with variables called like the guard's functions (slangpy's libsgl.so fills such ones
by dlsym). Linked at start it would be given our functions: `run` refuses the program. Unguarded
each program reaches the fake driver."""

import os

import pytest

from support import doctor_program, fixtures, harness, launcher

WHY = "libtable.so has a variable cuInit, which cudaguard's function would replace"
CRASH = (-11, 139)
POLICIES = (["--cpu"], ["--policy=VALIDATE"], ["--policy=CLAMP"], ["--gpus=0"], ["--policy=OFF"])


class Case(doctor_program.Case):
    def run_it(self, *words):
        return self.guarded([*words], "run")

    def assert_reaches(self, program):
        """The control: unguarded the program's own variable leads to the fake driver."""
        unguarded = self.guarded([program], "unguarded")
        self.assertEqual((unguarded.rc, unguarded.out), (0, "cuInit=0\n"), unguarded)
        self.assertEqual(unguarded.init_calls(), ["cuInit"], unguarded)

    def assert_refused(self, program, why=WHY):
        self.assert_reaches(program)
        self.assertIn(why, self.verdict(program, "no", ["variable"]).line)
        for options in POLICIES:
            done = self.run_it(*options, program)
            self.assertEqual((done.rc, done.out), (125, ""), (options, str(done)))
            self.assertEqual(
                done.err.splitlines()[-1], 'cudaguard: "%s" cannot be guarded: %s; to run it '
                "without CUDA: cudaguard run --fence" % (program, why), options)


class Refused(Case):
    def test_program_linked_to_such_a_library_is_refused(self):
        program = launcher.program("loads_user")
        self.assertIn(self.guarded([program], "preload").rc, CRASH)
        self.assert_refused(program)

    def test_variable_with_any_guarded_name_is_refused(self):
        names = sorted(harness.guarded("DRIVER|NVML", "LINKED") | harness.guarded("RUNTIME"))
        self.assertIn("nvmlInit_v2", names)
        # The table of the guard's names makes this source.
        text = launcher.source("table.c") + "".join("void* %s;\n" % name for name in names)
        text += "void* has(int n) { void** all[] = {%s}; return *all[n]; }" % ", ".join(
            "&" + name for name in names)
        library = self.compile("libtable.so", self.make("names.c", text, 0o644), "-DNAME=own",
                               "-shared", "-fPIC")
        program = self.compile("user", "calls_use.c", library)
        self.assert_refused(program, "libtable.so has %d variables such as cuCtxCreate, which "
                            "cudaguard's functions would replace" % len(names))

    def test_copy_of_a_variable_is_refused(self):
        """The executable's copy is filled from the first library that has the name: the guard."""
        program = launcher.program("loads_copy")
        self.assertIn("R_%s_COPY" % ("X86_64" if os.uname().machine == "x86_64" else "AARCH64"),
                      self.unguarded("readelf", "-rW", program).stdout)
        self.assert_refused(program)
        self.assertEqual(self.answer([program], "preload"), "7")

    def test_variable_with_any_driver_name_is_refused_in_a_linked_program(self):
        """The null driver, which has every name of the driver, is preloaded for it."""
        program = launcher.program("loads_alloc_linked")
        self.assert_reaches(program)
        self.assertIn(WHY.replace("cuInit", "cuMemAlloc_v2"),
                      self.verdict(program, "no", ["variable"]).line)
        self.assertEqual(self.run_it("--policy=OFF", program).answers, {"cuInit": "0"})


make_case = fixtures.lent("case", Refused)


@pytest.mark.parametrize("words", [["verify"], ["verify", "--fence=off"], ["run", "--observe"],
                                   ["run", "--fence", "--observe"], ["run", "--fence", "--strict"]])
def test_verify_and_observe_refuse_even_with_a_fence(case, words):
    """Without the guard the program would report nothing, so the fence is no way out. Only a user
    who has not tried it reads of it, and not under verify."""
    program = launcher.program("loads_user")
    done = case.start(*words, program)
    case.refused(done, 125, WHY)
    assert ("cudaguard run --fence" in done.stderr) == (words == ["run", "--observe"]), done


def test_program_starts_unguarded_under_the_fence(case):
    """The refusal names this remedy."""
    program = launcher.program("loads_user")
    done = case.run_it("--fence", program)
    assert (done.rc, done.out) == (0, "cuInit=0\n"), done  # the fake one has no device
    assert done.err == ('cudaguard: "%s" is not guarded (%s); the fence refuses CUDA, '
                        "but no message names the caller\n" % (program, WHY))
    printed = case.run_it("--fence", "printenv", "LD_PRELOAD")
    assert printed.out == harness.GUARD + "\n"


@pytest.mark.parametrize("name", [
    "loads_own",         # the variable is the program's
    "loads_precedes",    # the program's comes before the library's
    "loads_binds_user",  # no code looks the library's up by its name
    "loads_hidden_user",
    "loads_alloc_user"])  # the guard has no such name
def test_variable_that_is_not_replaced_is_no_hindrance(case, name):
    program = launcher.program(name)
    case.verdict(program, "yes", [])
    case.assert_answers([program], "0", "100", "100")
