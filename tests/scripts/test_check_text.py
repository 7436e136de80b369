# SPDX-License-Identifier: Apache-2.0
"""scripts/check-text: each rule finds its fault, and other text passes."""

import os
import shutil
import subprocess

import pytest

from support import harness

SCRIPT = os.path.join(harness.SOURCE, "scripts", "check-text")


MANUAL = ".Dd November 23, 2026\n.Dt CUDAGUARD 1\n.Sh DESCRIPTION\n"
# The page, its text, and what is printed about it; '' if nothing is.
TEXTS = [
    ("page.md", "The file lies in this folder.", ":1: 'folder'; write: directory"),
    ("page.md", "- One item\n- The guard lets it\n  through.", ":2: 'lets it through'; write: allow"),
    ("page.md", "| a | This door |", "write: entry point"),
    ("page.md", "```text\ncode\n```\n\nIt runs bare.", ":5: 'bare'; write: unguarded"),
    ("page.md", "A long line " + "x" * 100, "112 columns"),
    ("page.md", "- It refuses a repeated line.\n- Another.\n- It refuses a repeated line.\n",
     ":3: repeats line 1"),
    ("page.md", "- Rules of a machine: which programs get CUDA. `check` prints mistakes.\n\n"
     "- Rules of a machine: which programs get CUDA. `doctor` does, too.\n", ":3: repeats line 1"),
    ("page.1", MANUAL + "The file lies in this folder.\n", ":4: 'folder'; write: directory"),
    ("page.1", MANUAL + ".Bd -literal\na sample\n.Ed\nThe guard has a door.\n", ":7: 'door'"),
    ("page.md", "The file lies in this directory. Whoever asks is told so, where there is a fence.",
     ""),
    ("page.md", "`a folder` and \"the door\" are quoted.\n\n```text\na folder\n```", ""),
    ("page.md", "| " + "a cell " * 10 + " | " + "another cell " * 10 + " |", ""),
    ("page.md", "- Short.\n- Short.\n\n| option | what it does | default |\n\n"
     "| option | what it does | default |", ""),
    ("page.md", "```text\ncudaguard run -- python3 train.py\n```\n\n"
     "```text\ncudaguard run -- python3 train.py\n```", ""),
    ("page.5", MANUAL + "The test\n.Dq no process asks for CUDA\nand the file\n.Pa folder/door\n"
     "are quoted.\n.Bd -literal\na folder\n.Ed\n.Dl a folder\n", ""),
    ("page.5", MANUAL + ".It Fl -fence Ns Op = Ns Ar mode\n" * 2, ""),
]


def check_text(script, *words):
    result = subprocess.run([script, *words], capture_output=True, text=True, check=False)
    return result.returncode, result.stdout


@pytest.mark.parametrize(("name", "text", "printed"), TEXTS)
def test_fault_is_reported_and_other_text_passes(tmp_path, name, text, printed):
    page = tmp_path / name
    page.write_text(text)
    code, output = check_text(SCRIPT, page)
    assert (code, bool(output)) == (bool(printed), bool(printed)), output
    assert printed in output


def test_without_arguments_all_texts_that_are_not_generated_are_read(tmp_path):
    manual = tmp_path / "shim" / "launcher" / "man"
    for directory in (tmp_path / "scripts", manual):
        directory.mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "scripts")
    for page in ("CHANGELOG.md", "CONTRIBUTING.md"):
        (tmp_path / page).write_text("It is a folder.\n")
    for section in "15":  # the first one is generated
        (manual / ("page." + section)).write_text(MANUAL + "It is a folder.\n")
    code, output = check_text(tmp_path / "scripts" / "check-text")
    assert (code, sorted(line.partition(":")[0] for line in output.splitlines())) == (1, [
        "CHANGELOG.md", "CONTRIBUTING.md", "shim/launcher/man/page.5"])


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
@pytest.mark.parametrize("text, found", [
    ("LD_PRELOAD=%s/build/ci/lib/x.so", True), ("(/work" + "/main/x.py)", True),
    ("/home/ann/src/cudaguard/build" + "/ci/bin/cudaguard", True), ("file://%s/a.md", True),
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
