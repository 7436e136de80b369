# SPDX-License-Identifier: Apache-2.0
"""`doctor` on machines with no driver, the toolkit's stub, NVIDIA's driver without a GPU,
eight GPUs; which libraries are found, and what they are.

CG_GOLDEN=write rewrites the golden files."""

import csv
import glob
import os
import platform
import shutil
import sys
import unittest

import doctor
import harness
import launcher

sys.path.append(os.path.join(harness.SOURCE, "tests", "devices"))
import box  # noqa: E402

BOX = os.path.join(harness.FAKES, "lazy")
NML_STUB = ('const char* const text = "libnvidia-ml.so in GDK package is a stub library that is '
            'attached only for\\nbuild purposes"; int nvmlInit_v2(void) { return 9; }')


def real_stubs(name):
    """The toolkit's own, where this machine has one."""
    return sorted(path for pattern in ("/usr/local/cuda*/lib*/stubs/", "/usr/lib/*/stubs/",
                                       os.path.join(harness.DEPS, "cuda-11", "lib", "stubs/"))
                  for path in glob.glob(pattern + name))


class NoDriver(doctor.Case):
    def test_no_driver(self):
        answer = self.doctor()
        self.assertEqual((answer.code, answer.kinds()), (0, ["none"] * 4))
        self.assertEqual((answer.problems, answer.notes, answer.nodes), ([], [], []))
        self.assertEqual((answer.cuinit["outcome"], answer.cuinit["reason"]),
                         ("not tried", "there is no libcuda.so.1"))
        self.assertEqual(answer.machine["kernel_module"]["loaded"], False)
        self.assertIsNone(answer.machine["gpus"])
        self.golden("doctor_none.txt")

    def test_no_loader(self):
        """A root with nothing but us."""
        bwrap = ["bwrap", "--dev", "/dev", "--proc", "/proc", "--ro-bind", harness.LIB, "/x/lib",
                 "--ro-bind", launcher.LAUNCHER, "/x/bin/cudaguard"]
        done = self.bare(*bwrap, "--", "/x/bin/cudaguard", "doctor", env={})
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        self.assertIn("driver libraries were not looked for: there is no /lib", done.stdout)
        self.assertIn("cuInit             not tried: there is no /lib", done.stdout)

    def test_with_a_program(self):
        answer = self.doctor("sh")
        self.assertEqual(answer.code, 0, answer.text)
        self.assertIn("\nguarded: yes", answer.text)
        self.assertEqual(list(answer.document), ["v", "cudaguard", "machine", "program",
                                                 "exit_code"])

    def test_sick_and_guarded_is_1(self):
        answer = self.doctor("sh", CUDA_VISIBLE_DEVICES="0,0")
        self.assertEqual((answer.code, len(answer.problems)), (1, 1))


