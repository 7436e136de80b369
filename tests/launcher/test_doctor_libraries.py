# SPDX-License-Identifier: Apache-2.0
"""What `doctor PROGRAM` says of the libraries that come with a program: the driver, CUDA's
runtime, names like the guard's, sanitizers. Each verdict is held against what
the program does with the fake driver."""

import os
import shutil

import doctor_program
import harness
from doctor_program import ASK, LINKED, MAIN, OWN, VARIABLE

FAKE = "-L" + harness.FAKE_DRIVER
USER = "int cuInit(unsigned); int use(void) { return cuInit(0); }"
# Asks by the handle of a library that is linked to the driver.
BY_HANDLE = ASK.replace("int main", "int cuInit(unsigned);\nint (*keep)(unsigned) = cuInit;\n"
                        "int main")
RUNTIMES = ("11", "12.2", "12", "13")


class Linked(doctor_program.Case):
    def test_linked(self):
        for name, library in (("linked_cuda", "libcuda.so.1"),
                              ("linked_nvml", "libnvidia-ml.so.1")):
            with self.subTest(program=name):
                program = harness.program(name)
                (facts,) = self.verdict(program, "yes", "in part", ["linked"])["executables"]
                path = os.path.join(harness.FAKE_DRIVER, library)
                self.assertEqual(facts["linked"], [
                    {"name": library, "path": path, "needed_by": [program]}])
                self.assert_stopped([program], "run")
                result = self.guarded([program], "preload", trace=True)
                self.assertEqual((result.driver_files, result.init_calls()), ([path], []), result)

    def test_without_a_driver(self):
        program = harness.program("linked_cuda")
        report = self.verdict(program, "yes", "no", ["linked"], world="none")
        self.assertIsNone(report["executables"][0]["linked"][0]["path"])
        self.assertEqual(self.guarded([program], "preload", world="none").rc, 127)
        self.assertEqual(self.guarded([program], "run", world="none").answers["cuInit"], "100")

    def test_through_a_library(self):
        program = harness.program("linked_middle")
        library = harness.program("middle.so")
        (facts,) = self.verdict(program, "yes", "in part", ["linked"])["executables"]
        self.assertEqual(facts["linked"][0]["needed_by"], [library])
        self.assert_answers([program, "handle", library], "0", "100", "0")

    def test_by_a_path(self):
        """ld.so does not see that the stand-in is the same library: in part by `run` too."""
        stub = os.path.join(harness.FAKES, "unnamed", "libcuda.so.1")
        self.compile("libuser.so", USER, "-shared", "-fPIC", "-Wl," + stub)
        program = self.compile("abs", BY_HANDLE, stub)
        report = self.verdict(program, "in part", "in part", ["linked", "linked_file"])
        self.assertIn(stub, [row["file"] for row in report["guarded"]["reasons"]])
        self.assert_answers([program, self.path("libuser.so")], "0", "0", "0")
        self.assert_answers([self.compile("plain", LINKED, stub)], "0", "100", "100")

    def test_by_the_dev_name(self):
        """A driver without a SONAME is needed by the name that it was linked by."""
        os.mkdir(self.path("dev"))
        shutil.copy(os.path.join(harness.FAKES, "unnamed", "libcuda.so.1"), self.path("dev", "libcuda.so"))
        program = self.compile("dev-name", LINKED, "-L" + self.path("dev"), "-lcuda",
                               "-Wl,-rpath," + self.path("dev"))
        report = self.verdict(program, "in part", "in part", ["linked", "linked_file"])
        self.assertEqual(report["executables"][0]["linked"][0]["name"], "libcuda.so")
        self.assert_answers([program], "0", "100", "100")

    def test_opencl(self):
        program = self.compile(
            "opencl", "void* clGetExtensionFunctionAddress(const char*);\nint main(void) { return "
            "((int (*)(unsigned, void*, unsigned*))clGetExtensionFunctionAddress("
            "\"clIcdGetPlatformIDsKHR\"))(0, 0, 0); }", FAKE, "-l:libnvidia-opencl.so.1")
        self.verdict(program, "in part", "in part", ["linked_refused"])
        for way in ("bare", "run", "preload"):
            self.assertIn("opencl", self.guarded([program], way).init_calls(), way)


    def test_cfg(self):
        """Mapped by ld.so, which does not ask the guard."""
        self.compile("libnvidia-cfg.so.1", "int nvCfgOpenDevice(void) { return 0; }", "-shared",
                     "-fPIC", "-Wl,-soname,libnvidia-cfg.so.1")
        program = self.compile(
            "cfg", "int nvCfgOpenDevice(void);\nint main(void) { return nvCfgOpenDevice(); }",
            "-L" + self.folder, "-l:libnvidia-cfg.so.1", "-Wl,-rpath," + self.folder)
        self.verdict(program, "in part", "in part", ["linked_refused"])


