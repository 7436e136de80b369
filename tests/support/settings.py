# SPDX-License-Identifier: Apache-2.0
"""Holds what is tested and how thoroughly: the options of pytest (tests/conftest.py) and of the
scripts.

Call configure() before you import another module of this package: they read these names once.
"""

import os

# These paths have no symbolic links, because ld.so and the launcher print paths without them.
SOURCE = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
TESTS = os.path.join(SOURCE, "tests")
# Seconds. A program that takes longer hangs: QEMU on a busy machine needs several minutes for what
# takes seconds elsewhere.
PATIENCE = 600
# The end of a failure: the path of the file goes in.
TO_REWRITE = "%s has other text. If the new text is right: pytest THIS_TEST --write-golden"


def read(*path):
    """The text of a file. A relative path is in the checkout."""
    with open(os.path.join(SOURCE, *path), encoding="utf-8") as stream:
        return stream.read()


def add_options(add):
    """Adds the options. `add` is an argparse parser's add_argument, or pytest's addoption."""
    add("--build", metavar="DIR", help="the build directory [default: build/ci]")
    add("--lib", metavar="DIR", help="the library directory under test [default: DIR/lib]")
    add("--deps", metavar="DIR", help="what the fetch scripts made [default: build/_deps]")


def configure(build=None, lib=None, deps=None, full=False, must_run=False, without=(), runner=None,
              write_golden=False, all_tests=True):
    """must_run: no test may skip, unless it lacks one of `without`: "driver", or a need of
    support/machine.py. Without all_tests, which is scripts/test --all, it may also lack a tool, which
    scripts/test does not install. runner: a prefix for each command, for programs of another architecture."""
    global BUILD, LIB, DEPS, ALL, FULL, MUST_RUN, WITHOUT, RUNNER, WRITE_GOLDEN
    BUILD = os.path.realpath(build or os.path.join(SOURCE, "build", "ci"))
    LIB = os.path.realpath(lib or os.path.join(BUILD, "lib"))
    DEPS = os.path.abspath(deps or os.path.join(SOURCE, "build", "_deps"))
    ALL, FULL, MUST_RUN, WITHOUT = all_tests, full, must_run, tuple(without)
    RUNNER, WRITE_GOLDEN = runner, write_golden


configure()