class Stub(doctor.Case):
    def built(self):
        """A library of the toolkit's shape: every name of the API says 34, and nothing is needed."""
        with open(os.path.join(harness.SOURCE, "shim", "api", "driver.csv"),
                  encoding="utf-8") as stream:
            rows = csv.reader(line for line in stream if not line.startswith("#"))
            names = {row[0] for row in rows if row and row[0].startswith("cu")}
        self.assertGreater(len(names), 500)
        code = "".join("int %s(void) { return 34; }\n" % name for name in sorted(names))
        return os.path.join(self.library("libcuda.so", code, "-O2", "-fno-builtin", "-w",
                                         "-Wl,-soname,libcuda.so.1"), "libcuda.so")

    def stubs(self):
        return [self.built()] + real_stubs("libcuda.so")

    def test_as_the_toolkit_has_it(self):
        """libcuda.so in a folder of LD_LIBRARY_PATH; libcuda.so.1 is another matter."""
        for number, stub in enumerate(self.stubs()):
            with self.subTest(stub=stub):
                folder = self.path("lib%d" % number)
                os.mkdir(folder)
                shutil.copy(stub, os.path.join(folder, "libcuda.so"))
                answer = self.doctor(LD_LIBRARY_PATH="/nowhere:" + folder)
                self.assertEqual(answer.kinds(), ["none", "stub", "none", "none"])
                self.assertEqual(answer.code, 1)
                self.problem(answer, "libcuda.so is the CUDA toolkit's stub", "error 34",
                             'remove "%s" from LD_LIBRARY_PATH' % folder)
                self.assertEqual(answer.cuinit["outcome"], "not tried")
        self.golden("doctor_stub.txt", LD_LIBRARY_PATH="/nowhere:" + self.path("lib0"))

    def test_by_the_first_name_too(self):
        for number, stub in enumerate(self.stubs()):
            with self.subTest(stub=stub):
                folder = self.path("lib%d" % number)
                os.mkdir(folder)
                shutil.copy(stub, os.path.join(folder, "libcuda.so.1"))
                os.symlink("libcuda.so.1", os.path.join(folder, "libcuda.so"))
                answer = self.doctor(LD_LIBRARY_PATH=folder + "/")
                self.assertEqual(answer.kinds(), ["stub", "stub", "none", "none"])
                self.assertEqual((answer.cuinit["code"], answer.cuinit["name"]),
                                 (34, "CUDA_ERROR_STUB_LIBRARY"))
                # Once: both names are one file, and cuInit's answer follows from it.
                self.problem(answer, "libcuda.so.1 is the CUDA toolkit's stub",
                             'remove "%s/" from LD_LIBRARY_PATH' % folder)
                # Control: the probe alone is told 34 too.
                code, out, _, _ = self.run_in([doctor.PROBE], env={"LD_LIBRARY_PATH": folder})
                self.assertEqual(code, 0)
                self.assertIn("cudaguard-probe init 34 ", out)

    def test_behind_a_driver(self):
        """It is not what is found."""
        folder = self.path("lib")
        os.mkdir(folder)
        shutil.copy(self.built(), os.path.join(folder, "libcuda.so"))
        answer = self.doctor(LD_LIBRARY_PATH=BOX + ":" + folder)
        self.assertEqual((answer.code, answer.kinds()[1]), (0, "unknown"))

    def test_preloaded(self):
        stub = self.built()
        answer = self.doctor(LD_PRELOAD=stub)
        self.problem(answer, 'LD_PRELOAD names "%s", the CUDA toolkit\'s stub' % stub)

    def test_nvml(self):
        made = self.library("libnvidia-ml.so.1", NML_STUB, "-Wl,-soname,libnvidia-ml.so.1")
        for number, stub in enumerate([os.path.join(made, "libnvidia-ml.so.1")] +
                                      real_stubs("libnvidia-ml.so")):
            folder = self.path("nvml%d" % number)
            os.mkdir(folder)
            shutil.copy(stub, os.path.join(folder, "libnvidia-ml.so.1"))
            answer = self.doctor(LD_LIBRARY_PATH=folder)
            self.assertEqual(answer.kinds(), ["none", "none", "stub", "none"], stub)
            self.problem(answer, "libnvidia-ml.so.1 is the CUDA toolkit's stub", folder)

    def test_no_stub(self):
        """A folder's name says nothing, 34 alone neither."""
        folder = self.sick(folder="stubs")
        answer = self.doctor(LD_LIBRARY_PATH=folder, CG_ANSWER="34")
        self.assertEqual(answer.kinds()[0], "unknown")
        self.problem(answer, "cuInit fails with 34 CUDA_ERROR_STUB_LIBRARY: libcuda.so.1 is a stub")
        folder = self.library("libcuda.so.1", "int cuInit(unsigned x) { return x ? 1 : 34; } "
                              "int cuMemAlloc(void) { return 34; }", "-O2",
                              "-Wl,-soname,libcuda.so.1")
        self.assertEqual(self.doctor(LD_LIBRARY_PATH=folder).kinds()[0], "unknown")


