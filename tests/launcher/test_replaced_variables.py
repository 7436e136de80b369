# SPDX-License-Identifier: Apache-2.0
"""A library with variables called like the guard's functions (slangpy's libsgl.so fills such ones
by dlsym). Linked at start it would be given our functions: `run` refuses the program. Unguarded
each program reaches the fake driver."""

import os

from support import harness, launcher

# As cuew, slang-rhi and NVIDIA's dynlink headers have it.
LIBRARY = r"""
#include <dlfcn.h>
int (*cuInit)(unsigned);
int api_init(void);
int api_init(void) {
  void* handle = dlopen("libcuda.so.1", RTLD_NOW);
  cuInit = handle ? (int (*)(unsigned))dlsym(handle, "cuInit") : 0;
  return cuInit ? cuInit(0) : -1;
}
"""
MAIN = r"""
#include <stdio.h>
int api_init(void);
int main(void) { printf("cuInit=%d\n", api_init()); return 0; }
"""
WHY = "libtable.so has a variable cuInit, which cudaguard's function would replace"
CRASH = (-11, 139)
POLICIES = (["--cpu"], ["--policy=VALIDATE"], ["--policy=CLAMP"], ["--gpus=0"], ["--policy=OFF"])


class Case(launcher.Case):
    def library(self, text=LIBRARY, *options):
        return self.compile("libtable.so", text, "-shared", "-fPIC", *options)

    def answer(self, *words, **more):
        more.setdefault("guard", False)
        return harness.run([*words], trace=False, **more)

    def run_it(self, *words, **more):
        return self.answer(launcher.LAUNCHER, "run", *words, **more)

    def assert_reaches(self, program):
        """The control: unguarded the program's own variable leads to the fake driver."""
        unguarded = self.answer(program)
        self.assertEqual((unguarded.rc, unguarded.out), (0, "cuInit=0\n"), unguarded)
        self.assertEqual(unguarded.init_calls(), ["cuInit"], unguarded)

    def assert_refused(self, program, why=WHY):
        self.assert_reaches(program)
        for options in POLICIES:
            with self.subTest(options=options):
                done = self.run_it(*options, program)
                self.assertEqual((done.rc, done.out), (125, ""), done)
                self.assertEqual(
                    done.err.splitlines()[-1], 'cudaguard: "%s" cannot be guarded: %s; to run it '
                    "without CUDA: cudaguard run --fence" % (program, why))