class RunPaths(doctor_program.Case):
    def test_copies(self):
        """The only driver there is: found bare, not under the guard."""
        copy = self.copy_of_driver()
        for kind in ("--disable-new-dtags", "--enable-new-dtags"):
            for path in ("$ORIGIN/copy", "${ORIGIN}/../%s/copy" % os.path.basename(self.folder),
                         copy):
                with self.subTest(kind=kind, path=path):
                    program = self.compile("ask", ASK, "-Wl,%s,-rpath,%s" % (kind, path))
                    self.verdict(program, "yes", "yes", [], world="none")
                    self.assert_stopped([program, "libcuda.so.1"], "run", "preload", world="none")

    def test_linked_to_the_copy(self):
        copy = self.copy_of_driver()
        program = self.compile("ask", LINKED, "-L" + copy, "-l:libcuda.so.1", "-Wl,-rpath," + copy)
        (facts,) = self.verdict(program, "yes", "in part", ["linked"], world="none")["executables"]
        self.assertEqual(facts["linked"][0]["path"], copy + "/libcuda.so.1")
        self.assert_stopped([program], "run", world="none")


class Runtimes(doctor_program.Case):
    """NVIDIA's own: scripts/fetch-cuda."""

    def found(self, program, **more):
        return [(row["kind"], row["file"])
                for row in self.doctor(program, **more)["executables"][-1]["runtimes"]]

    def program(self, name):
        program = harness.program(name)
        if not os.path.exists(program):
            harness.skip(self, "no %s: scripts/fetch-cuda has not fetched its runtime" % name)
        return program

    def test_shared(self):
        for name in RUNTIMES:
            with self.subTest(runtime=name):
                program = self.program("runtime_%s_shared" % name)
                ((kind, file),) = self.found(program)
                self.assertEqual(kind, "shared")
                self.assertIn("libcudart.so." + name.split(".")[0], file)
                self.verdict(program, "yes", "yes", [])
                self.assert_stopped([program], "run", "preload")

    def test_static(self):
        for name in RUNTIMES:
            if name == "12.2":
                continue  # NVIDIA's wheel has none
            with self.subTest(runtime=name):
                program = self.program("runtime_%s_static" % name)
                self.assertEqual(self.found(program), [("static", program)])
                self.verdict(program, "yes", "yes", [])
                self.assert_stopped([program], "run", "preload")
                stripped = shutil.copy(program, self.path("stripped"))
                self.bare("strip", stripped)
                self.assertEqual(self.found(stripped), [("static", stripped)])

    def test_what_the_linker_left(self):
        """One function of it is called, the rest may be dropped; in a library of the program's."""
        archive = os.path.join(harness.DEPS, "cuda-12", "lib", "libcudart_static.a")
        if not os.path.exists(archive):
            harness.skip(self, "no static runtime: scripts/fetch-cuda has not fetched it")
        library = self.compile(
            "libcount.so", "int cudaGetDeviceCount(int*); int count(void) { int n = 0; "
            "cudaGetDeviceCount(&n); return n; }", "-shared", "-fPIC", "-O2", "-s",
            "-ffunction-sections", "-Wl,--gc-sections,--exclude-libs,ALL", archive, "-ldl", "-lrt",
            "-lpthread", "-lstdc++")
        program = self.compile("user", "int count(void); int main(void) { return count(); }",
                               library)
        self.assertEqual(self.found(program), [("static", library)])

    def test_not_found(self):
        program = self.compile("user", "int cudaFree(void*);\n"
                               "int main(void) { return cudaFree(0); }",
                               "-L" + os.path.join(harness.FAKES, "by_major"), "-Wl,--no-as-needed",
                               "-l:libcudart.so.12", "-Wl,--unresolved-symbols=ignore-all")
        self.assertEqual(self.found(program), [("shared", None)])
        # A library of that name without anything of NVIDIA's in it.
        path = os.path.join(harness.FAKES, "by_major")
        self.assertEqual(self.found(program, env={"LD_LIBRARY_PATH": path}),
                         [("shared", os.path.join(path, "libcudart.so.12"))])

    def test_none(self):
        """No false alarm: the driver, NVML and OpenCL themselves, an interpreter, our own."""
        program = self.compile("all", "int main(void) { return 0; }", "-Wl,--no-as-needed", FAKE,
                               "-l:libcuda.so.1", "-l:libnvidia-ml.so.1")
        worlds = ["fake"] + (["real"] if harness.have_real_driver() else [])
        for world in worlds:
            self.assertEqual(self.found(program, world=world), [], world)
        for other in ("/usr/bin/python3", harness.program("linked_cuda"), "/usr/bin/gcc"):
            self.assertEqual(self.found(other), [])

    def test_aarch64(self):
        """The same signs in another machine's program."""
        self.need("aarch64-linux-gnu-gcc")
        program = self.compile("arm", r'''
const char* marks[] = {"CUDA driver version is insufficient for CUDA runtime version",
                       "cudaD3D9GetDevice"};
int main(void) { return marks[0] == marks[1]; }''', compiler="aarch64-linux-gnu-gcc")
        self.assertEqual(self.found(program), [("static", program)])


