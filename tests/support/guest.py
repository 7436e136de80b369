# SPDX-License-Identifier: Apache-2.0
"""The guest tests share this module."""

import os
import re

from support import harness

BIN = os.path.join(harness.BUILD, "tests", "guest")
STEPS = os.path.join(BIN, "steps")
EMPTY = os.path.join(BIN, "empty.so")
# python3 on PATH may be a shell script (pyenv).
PYTHON = "/usr/bin/python3"

LINE = re.compile(r"^cudaguard\[(\d+)\]: (.*)$")


def binary(name):
    return os.path.join(BIN, name)


def lines_of(text):
    """Returns the guard's lines without the process id."""
    return [m[2] for m in (LINE.match(line) for line in text.splitlines()) if m]


DENIED = "no CUDA here (FORCE_CPU; asked by %s); to allow CUDA: CUDAGUARD_POLICY=OFF"
# CUDAGUARD_LOG=all names the call and then its caller. In a privileged process OFF would have no
# effect.
CALLED = "no CUDA here (FORCE_CPU; %s asked by %s); to allow CUDA: CUDAGUARD_POLICY=OFF"
PRIVILEGED = "no CUDA here (FORCE_CPU; asked by %s)"
NO_GPU = "no GPU to see (FORCE_CPU; asked by %s); to allow NVML: CUDAGUARD_POLICY=OFF"
NO_OPENCL = ("no OpenCL from NVIDIA here (FORCE_CPU; asked by %s); "
             "to allow OpenCL: CUDAGUARD_POLICY=OFF")


class Case(harness.DirectoryCase):
    def steps(self, *steps, **options):
        return harness.run([STEPS, *steps], **options)

    def untouched(self, result):
        """Fails if the program reached a driver. With a copied install, its null drivers do not
        count as one."""
        result.driver_files = [path for path in result.driver_files
                               if not path.startswith(self.directory + "/")]
        result.assert_untouched(self)
