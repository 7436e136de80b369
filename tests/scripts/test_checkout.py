# SPDX-License-Identifier: Apache-2.0
"""scripts/release and scripts/test take the files as git knows them (scripts/lib/checkout.sh)."""

import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from support import harness

LIBRARY = os.path.join(harness.SOURCE, "scripts", "lib", "checkout.sh")
AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]
pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="needs git")
GIT = ["git", "-c", "user.name=x", "-c", "user.email=x", "-c", "safe.directory=*"]


@pytest.fixture(name="checkout")
def make_checkout():
    with tempfile.TemporaryDirectory() as name:  # pytest's directories are closed to other users
        directory = pathlib.Path(name)
        directory.chmod(0o755)
        directory.joinpath("file").write_text("old\n", encoding="utf-8")
        for words in (["init", "-q"], ["add", "file"], ["commit", "-qm", "first"]):
            subprocess.run([*GIT, *words], cwd=directory, check=True)
        yield directory


def git(checkout, *words):
    return subprocess.run([*GIT, *words], cwd=checkout, capture_output=True, text=True,
                          check=True).stdout.strip()


def commit(checkout, before=()):
    return subprocess.run([*before, "bash", "-c", ". %s; trust_checkout; commit_of_files" % LIBRARY],
                          cwd=checkout, capture_output=True, text=True, check=False)


def test_change_is_in_the_commit(checkout):
    assert commit(checkout).stdout.strip() == git(checkout, "rev-parse", "HEAD")
    checkout.joinpath("file").write_text("new\n", encoding="utf-8")
    made = commit(checkout).stdout.strip()
    assert made != git(checkout, "rev-parse", "HEAD")
    assert git(checkout, "show", made + ":file") == "new"


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"),
                    reason="needs root and setpriv")
def test_user_who_may_not_write_there_gets_head(checkout):
    done = commit(checkout, AS_NOBODY)
    assert (done.returncode, done.stdout.strip()) == (0, git(checkout, "rev-parse", "HEAD")), done
    checkout.joinpath("file").write_text("new\n", encoding="utf-8")  # the control
    assert commit(checkout, AS_NOBODY).returncode != 0


@pytest.mark.needs("mounts")
@pytest.mark.parametrize(("options", "status"), [("noexec", 1), ("exec", 0)])
def test_noexec_is_one_line(tmp_path, options, status):
    script = ('mount -t tmpfs -o "$1" tmpfs "$2" && cd "$2" && . "$3" && need_runnable_build && '
              'test -z "$(ls -A build)"')
    done = subprocess.run(["unshare", "--mount", "bash", "-c", script, "bash", options, str(tmp_path),
                           LIBRARY], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (status, ""), done
    assert done.stderr.count("\n") == status, done
    if status:
        assert done.stderr.startswith("cudaguard: %s/build: " % tmp_path), done
        assert "noexec; please move the checkout" in done.stderr
