# SPDX-License-Identifier: Apache-2.0
"""README's advice to packagers: which dependencies dpkg-shlibdeps finds in the installed files."""

import os
import shutil
import subprocess
import tempfile
import unittest

import pytest

from support import harness


class Dependencies(unittest.TestCase):
    def shlibdeps(self, file):
        """Returns (exit code, the dependencies that it writes)."""
        if not shutil.which("dpkg-shlibdeps"):
            harness.skip(self, "not installed: dpkg-dev")
        with tempfile.TemporaryDirectory(prefix="cg-") as directory:
            os.mkdir(os.path.join(directory, "debian"))
            with open(os.path.join(directory, "debian", "control"), "w", encoding="utf-8") as stream:
                stream.write("Source: x\n\nPackage: x\nArchitecture: any\n")
            done = subprocess.run(["dpkg-shlibdeps", "-O", "-e" + file], cwd=directory, text=True,
                                  capture_output=True, check=False, timeout=120)
        return done.returncode, done.stdout

    def test_guard_depends_on_libc_alone(self):
        code, found = self.shlibdeps(harness.GUARD)
        self.assertEqual(code, 0)
        self.assertRegex(found, r"\Ashlibs:Depends=libc6 \(>= [0-9.]+\)\n\Z")

    def test_limit_proxies_must_be_excluded(self):
        """As documented: if the proxies are not excluded, the package would need the driver's
        package, or dpkg-shlibdeps does not find a library."""
        for name in ("libcudaguard-driver.so", "libcudaguard-nvml.so"):
            code, found = self.shlibdeps(os.path.join(harness.NULL_DRIVER_DIR, name))
            self.assertTrue(code != 0 or "libcuda" in found or "libnvidia-ml" in found, found)


@pytest.mark.parametrize(("prefix", "destdir", "made"), [("a", "", "a"), ("b/c", "d", "db/c"),
                                                         ("/e", "f", "f/e"),
                                                         ("/g", "DIRECTORY/h", "h/g")])
def test_directories_of_a_relative_prefix_are_readable(prefix, destdir, made):
    """`cmake --install` makes its directories below any prefix and DESTDIR, readable for all
    users."""
    script = os.path.join(harness.SOURCE, "scripts", "make-directories.cmake")
    with tempfile.TemporaryDirectory(prefix="cg-") as directory:
        destdir = destdir.replace("DIRECTORY", directory)
        subprocess.run(["cmake", "-DCMAKE_INSTALL_PREFIX=" + prefix,
                        "-DCUDAGUARD_DIRECTORIES=bin;lib/x", "-P", script], cwd=directory,
                       env={**os.environ, "DESTDIR": destdir}, umask=0o077, check=True,
                       timeout=60)
        for name in ("bin", "lib", "lib/x"):
            mode = os.stat(os.path.join(directory, made, name)).st_mode
            assert mode & 0o777 == 0o755
