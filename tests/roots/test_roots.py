# SPDX-License-Identifier: Apache-2.0
"""The guard as it was built here loads and guards in the minimal systems of other releases.

scripts/fetch-roots makes the systems, as root. The programs are compiled here and linked to the
libraries of the system they run in, as a glibc of this machine would ask too much of an older one.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), area) for area in ("doors", "harness")]

import harness  # noqa: E402
import matrix  # noqa: E402

ROOTS = os.path.join(harness.DEPS, "roots")
SOURCES = os.path.join(harness.SOURCE, "tests", "programs")
CUDA_12 = os.path.join(harness.DEPS, "cuda-12")
CUDA_13 = os.path.join(harness.DEPS, "cuda-13")
ARCH = os.uname().machine + "-linux-gnu"
DOOR = "/mnt/programs/door"
# name, command, expected answers, more libraries in LD_PRELOAD behind the guard
DOORS = [
    ("soname", [DOOR, "lib=libcuda.so.1"], matrix.CUDA, ()),
    ("dev name", [DOOR, "lib=libcuda.so"], matrix.CUDA, ()),
    ("path", [DOOR, "lib=/mnt/driver/libcuda.so.1"], matrix.CUDA, ()),
    ("deepbind", [DOOR, "lib=libcuda.so", "flags=now,deepbind"], matrix.CUDA, ()),
    ("deepbind plug-in", [DOOR, "plugin=/mnt/programs/plugin_open.so", "flags=now,deepbind"],
     matrix.CUDA, ()),
    ("dlmopen", [DOOR, "lib=libcuda.so.1", "space=new"], matrix.CUDA, ()),
    ("thread", [DOOR, "lib=libcuda.so.1", "when=thread"], matrix.CUDA, ()),
    ("fork", [DOOR, "lib=libcuda.so.1", "when=fork"], matrix.CUDA, ()),
    ("nvml", [DOOR, "api=nvml", "lib=libnvidia-ml.so.1"], matrix.NVML, ()),
    ("linked", ["/mnt/programs/linked_cuda", "proc"], {"cuInit": "100", "cuInit1": "1"}, ()),
    ("linked, stand-in preloaded", ["/mnt/programs/linked_cuda", "plt"],
     {"cuInit": "100", "version": "99990"}, ("/mnt/lib/cudaguard/libcuda.so.1",)),
    ("static cudart 12", ["/mnt/programs/runtime_12_static", "count"],
     {"cudaGetDeviceCount": "100"}, ()),
]  # fmt: skip


def find(root, name):
    """A library of the system, as the path of its file here."""
    for folder in ("lib/" + ARCH, "usr/lib/" + ARCH, "lib64", "usr/lib64"):
        path = os.path.join(root, folder, name)
        if os.path.exists(path):
            return path
    raise RuntimeError("%s has no %s" % (root, name))


def gcc_file(name):
    return subprocess.run(["gcc", "-print-file-name=" + name], check=True, capture_output=True,
                          text=True).stdout.strip()


def link(root, sources, output, libraries, includes=(), archives=()):
    """Compiles here, links to the root's own libraries and nothing else."""
    start = [gcc_file(name) for name in ("crt1.o", "crti.o", "crtbegin.o")]
    end = [gcc_file(name) for name in ("crtend.o", "crtn.o")]
    kind = ["-no-pie", "-fno-pie"]
    if output.endswith(".so"):
        start, kind = [gcc_file("crti.o"), gcc_file("crtbeginS.o")], ["-shared", "-fPIC"]
    compiler = ["g++", "-std=c++20"] if sources[0].endswith("pp") else ["gcc", "-std=gnu11"]
    command = [*compiler, "-O1", "-D_GNU_SOURCE", "-U_FORTIFY_SOURCE", *kind,
               *("-I" + folder for folder in includes), "-nostdlib",
               "-Wl,--allow-shlib-undefined", "-Wl,--no-as-needed",
               *start, *sources, *archives,
               *(find(root, name) if "/" not in name else name for name in libraries),
               find(root, "libdl.so.2"), find(root, "libpthread.so.0"), find(root, "libc.so.6"),
               gcc_file("libc_nonshared.a"), gcc_file("libgcc.a"), *end, "-o", output]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(" ".join(command) + "\n" + done.stderr)


def build_programs(root, folder):
    link(root, [os.path.join(SOURCES, "door.c")], os.path.join(folder, "door"), [])
    link(root, [os.path.join(SOURCES, "linked_cuda.c")], os.path.join(folder, "linked_cuda"),
         [os.path.join(harness.FAKE_DRIVER, "libcuda.so.1")])
    link(root, [os.path.join(SOURCES, "plugin_open.c")], os.path.join(folder, "plugin_open.so"), [])
    link(root, [os.path.join(SOURCES, "runtime.cpp")], os.path.join(folder, "runtime_12_static"),
         ["librt.so.1", "libstdc++.so.6", "libm.so.6", "libgcc_s.so.1"],
         includes=[CUDA_12 + "/include", CUDA_13 + "/include"],
         archives=[CUDA_12 + "/lib/libcudart_static.a"])


