# SPDX-License-Identifier: Apache-2.0
"""scripts/test-places runs a command on another machine and prints what its tests said."""

import os
import shutil
import subprocess

import pytest

from support import harness, settings

SCRIPT = os.path.join(harness.SOURCE, "scripts", "test-places")
SUMMARY = "echo '1 failed, 20 passed, 3 skipped in 4.0s'"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
needs_tools = pytest.mark.skipif(not shutil.which("git") or not shutil.which("ccache"),
                                 reason="not installed: git, ccache")


def places(directory, *words):
    return subprocess.run([SCRIPT, *words], capture_output=True, text=True, timeout=300, check=False,
                          env={**os.environ, "CUDAGUARD_PLACES": str(directory)})


def row(done):
    return done.stdout.splitlines()[-1].split()


@needs_root
def test_unknown_place_is_refused_with_the_known_ones(tmp_path):
    done = places(tmp_path, "debian-13,no-drivers")
    assert done.returncode == 2
    assert "no-drivers: no such place; use: debian-11" in done.stderr


@pytest.mark.full  # .ci/run runs whole suites in places
@needs_root
@needs_tools
def test_command_sees_another_directory_without_the_driver(tmp_path):
    if not os.path.isdir(os.path.join(settings.SOURCE, ".git")):
        pytest.skip("not a checkout")
    libraries = " ".join(harness.REAL_DRIVER_DIRS)
    done = places(tmp_path, "no-driver,tmp", "--", "sh", "-c",
                  f"pwd; find {libraries} -name 'libcuda.so*' 2>/dev/null; {SUMMARY}")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "/tmp/somewhere/cudaguard" in lines
    assert not [line for line in lines if "libcuda" in line]
    assert row(done)[2:5] == ["20", "1", "3"]
    assert not list(tmp_path.glob("run-*"))


@pytest.mark.full  # .ci/run runs whole suites in places
@needs_root
@needs_tools
def test_failure_in_a_place_is_the_result(tmp_path):
    done = places(tmp_path, "root", "--", "sh", "-c", f"{SUMMARY}; exit 1")
    assert done.returncode == 1, done
    assert row(done)[-1] == "FAILED"