class Refused(Case):
    def test_program_linked_to_such_a_library_is_refused(self):
        program = self.compile("user", MAIN, self.library())
        self.assertIn(self.answer(program, guard=True).rc, CRASH)
        self.assert_refused(program)

    def test_variable_of_an_indirect_library_is_refused(self):
        middle = self.compile("libmiddle.so", "int api_init(void); int middle(void);\n"
                              "int middle(void) { return api_init(); }", "-shared", "-fPIC",
                              self.library())
        program = self.compile("user", MAIN.replace("api_init", "middle"), middle)
        self.assertIn(self.answer(program, guard=True).rc, CRASH)
        self.assert_refused(program)

    def test_message_has_the_number_of_variables(self):
        text = LIBRARY + ("int (*cuDeviceGet)(int*, int);\n"
                          "int use(void) { return cuDeviceGet != 0; }")
        program = self.compile("user", MAIN, self.library(text))
        self.assert_refused(program, "libtable.so has 2 variables such as cuDeviceGet, which "
                            "cudaguard's functions would replace")

    def test_variable_with_any_guarded_name_is_refused(self):
        names = sorted(harness.guarded("DRIVER|NVML", "LINKED") | harness.guarded("RUNTIME"))
        self.assertIn("nvmlInit_v2", names)
        text = LIBRARY.replace("(*cuInit)", "(*own)").replace("cuInit =", "own =")
        text = text.replace("cuInit ? cuInit", "own ? own")
        text += "".join("void* %s;\n" % name for name in names)
        text += "void* use(int n) { void** all[] = {%s}; return *all[n]; }" % ", ".join(
            "&" + name for name in names)
        program = self.compile("user", MAIN, self.library(text))
        self.assert_refused(program, "libtable.so has %d variables such as cuDeviceGet, which "
                            "cudaguard's functions would replace" % len(names))

    def test_copy_of_a_variable_is_refused(self):
        """The executable's copy is filled from the first library that has the name: the guard."""
        main = ("extern int (*cuInit)(unsigned);\n" + MAIN).replace("api_init());",
                                                                    "cuInit ? 7 : api_init());")
        program = self.compile("user", main, self.library(), "-no-pie", "-fno-pie")
        self.assertIn("R_%s_COPY" % ("X86_64" if os.uname().machine == "x86_64" else "AARCH64"),
                      self.unguarded("readelf", "-rW", program).stdout)
        self.assert_refused(program)
        self.assertEqual(self.answer(program, guard=True).answers, {"cuInit": "7"})

    def test_variable_with_another_driver_name_starts(self):
        """Preloaded for a program that is linked to the driver, it has every name of the driver."""
        text = LIBRARY.replace("cuInit", "cuMemAlloc_v2").replace('"cuMemAlloc_v2"', '"cuInit"')
        library = self.library(text)
        program = self.compile("user", MAIN, library)
        self.assert_reaches(program)
        self.assertEqual(self.run_it(program).answers, {"cuInit": "100"})
        linked = self.compile("linked", MAIN, library, "-Wl,--no-as-needed",
                              "-L" + harness.FAKE_DRIVER, "-l:libcuda.so.1")
        self.assert_reaches(linked)
        done = self.run_it(linked)
        self.assertEqual(done.rc, 125, done)
        self.assertIn(WHY.replace("cuInit", "cuMemAlloc_v2"), done.err)
        self.assertEqual(self.run_it("--policy=OFF", linked).answers, {"cuInit": "0"})

    def test_verify_and_observe_refuse_even_with_a_fence(self):
        """Without the guard the program would report nothing, so the fence is no way out."""
        program = self.compile("user", MAIN, self.library())
        for words in (["verify"], ["verify", "--fence=off"], ["run", "--observe"],
                      ["run", "--fence", "--observe"], ["run", "--fence", "--strict"]):
            with self.subTest(words=words):
                self.refused(self.start(*words, program), 125, WHY)


class Started(Case):
    """A program that is not affected is not refused."""

    def test_program_starts_unguarded_under_the_fence(self):
        """The refusal names this remedy."""
        program = self.compile("user", MAIN, self.library())
        done = self.run_it("--fence", program)
        self.assertEqual((done.rc, done.out), (0, "cuInit=0\n"), done)  # the fake one has no device
        self.assertEqual(done.err, 'cudaguard: "%s" is not guarded (%s); the fence refuses CUDA, '
                         "but no message names the caller\n" % (program, WHY))
        printed = self.run_it("--fence", "printenv", "LD_PRELOAD")
        self.assertEqual(printed.out, harness.GUARD + "\n")

    def test_program_with_its_own_variable_starts(self):
        program = self.compile("user", LIBRARY + MAIN.replace("int api_init(void);", ""),
                               "-rdynamic")
        self.assert_reaches(program)
        self.assertEqual(self.run_it(program).answers, {"cuInit": "100"})

    def test_programs_variable_precedes_the_librarys(self):
        """The program's own comes first, for its libraries too."""
        program = self.compile("user", "int (*cuInit)(unsigned);\n" + MAIN, self.library())
        self.assert_reaches(program)
        self.assertEqual(self.run_it(program).answers, {"cuInit": "100"})

    def test_program_of_a_library_that_binds_its_names_starts(self):
        program = self.compile("user", MAIN, self.library(LIBRARY, "-Wl,-Bsymbolic"))
        self.assert_reaches(program)
        self.assertEqual(self.run_it(program).answers, {"cuInit": "100"})

    def test_hidden_variable_is_not_replaced(self):
        hidden = LIBRARY.replace("int (*cuInit)",
                                 '__attribute__((visibility("hidden"))) int (*cuInit)')
        program = self.compile("user", MAIN, self.library(hidden))
        self.assert_reaches(program)
        self.assertEqual(self.run_it(program).answers, {"cuInit": "100"})

    def test_functions_of_a_library_are_replaced(self):
        """The guard exists to replace a library's own function of such a name."""
        text = ("int cuInit(unsigned x) { return 5 + (int)x; }\n"
                "int api_init(void) { return cuInit(0); }")
        program = self.compile("user", MAIN, self.library(text))
        self.assertEqual(self.answer(program).answers, {"cuInit": "5"})
        self.assertEqual(self.run_it(program).answers, {"cuInit": "100"})
