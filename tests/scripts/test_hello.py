# SPDX-License-Identifier: Apache-2.0
"""scripts/quickstart shows a newcomer without a driver what cudaguard does, and checks it."""

import os
import re
import shutil
import subprocess

import pytest

from support import harness

ASKS = "tests/programs/ask_cuda.py"
LINE = ASKS + ":5"


@pytest.fixture(name="checkout")
def make_checkout(tmp_path):
    """A copy of the checkout whose quickstart finds all packages installed, no driver of NVIDIA's,
    and everything built."""
    for name in ("scripts", "tests/programs"):
        shutil.copytree(os.path.join(harness.SOURCE, name), tmp_path / name, symlinks=True)
    for name in ("bin", "lib", "tests/programs", "tests/fakes/driver"):
        shutil.copytree(os.path.join(harness.BUILD, name), tmp_path / "build/quickstart" / name,
                        symlinks=True, ignore=shutil.ignore_patterns("CMakeFiles"))
    tools = {"dpkg-query": "echo install ok installed", "ldconfig": ":",
             "cmake": "echo cmake version 3.25.1"}
    (tmp_path / "tools").mkdir()
    for name, body in tools.items():
        (tmp_path / "tools" / name).write_text("#!/bin/sh\n%s\n" % body, encoding="utf-8")
        (tmp_path / "tools" / name).chmod(0o755)
    return tmp_path


def quickstart(checkout):
    env = {"PATH": "%s:/usr/bin:/bin" % (checkout / "tools"), "LC_ALL": "C.UTF-8"}
    return subprocess.run([str(checkout / "scripts" / "quickstart")], env=env, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=False)


def test_quickstart_shows_the_product(checkout):
    done = quickstart(checkout)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    commands = re.findall(r"(?m)^\$ (.*)$", done.stdout)
    hello = "build/quickstart/tests/programs/hello_driver"
    assert commands[1:] == [hello, "LD_PRELOAD=libcudaguard.so " + hello, "cat -n " + ASKS,
                            "cudaguard verify -- python3 " + ASKS,
                            "cudaguard run -- python3 " + ASKS]
    assert re.findall(r"# calls that reached the driver: (\d+)", done.stdout)[1:] == ["0"] * 3
    assert re.search(r"cudaguard: FAIL: 1 line asked for CUDA, .*\n  %s in <module>" % LINE,
                     done.stdout), done.stdout
    assert "# exit code: 1\n" in done.stdout
    assert "asked by ask_cuda.py:5" in done.stdout
    assert '{"' not in done.stdout
    assert re.search(
        r"\nquickstart: .*verify named %s\nNext.*\n.*\n  pip install \. .*README" % LINE,
        done.stdout), done.stdout


def test_quickstart_fails_if_the_guard_does_nothing(checkout):
    build = checkout / "build" / "quickstart"
    shutil.copy(build / "tests" / "programs" / "idle-guard" / "libcudaguard.so", build / "lib")
    done = quickstart(checkout)
    assert done.returncode == 1, done
    hello = "build/quickstart/tests/programs/hello_driver"
    for text in ("with libcudaguard.so, %s reached the driver" % hello,
                 "verify did not name " + LINE, "under run, %s reached the driver" % ASKS,
                 "run did not name ask_cuda.py:5"):
        assert "quickstart: FAILED: %s\n" % text in done.stderr, done.stderr
    assert "quickstart: the driver was reached" not in done.stdout