class Names(doctor_program.Case):
    """A table of function pointers called like the driver's functions, as in CUDA's own samples."""

    def assert_about(self, report, name, file):
        (reason,) = [row for row in report["guarded"]["reasons"] if row["id"] == "variable"]
        self.assertEqual(reason["file"], file)
        self.assertEqual(reason["text"], "%s has a variable %s, which cudaguard's function would "
                         "replace" % (os.path.basename(file), name))

    def test_variable_of_a_library(self):
        library = self.compile("libtable.so", VARIABLE, "-shared", "-fPIC")
        program = self.compile("user", MAIN, library)
        report = self.verdict(program, "no", "no", ["variable"])
        self.assert_about(report, "cuInit", library)
        self.assertEqual(self.answer([program], "bare"), "42")
        self.assertIn(self.guarded([program], "preload").rc, (-11, 139), "it does not crash")

    def test_variable_that_is_bound_inside(self):
        """Nobody looks it up by its name, so nothing takes its place."""
        library = self.compile("libtable.so", VARIABLE, "-shared", "-fPIC", "-Wl,-Bsymbolic")
        program = self.compile("user", MAIN, library)
        self.verdict(program, "yes", "yes", [])
        self.assert_answers([program], "42", "42", "42")

    def test_variable_of_the_program(self):
        """The program's own comes first."""
        program = self.compile(
            "user", MAIN.replace("int use(void);", VARIABLE.replace("42", "7")), "-rdynamic")
        self.verdict(program, "yes", "yes", [])
        self.assert_answers([program], "7", "7", "7")

    def test_copy_of_a_variable(self):
        """The executable's copy is filled from the first library that has the name: the guard."""
        library = self.compile("libtable.so", VARIABLE, "-shared", "-fPIC")
        program = self.compile("user", MAIN.replace("use()", "cuInit(0)").replace(
            "int use(void)", "extern int (*cuInit)(unsigned)"), library, "-no-pie", "-fno-pie")
        report = self.verdict(program, "no", "no", ["variable"])
        self.assert_about(report, "cuInit", library)
        self.assertEqual(self.answer([program], "bare"), "42")
        self.assertIn(self.guarded([program], "preload").rc, (-11, 139))

    def test_functions(self):
        """Trampolines: what they open is the stand-in."""
        program = harness.program("trampolines")
        self.verdict(program, "yes", "yes", [])
        self.assert_stopped([program], "run", "preload")
        library = self.compile("libown.so", "int cuInit(unsigned x) { return 5 + (int)x; }\n"
                               "int use(void) { return cuInit(0); }", "-shared", "-fPIC")
        program = self.compile("user", MAIN, library)
        self.verdict(program, "yes", "yes", [])
        self.assert_answers([program], "5", "100", "100")

    def test_names_of_the_stand_in(self):
        """Preloaded for a linked program, it has every name of the driver."""
        library = self.compile("libtable.so", VARIABLE.replace("cuInit", "cuMemAlloc_v2"),
                               "-shared", "-fPIC")
        program = self.compile("user", MAIN, library)
        self.verdict(program, "yes", "yes", [])
        self.assert_answers([program], "42", "42", "42")
        linked = self.compile("linked", MAIN, library, "-Wl,--no-as-needed", FAKE,
                              "-l:libcuda.so.1")
        self.verdict(linked, "no", "no", ["linked", "variable"])

    def test_own_dlopen(self):
        program = self.compile("own", OWN, "-rdynamic", "-ldl")
        self.verdict(program, "in part", "in part", ["own_dlopen"])
        driver = os.path.join(harness.FAKE_DRIVER, "libcuda.so.1")
        self.assert_answers([program, driver, "libc.so.6"], "0", "0", "0")
        self.assert_answers([program, driver], "0", "100", "100")


