# SPDX-License-Identifier: Apache-2.0
"""scripts/check-text: each rule finds its fault, and other text passes."""

import os
import shutil
import subprocess

import pytest

from support import harness

SCRIPT = os.path.join(harness.SOURCE, "scripts", "check-text")


def check(tmp_path, text, name="page.md"):
    page = tmp_path / name
    page.write_text(text)
    result = subprocess.run([SCRIPT, page], capture_output=True, text=True, check=False)
    return result.returncode, result.stdout


@pytest.mark.parametrize("text, part", [
    ("The file lies in this folder.", ":1: 'folder'; write: directory"),
    ("- One item\n- The guard lets it\n  through.", ":2: 'lets it through'; write: allow"),
    ("| a | This door |", "write: entry point"),
    ("```text\ncode\n```\n\nIt runs bare.", ":5: 'bare'; write: unguarded"),
    ("A long line " + "x" * 100, "112 columns"),
    ("- It refuses a repeated line.\n- Another.\n- It refuses a repeated line.\n",
     ":3: repeats line 1"),
    ("- Rules of a machine: which programs get CUDA. `check` prints mistakes.\n\n"
     "- Rules of a machine: which programs get CUDA. `doctor` does, too.\n", ":3: repeats line 1"),
    ("A paragraph that a merge has brought back.\n\n## Next\n\n"
     "A paragraph that a merge has brought back.\n", ":5: repeats line 1"),
])
def test_fault_is_reported(tmp_path, text, part):
    code, output = check(tmp_path, text)
    assert code == 1
    assert part in output


@pytest.mark.parametrize("text", [
    "The file lies in this directory. Whoever asks is told so, where there is a fence.",
    "`a folder` and \"the door\" are quoted.\n\n```text\na folder\n```",
    "word " * 10 + "\n" + "word " * 18 + "\n" + "word " * 18 + "end.",
    "| " + "a cell " * 10 + " | " + "another cell " * 10 + " |",
    "- Short.\n- Short.\n\n| option | what it does | default |\n\n| option | what it does | default |",
    "```text\ncudaguard run -- python3 train.py\n```\n\n```text\ncudaguard run -- python3 train.py\n```",
    "- The rules of a machine, first\n- The rules of a machine, second\n",
])
def test_plain_text_passes(tmp_path, text):
    assert check(tmp_path, text) == (0, "")


MANUAL = ".Dd November 23, 2026\n.Dt CUDAGUARD 1\n.Sh DESCRIPTION\n"


@pytest.mark.parametrize("text, part", [
    ("The file lies in this folder.\n", "page.1:4: 'folder'; write: directory"),
    (".Bl -bullet\n.It\nThe companion is loaded.\n.El\n", "page.1:6: 'companion'"),
    (".Bd -literal\na sample\n.Ed\nThe guard has a door.\n", "page.1:7: 'door'"),
    ("It starts a program with the guard.\n.Pp\nIt starts a program with the guard.\n",
     "page.1:6: repeats line 4"),
])
def test_fault_in_a_manual_page_is_reported(tmp_path, text, part):
    code, output = check(tmp_path, MANUAL + text, "page.1")
    assert code == 1
    assert part in output


@pytest.mark.parametrize("page", ["CHANGELOG.md", "CONTRIBUTING.md"])
def test_without_arguments_other_pages_are_read(tmp_path, page):
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    (tmp_path / page).write_text("- The same line of the changes.\n" * 2)
    result = subprocess.run([tmp_path / "scripts" / "check-text"], capture_output=True, text=True,
                            check=False)
    assert (result.returncode, result.stdout) == (1, page + ":2: repeats line 1\n")


def test_without_arguments_the_manual_that_is_not_generated_is_read(tmp_path):
    (tmp_path / "scripts").mkdir()
    manual = tmp_path / "shim" / "launcher" / "man"
    manual.mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "scripts")
    for section in "15":
        (manual / ("page." + section)).write_text(MANUAL + "It is a folder.\n")
    result = subprocess.run([tmp_path / "scripts" / "check-text"], capture_output=True, text=True,
                            check=False)
    assert [line.partition(":")[0] for line in result.stdout.splitlines()] == [
        "shim/launcher/man/page.5"]


@pytest.mark.parametrize("text", [
    "The option\n.Fl -cpu\nhides all devices.\nThis is the default.\n",
    "The test\n.Dq no process asks for CUDA\nand the file\n.Pa folder/door\nare quoted.\n",
    ".Bd -literal\na folder\n.Ed\n",
    ".Dl a folder\n",
    ".It Fl -fence Ns Op = Ns Ar mode\n" * 2,
    ".Bd -literal\ncudaguard run -- python3 train.py\ncudaguard run -- python3 train.py\n.Ed\n",
])
@pytest.mark.parametrize("section", "15")
def test_plain_manual_page_passes(tmp_path, text, section):
    assert check(tmp_path, MANUAL + text, "page." + section) == (0, "")


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
@pytest.mark.parametrize("text, found", [
    ("LD_PRELOAD=%s/build/ci/lib/x.so", True), ('"exe": "%s/bin/cudaguard"', True),
    ("/home/ann/src/cudaguard/build" + "/ci/bin/cudaguard", True), ("(/work" + "/main/x.py)", True),
    ("It is in /home/you/train.py, build/work/x or ~/cudaguard/build/ci.", False),
    ("%s-other/build, /opt/cudaguard/lib, $DIR/work/x, /root/cudaguard", False)])
def test_committed_path_of_a_checkout_is_reported(tmp_path, text, found):
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    shutil.copy(SCRIPT, scripts)
    (tmp_path / "rows.json").write_text("{\n%s\n}\n" % text.replace("%s", str(tmp_path)))
    (tmp_path / "ignored").write_text("/work" + "/x")  # git does not know it
    for words in (["init", "-q"], ["add", "scripts", "rows.json"]):
        subprocess.run(["git", "-C", tmp_path, *words], check=True)
    result = subprocess.run([scripts / "check-text", "--paths"], capture_output=True, text=True,
                            check=False)
    assert result.stderr == ""
    assert (result.returncode, result.stdout.count("rows.json:2: ")) == (int(found), int(found))
    assert result.stdout.count("\n") == found
