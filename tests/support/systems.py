# SPDX-License-Identifier: Apache-2.0
"""Runs programs in systems of other releases (scripts/fetch-roots, as root).

The programs are compiled here and linked to the libraries of the system that runs them. Linked to
this machine's glibc, they would require symbols that an older glibc lacks.
"""

import os
import shutil
import subprocess

from support import harness, launcher

ROOTS = os.path.join(harness.DEPS, "roots")
SOURCES = os.path.join(harness.SOURCE, "tests", "programs")
CUDA_12 = os.path.join(harness.DEPS, "cuda-12")
CUDA_13 = os.path.join(harness.DEPS, "cuda-13")
ARCH = os.uname().machine + "-linux-gnu"
ENTRY_POINT = "/mnt/programs/entry_point"
LINKED = "/mnt/programs/linked_cuda"


def find(root, name):
    """Returns the path on this machine of one of the system's libraries."""
    for directory in ("lib/" + ARCH, "usr/lib/" + ARCH, "lib64", "usr/lib64"):
        path = os.path.join(root, directory, name)
        if os.path.exists(path):
            return path
    raise RuntimeError("%s has no %s" % (root, name))


def gcc_file(name):
    return subprocess.run(["gcc", "-print-file-name=" + name], check=True, capture_output=True,
                          text=True).stdout.strip()


def link(root, sources, output, libraries, includes=(), archives=(), flags=(), libdl=True):
    """Compiles here and links to the root's own libraries only."""
    start = [gcc_file(name) for name in ("crt1.o", "crti.o", "crtbegin.o")]
    end = [gcc_file(name) for name in ("crtend.o", "crtn.o")]
    kind = ["-no-pie", "-fno-pie"]
    if output.endswith(".so"):
        start, kind = [gcc_file("crti.o"), gcc_file("crtbeginS.o")], ["-shared", "-fPIC"]
    compiler = ["g++", "-std=c++20"] if sources[0].endswith("pp") else ["gcc", "-std=gnu11"]
    command = [*compiler, "-O1", "-D_GNU_SOURCE", "-U_FORTIFY_SOURCE", *kind,
               *("-I" + directory for directory in includes), *flags, "-nostdlib",
               "-Wl,--allow-shlib-undefined", "-Wl,--no-as-needed",
               *start, *sources, *archives,
               *(find(root, name) if "/" not in name else name for name in libraries),
               *([find(root, "libdl.so.2"), find(root, "libpthread.so.0")] if libdl else []),
               find(root, "libc.so.6"),
               gcc_file("libc_nonshared.a"), gcc_file("libgcc.a"), *end, "-o", output]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(" ".join(command) + "\n" + done.stderr)


def build_programs(root, directory):
    """Builds the programs that need only glibc."""
    link(root, [os.path.join(SOURCES, "entry_point.c")], os.path.join(directory, "entry_point"), [])
    link(root, [os.path.join(SOURCES, "linked_cuda.c")], os.path.join(directory, "linked_cuda"),
         [os.path.join(harness.FAKE_DRIVER, "libcuda.so.1")])


def build_more_programs(root, directory):
    link(root, [os.path.join(SOURCES, "plugin_open.c")], os.path.join(directory, "plugin_open.so"), [])
    link(root, [os.path.join(SOURCES, "runtime.cpp")], os.path.join(directory, "runtime_12_static"),
         ["librt.so.1", "libstdc++.so.6", "libm.so.6", "libgcc_s.so.1"],
         includes=[CUDA_12 + "/include", CUDA_13 + "/include"],
         archives=[CUDA_12 + "/lib/libcudart_static.a"])


class Case(harness.DirectoryCase):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            harness.skip(self, "only root can make and enter another system")
        self.need("debootstrap", "gcc", "g++")
        if not os.path.exists(CUDA_12 + "/lib/libcudart_static.a"):
            harness.skip(self, "no CUDA 12 runtime: scripts/fetch-cuda %s 12 13" % harness.DEPS)
        self.scratch, self.programs = self.directory, self.path("programs")
        os.mkdir(self.programs)
        os.mkdir(self.path("bin"))
        shutil.copy(launcher.LAUNCHER, self.path("bin"))

    def system(self, suite):
        """Returns the directory of a whole system."""
        script = os.path.join(harness.SOURCE, "scripts", "fetch-roots")
        fetch = subprocess.run([script, ROOTS, suite], capture_output=True, text=True)
        if fetch.returncode != 0:
            # This machine's packages come from Debian's archive, but not every machine can reach
            # Ubuntu's.
            if suite == "xenial":
                self.skipTest(fetch.stderr.strip())
            harness.skip(self, fetch.stderr.strip())
        return os.path.join(ROOTS, suite)

    def run_inside(self, root, argv, preload=(), driver=True, mounts=("dev", "proc"), directory="/",
                   env=None):
        """Runs argv in the system, which sees /mnt/{bin,lib,driver,programs} and the mounts that
        `mounts` names. driver=False: the system has no driver."""
        out = self.path("out")
        shutil.rmtree(out, ignore_errors=True)
        os.mkdir(out)
        trace = self.path("strace.log")
        command = ["strace", "-f", "-qq", "-s", "256", "-o", trace,
                   "-e", "trace=" + harness.TRACED, "-e", "signal=none", "--",
                   "bwrap", "--ro-bind", root, "/", "--tmpfs", "/mnt",
                   "--ro-bind", harness.LIB, "/mnt/lib",
                   "--ro-bind", self.path("bin"), "/mnt/bin",
                   "--ro-bind", self.programs, "/mnt/programs",
                   "--bind", out, "/mnt/out", "--clearenv", "--die-with-parent",
                   "--chdir", directory]
        for name in mounts:
            command += ["--" + name, "/" + name]
        environment = {"PATH": "/usr/bin:/bin", "CG_FAKE_LOG": "/mnt/out/fake.log", **(env or {})}
        if driver:
            command += ["--ro-bind", harness.FAKE_DRIVER, "/mnt/driver"]
            environment["LD_LIBRARY_PATH"] = "/mnt/driver"
        if preload:
            environment["LD_PRELOAD"] = ":".join(preload)
        for item in environment.items():
            command += ["--setenv", *item]
        done = subprocess.run(command + argv, capture_output=True, text=True, timeout=120,
                              stdin=subprocess.DEVNULL)
        result = harness.Result()
        result.words = list(map(str, argv))
        result.rc, result.out, result.err = done.returncode, done.stdout, done.stderr
        with open(trace, encoding="utf-8", errors="replace") as log:
            harness.parse_trace(log, result)
        # The harness knows our directory by its path outside the system.
        result.driver_files = [path for path in result.driver_files
                               if not path.startswith("/mnt/lib/cudaguard/")]
        fake_log = os.path.join(out, "fake.log")
        if os.path.exists(fake_log):
            result.fake_calls = harness.read(fake_log).split()
        return result
