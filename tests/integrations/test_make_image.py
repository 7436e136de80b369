# SPDX-License-Identifier: Apache-2.0
"""scripts/integrations/container/make-image calls buildah for each tarball. `buildah` is a
script here that writes down its words and what it copies."""

import os
import subprocess

import pytest

from support import harness, places

BUILDAH = """#!/bin/sh
echo "$*" >>"$LOG"
case $1 in
  from) echo container ;;
  copy) cat "$4/bin/cudaguard" >>"$LOG" ;;
  manifest) [ "$2" != exists ] || exit "${EXISTS:-1}" ;;
esac
"""


def run(case, *words, **variables):
    """Returns (exit code, stderr, buildah's log)."""
    case.make("buildah", BUILDAH, 0o755)
    log = case.path("log")
    done = subprocess.run(
        [places.script("container", "make-image"), *words], check=False, text=True,
        capture_output=True,
        env={"PATH": case.directory + ":" + os.environ["PATH"], "LOG": log, **variables})
    if not os.path.exists(log):
        return done.returncode, done.stderr, []
    return done.returncode, done.stderr, harness.read(log).splitlines()


def tarball(case, name):
    file = case.path(name + ".tar.gz")
    case.make(name + "/bin/cudaguard", "the command of %s\n" % name)
    subprocess.run(["tar", "-czf", file, "-C", case.directory, name], check=True)
    return file


@pytest.mark.parametrize(("exists", "removed"), [("1", []), ("0", ["manifest rm guard:1"])])
def test_each_tarball_is_an_image_of_its_machine(case, exists, removed):
    """The image of an earlier run is replaced."""
    code, err, log = run(case, "guard:1", tarball(case, "cudaguard-1.0-linux-x86_64"),
                         tarball(case, "cudaguard-1.0-linux-aarch64"), EXISTS=exists)
    assert (code, err) == (0, "")
    log = [line for line in log if not line.startswith("copy ")]
    images = [["from scratch", "config --os linux --arch %s container" % architecture,
               "the command of cudaguard-1.0-linux-" + machine,
               "commit --quiet --rm --timestamp 0 --manifest guard:1 container"]
              for machine, architecture in (("x86_64", "amd64"), ("aarch64", "arm64"))]
    assert log == ["manifest exists guard:1", *removed, "manifest create guard:1", *images[0],
                   *images[1]]


@pytest.mark.parametrize(("words", "code", "reason"), [
    ((), 2, "usage: make-image IMAGE TARBALL...\n"), (("guard:1",), 2, "usage: "),
    (("--help", "x"), 2, "usage: "), (("guard:1", "cudaguard-1.0.tar.gz"), 1, "not the name of ")])
def test_wrong_use_is_an_error(case, words, code, reason):
    found, err, log = run(case, *words)
    assert found == code and reason in err, err
    assert log == []
