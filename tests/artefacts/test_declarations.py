# SPDX-License-Identifier: Apache-2.0
"""shim/api/cuda.h declares what NVIDIA's headers declare: the code that uses it also compiles with
them, to the same object files."""

import os
import subprocess

import pytest

from support import harness

NVIDIA = [os.path.join(harness.SOURCE, "tests", "artefacts", "nvidia"),
          os.path.join(harness.DEPS, "cuda-13", "include")]
USERS = ["guard/exports/linked_driver.cpp", "guard/exports/runtime.cpp", "null_driver/driver.cpp",
         "null_driver/mps.cpp", "null_driver/nvml.cpp", "proxy/gpus.cpp",
         "proxy/nvml.cpp"]


def compiled(user, first, directory):
    """Compiles a file of shim/ with these directories before the project's own."""
    own = [harness.SOURCE, harness.SOURCE + "/shim/api/generated", harness.BUILD + "/interface"]
    done = subprocess.run(
        ["c++", "-std=c++20", "-O1", "-fPIC", "-fno-exceptions", "-fno-rtti", "-c", "-o", "object",
         "-Wno-deprecated-declarations", *["-I%s" % include for include in [*first, *own]],
         os.path.join(harness.SOURCE, "shim", user)],
        cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return (directory / "object").read_bytes()


def test_every_user_is_listed():
    found = subprocess.run(["grep", "-rlF", "shim/api/cuda.h", "."], text=True, check=True,
                           cwd=os.path.join(harness.SOURCE, "shim"), capture_output=True).stdout
    assert {name[2:].replace("gpus.h", "gpus.cpp") for name in found.split()} == set(USERS)


@pytest.mark.parametrize("user", USERS)
def test_nvidias_headers_give_the_same_code(user, tmp_path):
    if not os.path.isdir(NVIDIA[1]):
        pytest.skip("no headers: scripts/fetch-cuda")
    assert compiled(user, [], tmp_path) == compiled(user, NVIDIA, tmp_path)


def test_a_wrong_declaration_gives_other_code(tmp_path):
    """Control."""
    text = harness.read("shim", "api", "cuda.h")
    wrong = tmp_path / "shim" / "api" / "cuda.h"
    wrong.parent.mkdir(parents=True)
    wrong.write_text(text.replace("SYMBOL_NOT_FOUND = 1", "SYMBOL_NOT_FOUND = 3"), encoding="utf-8")
    user = "null_driver/driver.cpp"
    assert compiled(user, [tmp_path], tmp_path) != compiled(user, [], tmp_path)
