# SPDX-License-Identifier: Apache-2.0
"""The guest tests share this module."""

import os
import re

from support import harness, messages

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


def forced(name, **values):
    """Returns the message under FORCE_CPU, in which "%s" stands for the caller."""
    return messages.text(name, cause="FORCE_CPU", asked_by="%s", **values)


OFF = "CUDAGUARD_POLICY=OFF"
DENIED = forced("no_cuda", remedy=OFF)
# CUDAGUARD_LOG=all names the call and then its caller. In a privileged process OFF would have no
# effect.
CALLED = forced("no_cuda", call="%s", remedy=OFF)
PRIVILEGED = forced("no_cuda")
NO_GPU = forced("no_nvml", remedy=OFF)
NO_OPENCL = forced("no_opencl", remedy=OFF)


class Case(harness.DirectoryCase):
    def steps(self, *steps, **options):
        return harness.run([STEPS, *steps], **options)

    def untouched(self, result):
        """Fails if the program reached a driver. With a copied install, its null drivers do not
        count as one."""
        ours = (self.directory + "/", os.path.dirname(harness.public_guard()) + "/")
        result.driver_files = [path for path in result.driver_files if not path.startswith(ours)]
        result.assert_untouched(self)
