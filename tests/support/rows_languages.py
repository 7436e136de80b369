# SPDX-License-Identifier: Apache-2.0
"""The rows of the languages: each opens the driver with its own loader, by soname and by dev name.

One more row runs pycuda, a Python extension that is linked to the driver.
"""

import glob
import os

from support import harness, settings
from support.matrix import Row

HERE = os.path.join(settings.TESTS, "entry_points", "languages")
BUILT = os.path.join(harness.BUILD, "tests", "entry_points", "languages")
PYTHON = "/usr/bin/python3"  # Debian's own, because its cffi is a Debian package
JNA = "/usr/share/java/jna.jar"

# Each entry has the key, a description, the command, the files that it needs and the packages that
# bring them.
LANGUAGES = [
    ("fiddle", "Ruby's Fiddle", ["/usr/bin/ruby", "--disable-gems", HERE + "/fiddle.rb"],
     ["/usr/bin/ruby"], "ruby"),
    ("luajit", "LuaJIT's ffi", ["/usr/bin/luajit", HERE + "/ffi.lua"], ["/usr/bin/luajit"],
     "luajit"),
    ("ctypes", "Python's ctypes", [PYTHON, HERE + "/ctypes_entry_point.py"], [PYTHON], "python3"),
    ("cffi", "Python's cffi", [PYTHON, HERE + "/cffi_entry_point.py"],
     [PYTHON, "/usr/lib/python3/dist-packages/cffi"], "python3-cffi"),
    ("platypus", "Perl's FFI::Platypus", ["/usr/bin/perl", HERE + "/platypus.pl"],
     ["/usr/lib/*/perl5/*/FFI/Platypus.pm"], "libffi-platypus-perl"),
    ("cgo", "Go's cgo", [BUILT + "/cgo"], [BUILT + "/cgo"], "golang-go, before the build"),
    ("jna", "Java's JNA",
     ["java", "--enable-native-access=ALL-UNNAMED", "-Xshare:auto", "-Xint", "-XX:+UseSerialGC",
      "-cp", JNA + ":" + BUILT, "JnaEntryPoint"],
     [JNA, BUILT + "/JnaEntryPoint.class"], "libjna-java default-jdk-headless, before the build"),
]


def rows_of(key, about, command, needs, packages):
    return [Row("language.%s-%s" % (key, name), "%s, %s" % (about, library), command + [library],
                {"cuInit": "100", "countRc": "3"}, needs=tuple(needs), why="install " + packages,
                all=packages != "python3")
            for name, library in (("soname", "libcuda.so.1"), ("devname", "libcuda.so"))]


ENVIRONMENT = os.path.join(harness.DEPS, "frameworks", "pycuda")
PYCUDA = Row(
    "plugin.pycuda", "Debian's python3-pycuda, an extension linked to libcuda",
    [ENVIRONMENT + "/bin/python", HERE + "/pycuda_entry_point.py"], {"cuInit": "100"},
    env={
        "PYTHONPATH": ENVIRONMENT + "/debian/usr/lib/python3/dist-packages",
        "LD_LIBRARY_PATH": ":".join(
            glob.glob(ENVIRONMENT + "/debian/usr/lib/*-linux-gnu") +
            glob.glob(ENVIRONMENT + "/lib/python3*/site-packages/nvidia/curand/lib")),
    },
    needs=(ENVIRONMENT + "/.fetched",),
    why="scripts/fetch-frameworks %s pycuda, on Debian 12" % harness.DEPS, full=True)

ROWS = [row for language in LANGUAGES for row in rows_of(*language)] + [PYCUDA]
