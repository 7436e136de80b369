# SPDX-License-Identifier: Apache-2.0
"""The install tree, and every way of naming the guard in it."""

import errno
import os
import shutil
import subprocess
import time

from support import guest, harness, messages

NOT_FOUND = "ERROR: ld.so: object '%s' from LD_PRELOAD cannot be preloaded"
DRIVER_NAMES = ("libcuda.so", "libcuda.so.1", "libnvidia-ml.so", "libnvidia-ml.so.1")


class Install(guest.Case):
    def setUp(self):
        super().setUp()
        self.lib = self.path("prefix", "lib")
        os.mkdir(self.path("prefix"))
        self.guard = harness.copy_install(self.lib)

    def guarded(self, preload, *steps, count=1, **options):
        """Runs the steps (by default an attempt of each kind) with LD_PRELOAD=preload: guarded."""
        env = {"LD_PRELOAD": preload, **options.pop("env", {})}
        result = self.steps(*(steps or ("load:libm.so.6", "ask", "nvml", "ask:libcuda.so")),
                            guard=False, env=env, **options)
        self.assertEqual(result.rc, 0, result)
        self.assertEqual(result.answers.get("cuInit"), "100", result)
        self.untouched(result)
        self.assertEqual(result.err.count("\n"), count, result)
        self.assertEqual(guest.lines_of(result.err)[0], guest.DENIED % "steps")
        return result

    def test_control_driver_is_reached_without_the_guard(self):
        self.steps("ask", guard=False).assert_reached(self)

    def test_ldconfig_makes_no_driver_link(self):
        done = subprocess.run(["cmake", "--install", harness.BUILD, "--prefix", self.path("i")],
                              capture_output=True, text=True, check=False)
        if done.returncode == 0:
            lib = self.path("i", "lib")
        else:  # CTest's build has targets that were not built; the copied tree has the same shape
            lib = self.lib
        self.assertTrue(os.path.exists(os.path.join(lib, "libcudaguard.so")), os.listdir(lib))
        inner = os.path.join(lib, "cudaguard")
        before = {directory: set(os.listdir(directory)) for directory in (lib, inner)}
        subprocess.run(["/sbin/ldconfig", "-n", lib, inner], check=True, timeout=60)
        for name in DRIVER_NAMES:
            self.assertNotIn(name, os.listdir(lib))
        self.assertEqual(set(os.listdir(lib)), before[lib])
        # cudaguard/ has these names already. ldconfig looks there only if it is named.
        self.assertEqual(set(os.listdir(inner)), before[inner])

    def test_control_ldconfig_links_a_library_with_the_drivers_soname(self):
        """Control: a library with the driver's SONAME does get a link."""
        shutil.copy(harness.NULL_DRIVER_CUDA, os.path.join(self.lib, "other.so"))
        os.rename(os.path.join(self.lib, "other.so"), os.path.join(self.lib, "libother.so.1.2"))
        subprocess.run(["/sbin/ldconfig", "-n", self.lib], check=True, timeout=60)
        self.assertIn("libcuda.so.1", os.listdir(self.lib))

    def test_relative_preload_path_guards(self):
        for preload, cwd in (("./libcudaguard.so", self.lib), ("prefix/lib/libcudaguard.so",
                                                               self.directory),
                             ("../lib/libcudaguard.so", self.lib)):
            with self.subTest(preload):
                self.guarded(preload, cwd=cwd)

    def test_chdir_before_the_first_attempt_changes_nothing(self):
        self.guarded("prefix/lib/libcudaguard.so", "chdir:/", "load:libm.so.6", "ask", "nvml",
                     cwd=self.directory)
        self.guarded(self.guard, "chdir:/", "ask")
        # To a place where the same relative path names a driver.
        trap = self.path("trap", "prefix", "lib", "cudaguard")
        os.makedirs(trap)
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            shutil.copy(os.path.join(harness.FAKE_DRIVER, name), trap)
        self.guarded("prefix/lib/libcudaguard.so", "chdir:" + self.path("trap"), "ask", "nvml",
                     cwd=self.directory)

    def test_symbolic_link_to_the_guard_guards(self):
        os.symlink(self.guard, self.path("link.so"))
        os.mkdir(self.path("elsewhere"))
        os.symlink("../prefix/lib/libcudaguard.so", self.path("elsewhere", "libcudaguard.so"))
        os.symlink(self.lib, self.path("directory"))
        for preload in (self.path("link.so"), self.path("elsewhere", "libcudaguard.so"),
                        self.path("directory", "libcudaguard.so")):
            with self.subTest(preload):
                self.guarded(preload)

    def test_moved_installation_guards(self):
        os.rename(self.path("prefix"), self.path("another place"))
        # ld.so splits LD_PRELOAD at spaces: by a link.
        os.symlink(self.path("another place"), self.path("place"))
        self.guarded(self.path("place", "lib", "libcudaguard.so"))

    def test_missing_null_driver_is_refused_and_named(self):
        for gone in (["libcuda.so.1"], ["libnvidia-ml.so.1"], ["libcuda.so.1", "libnvidia-ml.so.1"]):
            for real in ("fake", "none") + (("real",) if harness.have_real_driver() else ()):
                with self.subTest(gone=gone, world=real):
                    shutil.rmtree(self.lib)
                    harness.copy_install(self.lib)
                    for name in gone:
                        os.unlink(os.path.join(self.lib, "cudaguard", name))
                    result = self.steps("load:libm.so.6", "ask", "ask:libcuda.so", "nvml",
                                        guard=False, world=real, env={"LD_PRELOAD": self.guard})
                    self.assertEqual(result.rc, 0, result)
                    self.untouched(result)
                    lines = guest.lines_of(result.err)
                    # At the first dlopen, whatever it asks for: before all else.
                    missing = messages.find(result.err, "file_broken",
                                            why=messages.text("missing"))
                    self.assertEqual(len(missing), len(gone), result)
                    for name in gone:
                        line = messages.text(
                            "file_broken", file=os.path.join(self.lib, "cudaguard", name),
                            why=messages.text("missing"),
                            library="NVML" if "nvidia-ml" in name else "CUDA")
                        self.assertEqual(lines[:len(gone)].count(line), 1, result)
                        self.assertEqual(lines.count(line), 1, result)
                    wanted = "unavailable" if "libcuda.so.1" in gone else "100"
                    self.assertEqual(result.answers["cuInit"], wanted, result)
                    wanted = "unavailable" if "libnvidia-ml.so.1" in gone else "9"
                    self.assertEqual(result.answers["nvmlInit_v2"], wanted, result)

    def upgraded(self, *command, cwd=None):
        """Replaces the guard's file while a guarded program runs. Returns (exit code, what the
        program printed after that, whether it reached the driver)."""
        shutil.rmtree(self.lib)
        harness.copy_install(self.lib)
        new = self.path("new", "libcudaguard.so")
        os.makedirs(self.path("new"), exist_ok=True)
        # Another library, so that a process that still reads from the file would fail.
        shutil.copy(harness.NULL_DRIVER_NVML, new)
        gate, log = self.path("gate"), self.path("fake.log")
        if not os.path.exists(gate):
            os.mkfifo(gate)
        env = harness.child_environment("fake", False, {"LD_PRELOAD": self.guard}, (), log)
        process = subprocess.Popen(
            [guest.STEPS, "ask", "print:ready", "open:%s:r" % gate, "load:libm.so.6", "ask",
             "ask:libcuda.so"], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "cuInit=100\n")
        self.assertIn("ready", process.stdout.readline())
        subprocess.run(command, check=True, timeout=60, cwd=cwd, stdout=subprocess.DEVNULL)
        with open(new, "rb") as one, open(self.guard, "rb") as other:
            self.assertEqual(one.read() if os.path.exists(new) else b"", other.read())
        # A program that has crashed never opens the gate, so open() would never return.
        writer = None
        while writer is None and process.poll() is None:
            try:
                writer = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                self.assertEqual(error.errno, errno.ENXIO)  # the program has not opened it yet
                time.sleep(0.01)
        out = process.communicate(timeout=60)[0]
        if writer is not None:
            os.close(writer)
        return process.returncode, out, os.path.exists(log)

    def test_upgrade_keeps_a_running_program_guarded(self):
        """README: these put a new file in the old one's place; who has the old one keeps it."""
        new, archive = self.path("new", "libcudaguard.so"), self.path("new.tar")
        script = self.path("install.cmake")
        with open(script, "w", encoding="utf-8") as stream:  # what cmake --install does
            stream.write('file(INSTALL "%s" DESTINATION "%s")\n' % (new, self.lib))
        for command in (["install", new, self.guard], ["cmake", "-P", script],
                        ["sh", "-c", 'cp "$1" "$2.new" && mv "$2.new" "$2"', "sh", new, self.guard],
                        ["sh", "-c", 'tar -cf "$1" -C "${2%/*}" libcudaguard.so && '
                         'tar -xf "$1" -C "${3%/*}"', "sh", archive, new, self.guard]):
            with self.subTest(command[0], last=command[-1]):
                code, out, reached = self.upgraded(*command)
                self.assertEqual(code, 0)
                self.assertRegex(out, r"(?s)load=ok.*cuInit=100.*cuInit=100")
                self.assertFalse(reached)

    def test_limit_upgrade_by_cp_kills_a_running_program(self):
        """Documented: cp writes into the very file that running programs have mapped. Most crash, but
        some only get no more answers."""
        code, out, _ = self.upgraded("cp", self.path("new", "libcudaguard.so"), self.guard)
        self.assertTrue(code < 0 or "cuInit=100" not in out, (code, out))

    def test_file_name_is_found_by_ld_library_path(self):
        self.guarded("libcudaguard.so",
                     env={"LD_LIBRARY_PATH": harness.FAKE_DRIVER + ":" + self.lib})

    def test_file_name_is_found_by_ld_so_cache(self):
        """In the default installation, the guard's directory is in ld.so.cache. The test makes the
        cache in a copy."""
        cache = self.path("ld.so.cache")
        config = self.path("ld.so.conf")
        with open("/etc/ld.so.conf", encoding="utf-8") as old, \
                open(config, "w", encoding="utf-8") as new:
            new.write(old.read() + "\n" + self.lib + "\n")
        subprocess.run(["/sbin/ldconfig", "-X", "-C", cache, "-f", config], check=True, timeout=60,
                       stderr=subprocess.DEVNULL)
        bind = ("--ro-bind", cache, "/etc/ld.so.cache")
        self.guarded("libcudaguard.so", bwrap=bind)
        # And the cache has not made a driver of it.
        listing = subprocess.run(["/sbin/ldconfig", "-C", cache, "-p"], capture_output=True,
                                 text=True, check=True).stdout
        self.assertIn(self.guard, listing)
        self.assertNotIn(os.path.join(self.lib, "cudaguard"), listing)

    def test_file_name_that_is_not_found_leaves_the_program_unguarded(self):
        """The exit code is 0, and ld.so prints one line. docs/troubleshooting.md names this trap
        first."""
        result = self.steps("ask", guard=False, env={"LD_PRELOAD": "libcudaguard-none.so"})
        self.assertEqual(result.rc, 0, result)
        result.assert_reached(self)
        self.assertIn(NOT_FOUND % "libcudaguard-none.so", result.err)