class RealDriver(doctor.Case):
    def setUp(self):
        super().setUp()
        self.need_real_driver()

    def test_without_a_gpu(self):
        answer = self.doctor(world="real")
        self.assertEqual((answer.code, answer.problems, answer.notes), (0, [], []), answer.text)
        self.assertEqual(answer.kinds()[:3], ["driver"] * 3)
        real = os.path.realpath(harness.real_driver_file())
        cuda = answer.library("libcuda.so.1")
        self.assertEqual(os.path.realpath(cuda["path"]), real)
        self.assertEqual((cuda["file"], cuda["version"]), (real, real.split(".so.")[1]))
        self.assertEqual((answer.cuinit["outcome"], answer.cuinit["code"], answer.cuinit["name"]),
                         ("answer", 100, "CUDA_ERROR_NO_DEVICE"))
        self.assertGreater(answer.cuinit["driver_version"], 9000)
        self.assertEqual(answer.machine["gpus"], [])
        self.assertEqual(answer.nodes, [], "doctor let the driver make device nodes")

    def test_golden(self):
        if not harness.real_driver_dir().endswith("x86_64-linux-gnu/nvidia/current"):
            self.skipTest("for Debian's driver on x86-64")
        self.need_real_driver("libnvidia-opencl.so.1")
        self.golden("doctor_real.txt", world="real")

    @unittest.skipUnless(os.geteuid() == 0, "only root makes device nodes")
    def test_nodes(self):
        """Control: the same question without doctor makes one. And doctor's own is what stops it."""
        code, out, _, nodes = self.run_in([doctor.PROBE], world="real", bwrap=self.kernel())
        self.assertEqual((code, nodes), (0, ["/dev/nvidiactl"]), out)
        result = harness.run([launcher.LAUNCHER, "doctor"], world="real", guard=False,
                             own_filter=True)
        self.assertEqual(result.rc, 0, result)
        self.assertEqual(set(result.device_nodes), {"/dev/nvidiactl"}, "it tried to make it")
        self.assertFalse(os.path.exists("/dev/nvidiactl"))

    def test_in_a_folder_called_stubs(self):
        folder = self.path("stubs")
        os.mkdir(folder)
        os.symlink(harness.real_driver_file(), os.path.join(folder, "libcuda.so.1"))
        answer = self.doctor(world="real", LD_LIBRARY_PATH=folder)
        self.assertEqual((answer.code, answer.kinds()[0]), (0, "driver"), answer.text)

    def test_what_is_not_stopped(self):
        """The same machine without the file has no such note."""
        path = self.make("egl.json", "{}", 0o644)
        for name in ("glvnd/egl_vendor.d/10_nvidia.json", "vulkan/icd.d/nvidia_icd.json"):
            for bound in ([], ["--ro-bind", path, "/usr/share/" + name]):
                answer = self.doctor(world="real", bwrap=self.kernel() + [
                    "--tmpfs", "/usr/share", *bound])
                self.assertEqual([note for note in answer.notes if "Vulkan" in note], [
                    "/usr/share/%s: NVIDIA's OpenGL, EGL and Vulkan open the GPU by themselves, and "
                    "are not stopped" % name] if bound else [], answer.text)

    @unittest.skipUnless(os.geteuid() == 0, "only root becomes another user")
    def test_as_a_user(self):
        answer = self.doctor(world="real", user="65534")
        self.assertEqual((answer.code, answer.cuinit["code"]), (0, 100), answer.text)


