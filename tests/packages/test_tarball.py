# SPDX-License-Identifier: Apache-2.0
"""The tarball works in the directory where it is unpacked, and CMake and pkg-config find it there.
"""

import os
import shutil
import subprocess
import sys

from support import harness, packaged

PROGRAM = os.path.join(harness.SOURCE, "tests", "packages", "programs", "user.c")
LISTS = """
cmake_minimum_required(VERSION 3.13)
project(user C)
find_package(cudaguard %s REQUIRED CONFIG)
# As Ubuntu's compilers do by themselves.
set(CMAKE_EXE_LINKER_FLAGS "-Wl,--as-needed")
add_executable(user user.c)
target_link_libraries(user PRIVATE cudaguard::cudaguard)
file(WRITE "${CMAKE_BINARY_DIR}/launcher" "${cudaguard_LAUNCHER}")
file(WRITE "${CMAKE_BINARY_DIR}/library" "${cudaguard_LIBRARY}")
"""
GUARDED = "attempts 0 1, cuInit 100\n"


class Tarball(packaged.Case):
    def setUp(self):
        super().setUp()
        self.tree = self.unpacked()

    def ask(self, *command, guard=True, **env):
        """Runs a program that asks the driver, started by this command, in the world of the fake
        driver."""
        result = harness.run([*command, sys.executable, "-c", packaged.ASK], guard=False, env=env)
        self.assertEqual(result.rc, 0, result)
        if guard:
            self.assertEqual(result.out, "100\n", result)
            self.assertEqual(result.init_calls(), [], result)
            self.assertIn("cudaguard[", result.err)
        else:
            result.assert_reached(self)
        return result

    def test_tarball_has_the_listed_files(self):
        found = {name for name in packaged.tree(self.tree) if not name.startswith("share/doc/")}
        self.assertEqual(found, packaged.listed())
        documents = os.listdir(os.path.join(self.tree, "share/doc/cudaguard"))
        self.assertLessEqual({"README.md", "CHANGELOG.md", "LICENSE", "copyright", "docs"},
                             set(documents))

    def test_launcher_runs_where_it_is_unpacked(self):
        launcher = os.path.join(self.tree, "bin", "cudaguard")
        self.ask(guard=False)
        self.ask(launcher, "run", "--")
        self.ask(LD_PRELOAD=os.path.join(self.tree, "lib", "libcudaguard.so"))
        printed = packaged.run([launcher, "--version"]).stdout
        self.assertEqual(printed, "cudaguard %s\n" % packaged.version())

    def test_launcher_runs_when_moved_or_linked(self):
        os.rename(self.tree, self.path("moved"))
        os.mkdir(self.path("bin"))
        os.symlink(self.path("moved", "bin", "cudaguard"), self.path("bin", "cudaguard"))
        self.ask(self.path("bin", "cudaguard"), "run", "--")
        self.ask("cudaguard", "run", "--", PATH=self.path("bin") + ":" + os.environ["PATH"])

    def test_tarball_can_be_unpacked_over_itself(self):
        """--strip-components=1 unpacks it into a prefix twice."""
        for _ in range(2):
            os.makedirs(self.path("prefix"), exist_ok=True)
            subprocess.run(["tar", "-xzf", packaged.released(self, packaged.TARBALL),
                            "--strip-components=1", "-C", self.path("prefix")], check=True)
            self.ask(self.path("prefix", "bin", "cudaguard"), "run", "--")

    def build_by_cmake(self, prefix, version="0.2"):
        self.need("cmake", "cc")
        shutil.copy(PROGRAM, self.path("user.c"))
        self.make("CMakeLists.txt", LISTS % version)
        build = self.path("build")
        shutil.rmtree(build, ignore_errors=True)
        done = packaged.run(["cmake", "-S", self.directory, "-B", build,
                             "-DCMAKE_PREFIX_PATH=" + prefix])
        if done.returncode == 0:
            done = packaged.run(["cmake", "--build", build])
        return done

    def test_cmake_finds_the_package(self):
        moved = self.path("moved")
        os.rename(self.tree, moved)
        done = self.build_by_cmake(moved)
        self.assertEqual(done.returncode, 0, done.stdout)
        user = self.path("build", "user")
        result = harness.run([user], guard=False)
        self.assertEqual(result.out, GUARDED, result)
        self.assertEqual(result.init_calls(), [], result)
        self.ask(harness.read(self.path("build", "launcher")), "run", "--")
        self.ask(LD_PRELOAD=harness.read(self.path("build", "library")))

    def test_cmake_refuses_another_version(self):
        done = self.build_by_cmake(self.tree, version="1.0")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("version: " + packaged.version(), done.stdout)

    def test_pkg_config_finds_the_package(self):
        self.need("pkg-config", "cc")
        moved = self.path("moved")
        os.rename(self.tree, moved)
        lib = os.path.join(moved, "lib")
        env = {**os.environ, "PKG_CONFIG_PATH": os.path.join(lib, "pkgconfig")}
        asked = packaged.run(["pkg-config", "--cflags", "--libs", "cudaguard"], env=env)
        self.assertEqual(asked.returncode, 0, asked.stdout)
        printed = packaged.run(["pkg-config", "--modversion", "cudaguard"], env=env).stdout
        self.assertEqual(printed.strip(), packaged.version())
        shutil.copy(PROGRAM, self.path("user.c"))
        flags = asked.stdout.split()
        for linked, wanted in ((flags, GUARDED), (flags[:1], "no guard\n")):
            done = packaged.run(["cc", "-Wl,--as-needed", self.path("user.c"), "-o",
                                 self.path("user"), *linked])
            self.assertEqual(done.returncode, 0, done.stdout)
            result = harness.run([self.path("user")], guard=False,
                                 env={"LD_LIBRARY_PATH": lib})
            self.assertEqual(result.out, wanted, result)

    def test_aarch64_launcher_runs_under_qemu(self):
        """The AArch64 launcher runs as far as qemu-user can run it."""
        name = "cudaguard-%s-linux-aarch64.tar.gz" % packaged.version()
        packaged.released(self, name, quick=False)
        tree = self.unpacked(name, "other")
        self.assertEqual(set(packaged.tree(tree)), set(packaged.tree(self.tree)))
        self.need("qemu-aarch64")
        launcher = os.path.join(tree, "bin", "cudaguard")
        printed = packaged.run(["qemu-aarch64", launcher, "--version"]).stdout
        self.assertEqual(printed, "cudaguard %s\n" % packaged.version())