class Roots(harness.Case):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            harness.skip(self, "only root can make and enter another system")
        for tool in ("debootstrap", "gcc", "g++"):
            if not shutil.which(tool):
                harness.skip(self, tool + " is not installed")
        if not os.path.exists(CUDA_12 + "/lib/libcudart_static.a"):
            harness.skip(self, "no CUDA 12 runtime: scripts/fetch-cuda %s 12 13" % harness.DEPS)

    def prepare(self, suite):
        script = os.path.join(harness.SOURCE, "scripts", "fetch-roots")
        fetch = subprocess.run([script, ROOTS, suite], capture_output=True, text=True)
        if fetch.returncode != 0:
            harness.skip(self, fetch.stderr.strip())
        scratch = tempfile.TemporaryDirectory(prefix="cg-roots-")
        self.addCleanup(scratch.cleanup)
        root = os.path.join(ROOTS, suite)
        programs = os.path.join(scratch.name, "programs")
        os.mkdir(programs)
        build_programs(root, programs)
        return root, scratch.name

    def run_inside(self, root, scratch, argv, preload=()):
        """Runs argv in the system, which sees /mnt/{lib,driver,programs} and a /dev of its own."""
        out = os.path.join(scratch, "out")
        shutil.rmtree(out, ignore_errors=True)
        os.mkdir(out)
        command = ["strace", "-f", "-qq", "-s", "256", "-o", os.path.join(scratch, "strace.log"),
                   "-e", "trace=" + harness.TRACED, "-e", "signal=none", "--",
                   "bwrap", "--ro-bind", root, "/", "--dev", "/dev", "--proc", "/proc",
                   "--tmpfs", "/mnt", "--ro-bind", harness.LIB, "/mnt/lib",
                   "--ro-bind", harness.FAKE_DRIVER, "/mnt/driver",
                   "--ro-bind", os.path.join(scratch, "programs"), "/mnt/programs",
                   "--bind", out, "/mnt/out", "--clearenv",
                   "--die-with-parent"]
        environment = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": "/mnt/driver",
                       "CG_FAKE_LOG": "/mnt/out/fake.log"}
        if preload:
            environment["LD_PRELOAD"] = ":".join(preload)
        for item in environment.items():
            command += ["--setenv", *item]
        done = subprocess.run(command + argv, capture_output=True, text=True, timeout=120,
                              stdin=subprocess.DEVNULL)
        result = harness.Result()
        result.command = " ".join(argv)
        result.rc, result.out, result.err = done.returncode, done.stdout, done.stderr
        with open(os.path.join(scratch, "strace.log"), encoding="utf-8", errors="replace") as log:
            harness.parse_trace(log, result)
        # The harness knows our folder by its name outside.
        result.driver_files = [path for path in result.driver_files
                               if not path.startswith("/mnt/lib/cudaguard/")]
        fake_log = os.path.join(out, "fake.log")
        if os.path.exists(fake_log):
            with open(fake_log, encoding="utf-8") as log:
                result.fake_calls = log.read().split()
        return result

    def doors_in(self, suite, glibc):
        root, scratch = self.prepare(suite)
        version = self.run_inside(root, scratch, ["ldd", "--version"])
        self.assertRegex(version.out, r"GLIBC %s|GNU libc\) %s" % (glibc, glibc))
        quiet = self.run_inside(root, scratch, ["/bin/true"], ["/mnt/lib/libcudaguard.so"])
        self.assertEqual((quiet.rc, quiet.out, quiet.err), (0, "", ""), quiet)
        for name, argv, expect, preload in DOORS:
            with self.subTest(door=name):
                bare = self.run_inside(root, scratch, argv)
                bare.assert_reached(self)
                guarded = self.run_inside(root, scratch, argv,
                                          ("/mnt/lib/libcudaguard.so",) + preload)
                guarded.assert_untouched(self, linked=name == "linked")
                for key, wanted in expect.items():
                    self.assertIn(guarded.answers.get(key),
                                  wanted if isinstance(wanted, tuple) else (wanted,),
                                  "%s\n%s" % (key, guarded))
                self.assertEqual(guarded.rc, 0, guarded)
                self.assertEqual([line for line in guarded.err.splitlines()
                                  if not matrix.OUR_LINE.match(line)], [])
                self.assertTrue(matrix.OUR_LINE.search(guarded.err.strip()), guarded)

    def test_bullseye(self):
        self.doors_in("bullseye", r"2\.31")

    def test_trixie(self):
        self.doors_in("trixie", r"2\.41")


if __name__ == "__main__":
    harness.main()
