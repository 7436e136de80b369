# SPDX-License-Identifier: Apache-2.0
"""`cmake --install` makes its directories below any prefix and DESTDIR, readable for all users."""

import os
import subprocess

import pytest

from support import harness


@pytest.mark.parametrize(("prefix", "destdir", "made"), [("a", "", "a"), ("b/c", "d", "db/c"),
                                                         ("/e", "f", "f/e"),
                                                         ("/g", "DIRECTORY/h", "h/g")])
def test_directories_of_a_relative_prefix_are_readable(tmp_path, prefix, destdir, made):
    script = os.path.join(harness.SOURCE, "scripts", "make-directories.cmake")
    destdir = destdir.replace("DIRECTORY", str(tmp_path))
    subprocess.run(["cmake", "-DCMAKE_INSTALL_PREFIX=" + prefix,
                    "-DCUDAGUARD_DIRECTORIES=bin;lib/x", "-P", script], cwd=tmp_path,
                   env={**os.environ, "DESTDIR": destdir}, umask=0o077, check=True, timeout=60)
    for name in ("bin", "lib", "lib/x"):
        assert (tmp_path / made / name).stat().st_mode & 0o777 == 0o755
