# SPDX-License-Identifier: Apache-2.0
"""What README says to packagers: which dependencies dpkg-shlibdeps finds in the installed files."""

import os
import shutil
import subprocess
import tempfile
import unittest

from support import harness


class Dependencies(unittest.TestCase):
    def shlibdeps(self, file):
        """(exit code, the dependencies it writes)"""
        if not shutil.which("dpkg-shlibdeps"):
            harness.skip(self, "not installed: dpkg-dev")
        with tempfile.TemporaryDirectory(prefix="cg-") as directory:
            os.mkdir(os.path.join(directory, "debian"))
            with open(os.path.join(directory, "debian", "control"), "w", encoding="utf-8") as stream:
                stream.write("Source: x\n\nPackage: x\nArchitecture: any\n")
            done = subprocess.run(["dpkg-shlibdeps", "-O", "-e" + file], cwd=directory, text=True,
                                  capture_output=True, check=False, timeout=120)
        return done.returncode, done.stdout

    def test_the_guard_needs_libc(self):
        code, found = self.shlibdeps(harness.GUARD)
        self.assertEqual(code, 0)
        self.assertRegex(found, r"\Ashlibs:Depends=libc6 \(>= [0-9.]+\)\n\Z")

    def test_limit_without_the_exclusion(self):
        """Documented: with the proxies looked at, the driver's package would be needed, or one is
        not found."""
        for name in ("libcudaguard-driver.so", "libcudaguard-nvml.so"):
            code, found = self.shlibdeps(os.path.join(harness.NULL_DRIVER_DIR, name))
            self.assertTrue(code != 0 or "libcuda" in found or "libnvidia-ml" in found, found)


class Directories(unittest.TestCase):
    def test_relative_prefix(self):
        """`cmake --install` makes its directories below any prefix and DESTDIR, readable by all."""
        script = os.path.join(harness.SOURCE, "scripts", "make-directories.cmake")
        with tempfile.TemporaryDirectory(prefix="cg-") as directory:
            for prefix, destdir, made in (("a", "", "a"), ("b/c", "d", "db/c"), ("/e", "f", "f/e"),
                                          ("/g", directory + "/h", "h/g")):
                with self.subTest(prefix=prefix, destdir=destdir):
                    subprocess.run(["cmake", "-DCMAKE_INSTALL_PREFIX=" + prefix,
                                    "-DCUDAGUARD_DIRECTORIES=bin;lib/x", "-P", script], cwd=directory,
                                   env={**os.environ, "DESTDIR": destdir}, umask=0o077, check=True,
                                   timeout=60)
                    for name in ("bin", "lib", "lib/x"):
                        mode = os.stat(os.path.join(directory, made, name)).st_mode
                        self.assertEqual(mode & 0o777, 0o755)
