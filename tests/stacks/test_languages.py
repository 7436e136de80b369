# SPDX-License-Identifier: Apache-2.0
"""OpenMP and OpenCL: a runtime makes the call to CUDA, but verify marks the user's function and
names the user's file as the place."""

import os
import shutil
import subprocess

import pytest

from support import harness, launcher, verified

PROGRAMS = os.path.join(harness.SOURCE, "tests", "stacks", "programs")


class Case(launcher.Case):
    def asks(self, words, function, options=(), env=None):
        """Fails unless the unguarded program enters the fake driver, and verify names the program's
        file as the place and marks this function."""
        harness.run(words, guard=False, trace=False, env=env).assert_reached(self)
        result, document = verified.documented(self, words, options, env=env)
        self.assertEqual(result.rc, 1, result)
        name = os.path.basename(words[0])
        self.assertEqual([place["name"] for place in document["places"]], [name], result)
        self.assertIn("> %s: %s\n" % (name, function), result.err, result)

    def made(self, file, *options, compiler):
        """Compiles the program with options that keep `function` as a separate frame. The runtimes
        belong to the compilers."""
        self.need(compiler)
        return self.compile("simulation", os.path.join(PROGRAMS, file), "-O1", "-fno-inline",
                            "-fno-optimize-sibling-calls", *options, compiler=compiler)

    def library(self, name, package):
        """Returns the path at which gcc finds the library."""
        self.need("gcc")
        found = subprocess.run(["gcc", "-print-file-name=" + name], capture_output=True, text=True,
                               check=True).stdout.strip()
        if not os.path.isabs(found):
            harness.skip(self, "not installed: " + package)
        return found


@pytest.mark.full
class OpenMP(Case):
    def test_openmp_of_gcc_marks_the_function(self):
        """libgomp loads its NVIDIA plug-in even for a program without offloaded code."""
        self.library("libgomp-plugin-nvptx.so.1", "libgomp-plugin-nvptx1")
        self.asks([self.made("counts_devices.c", "-fopenmp", compiler="gcc")], "ask")

    def test_openmp_of_clang_marks_the_load_before_main(self):
        """libomptarget loads its NVIDIA plug-in before main, whatever target a program is built
        for."""
        self.need("clang")
        root = os.path.dirname(os.path.dirname(os.path.realpath(shutil.which("clang"))))
        if not os.path.exists(root + "/lib/libomptarget.so"):
            harness.skip(self, "not installed: libomp-dev")
        if not os.path.exists(root + "/lib/libomptarget.rtl.cuda.so"):
            self.skipTest("this libomptarget has no plug-ins, and opens the driver later")
        program = self.made("offloads.c", "-fopenmp",
                            "-fopenmp-targets=x86_64-pc-linux-gnu", compiler="clang")
        self.asks([program], ".omp_offloading.descriptor_reg",
                  env={"LD_LIBRARY_PATH": root + "/lib"})


class OpenCL(Case):
    def test_opencl_loader_marks_the_function(self):
        loader = self.library("libOpenCL.so.1", "ocl-icd-libopencl1")
        self.make("nvidia.icd", "libnvidia-opencl.so.1\n", 0o644)
        self.asks([self.made("counts_platforms.c", loader, compiler="gcc")], "ask",
                  ["--deny=opencl"], {"OCL_ICD_VENDORS": self.directory})
