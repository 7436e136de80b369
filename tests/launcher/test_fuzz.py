# SPDX-License-Identifier: Apache-2.0
"""The readers of files, sanitized, with broken files."""

import os
import subprocess

import pytest

from support import harness, launcher

pytestmark = pytest.mark.all

ELF_FILES = [harness.GUARD, harness.program("linked_cuda")]
if harness.FULL:
    ELF_FILES.append(launcher.LAUNCHER)  # It is large, and 9,000 pieces of it are read.


@pytest.mark.parametrize("name, rounds, files", [
    ("elf_fuzz", 20000 if harness.FULL else 250, ELF_FILES),
    ("report_fuzz", 200000 if harness.FULL else 1500, []),
])
def test_broken_file_is_read_without_a_fault(name, rounds, files):
    program = os.path.join(harness.BUILD, "tests", "launcher", name)
    done = subprocess.run([program, str(rounds), *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