class Others(doctor.Case):
    def test_eight_gpus(self):
        answer = self.doctor(LD_LIBRARY_PATH=BOX)
        self.assertEqual((answer.code, answer.cuinit["code"]), (0, 0), answer.text)
        self.assertEqual(sorted(gpu["name"] for gpu in answer.cuinit["gpus"]),
                         ["Box GPU %d" % gpu for gpu in range(8)])
        self.assertEqual(answer.machine["gpus"], answer.cuinit["gpus"])
        self.assertIn("GPUs seen          8\n", answer.text)
        self.golden("doctor_gpus.txt", CUDA_VISIBLE_DEVICES="1,9,2",
                    LD_LIBRARY_PATH=shutil.copytree(BOX, self.path("box")))

    def test_some_of_eight(self):
        answer = self.doctor(LD_LIBRARY_PATH=BOX, CUDA_VISIBLE_DEVICES="1,0",
                             CUDA_DEVICE_ORDER="PCI_BUS_ID")
        self.assertEqual([gpu["name"] for gpu in answer.cuinit["gpus"]], ["Box GPU 1", "Box GPU 0"])
        self.assertEqual([gpu["name"] for gpu in answer.machine["gpus"]],
                         ["Box GPU %d" % gpu for gpu in range(8)])
        self.assertEqual(answer.code, 0, answer.text)

    def test_mig(self):
        part = box.mig(0)
        answer = self.doctor(LD_LIBRARY_PATH=BOX, CG_MIG="1", CUDA_VISIBLE_DEVICES=part)
        self.assertEqual([gpu["uuid"] for gpu in answer.cuinit["gpus"]], [part])

    def test_our_stand_ins(self):
        answer = self.doctor(LD_LIBRARY_PATH=harness.STANDIN_DIR)
        self.assertEqual(answer.kinds(), ["stand-in"] * 4)
        self.assertEqual(answer.cuinit["code"], 100)
        meaning = ("libcuda.so.1 is cudaguard's stand-in", "whatever CUDAGUARD_POLICY says",
                   'remove "%s" from LD_LIBRARY_PATH' % harness.STANDIN_DIR)
        self.problem(answer, *meaning)
        # Behind a driver, too.
        answer = self.doctor(LD_LIBRARY_PATH=BOX + ":" + harness.STANDIN_DIR)
        self.assertEqual(answer.kinds(), ["unknown"] * 3 + ["stand-in"])
        self.problem(answer, "libnvidia-opencl.so.1 is cudaguard's stand-in", *meaning[1:])

    def looks_real(self, name, version):
        """NVIDIA's by its content and by its file's name."""
        folder = self.sick("sick_real", "driver-" + version)
        path = os.path.join(folder, "%s.%s" % (name.split(".so")[0] + ".so", version))
        os.rename(os.path.join(folder, "libcuda.so.1"), path)
        os.symlink(os.path.basename(path), os.path.join(folder, name))
        return folder

    def test_two_drivers(self):
        one = self.looks_real("libcuda.so.1", "550.54.14")
        other = self.looks_real("libcuda.so", "535.54.03")
        answer = self.doctor(LD_LIBRARY_PATH=one + ":" + other)
        self.assertEqual(answer.kinds()[:2], ["driver"] * 2)
        self.problem(answer, "libcuda.so.1 and libcuda.so are different drivers",
                     "libcuda.so.550.54.14", "libcuda.so.535.54.03")

    def test_nvml_of_another_driver(self):
        one = self.looks_real("libcuda.so.1", "550.54.14")
        other = self.looks_real("libnvidia-ml.so.1", "535.54.03")
        answer = self.doctor(LD_LIBRARY_PATH=one + ":" + other)
        self.assertEqual(answer.library("libnvidia-ml.so.1")["version"], "535.54.03")
        self.problem(answer, "libcuda is of driver 550.54.14, NVML of 535.54.03")

    def test_version_by_the_name(self):
        """Of Jetson's and WSL's libcuda.so.1.1 it says nothing."""
        for name, version in (("1.1", None), ("550.54.14", "550.54.14"), ("340.108", "340.108"),
                              ("550.", None), ("550..1", None), ("550.1a", None)):
            folder = self.looks_real("libcuda.so.1", name)
            answer = self.doctor(LD_LIBRARY_PATH=folder)
            self.assertEqual(answer.library("libcuda.so.1")["version"], version, name)

    @unittest.skipUnless(platform.machine() == "x86_64", "another machine's file")
    def test_other_files(self):
        """Text, a cut file, one of another machine: ld.so passes over the last one, as we do."""
        for name, content in (("text", b"INPUT(libcuda.so.1)\n"), ("cut", b"\x7fELF\x02\x01\x01"),
                              ("empty", b"")):
            os.mkdir(self.path(name))
            shutil.move(self.make("file", content), self.path(name, "libcuda.so"))
            answer = self.doctor(LD_LIBRARY_PATH=self.path(name))
            self.assertEqual((answer.code, answer.kinds()[1]), (0, "none"), answer.text)


if __name__ == "__main__":
    harness.main()
