# SPDX-License-Identifier: Apache-2.0
"""The committed table of API names is the one that its generator makes, also without the driver."""

import os
import shutil
import subprocess
import sys

import pytest

from support import harness

HEADERS = [os.path.join(harness.DEPS, name, "include", "cuda.h")
           for name in ("cuda-11", "cuda-12.2", "cuda-12", "cuda-13")]


def command(checkout):
    if not all(map(os.path.exists, HEADERS)):
        harness.skip(harness.Case(), "no headers: run scripts/fetch-cuda %s all" % harness.DEPS)
    return [sys.executable, os.path.join(checkout, "scripts", "generate-api"), "--verify",
            "--deps", harness.DEPS]


@pytest.mark.parametrize("world", ["none", "real"])
def test_committed_table_is_up_to_date(world):
    """Without the driver, the committed facts replace it."""
    if world == "real":
        harness.Case().need_real_driver()
    result = harness.run(command(harness.SOURCE), world=world, guard=False, trace=False)
    assert (result.rc, result.out, result.err) == (0, "", ""), str(result)


def test_control_change_is_reported(tmp_path):
    api = tmp_path / "shim" / "api"
    shutil.copytree(os.path.join(harness.SOURCE, "shim", "api"), api)
    os.mkdir(tmp_path / "scripts")
    shutil.copy(os.path.join(harness.SOURCE, "scripts", "generate-api"), tmp_path / "scripts")
    lines = (api / "driver.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    missing = lines.pop(5)
    (api / "driver.csv").write_text("".join(lines), encoding="utf-8")
    (api / "generated" / "left_over.inc").touch()
    done = subprocess.run(command(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "+" + missing in done.stdout, done
    assert "left_over.inc" in done.stdout