class Sanitizers(doctor_program.Case):
    QUIET = {"ASAN_OPTIONS": "detect_leaks=0"}

    def sanitized(self, *options, compiler="gcc"):
        self.need(compiler)
        return self.compile("ask", ASK, *options, compiler=compiler)

    def test_gcc_address(self):
        program = self.sanitized("-fsanitize=address")
        self.verdict(program, "yes", "no", ["sanitizer"])
        self.assert_stopped([program, "libcuda.so.1"], "run", env=self.QUIET)
        result = self.guarded([program], "preload", env=self.QUIET)
        self.assertNotEqual(result.rc, 0)
        self.assertIn("ASan runtime does not come first", result.err)

    def test_path_that_cannot_be_preloaded(self):
        os.mkdir(self.path("a folder"))
        runtime = self.bare("gcc", "-print-file-name=libasan.so").stdout.strip()
        name = os.path.basename(os.path.realpath(runtime)).split(".so")[0] + ".so." + \
            os.path.realpath(runtime).split(".so.")[1].split(".")[0]
        shutil.copy(os.path.realpath(runtime), self.path("a folder", name))
        program = self.sanitized("-fsanitize=address", "-Wl,--disable-new-dtags,-rpath," +
                                 self.path("a folder"))
        self.verdict(program, "no", "no", ["sanitizer"])
        for way in ("run", "preload"):
            result = self.guarded([program], way, env=self.QUIET)
            self.assertIn("ASan runtime does not come first", result.err)

    def test_others(self):
        """Their runtimes do not mind, or are a part of the program."""
        for compiler, options in (("gcc", ["-fsanitize=thread"]),
                                  ("gcc", ["-fsanitize=undefined"]),
                                  ("gcc", ["-fsanitize=address", "-static-libasan"]),
                                  ("clang", ["-fsanitize=address"]),
                                  ("clang", ["-fsanitize=undefined"]),
                                  ("clang", ["-fsanitize=thread"])):
            with self.subTest(compiler=compiler, options=options):
                program = self.sanitized(*options, compiler=compiler)
                self.verdict(program, "yes", "yes", [])
                self.assert_stopped([program, "libcuda.so.1"], "run", "preload", env=self.QUIET)


if __name__ == "__main__":
    harness.main()
