# SPDX-License-Identifier: Apache-2.0
"""scripts/check-text: each rule finds its fault, and plain text passes."""

import os
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
    ("The file lies in this folder.", "write: directory"),
    ("- One item\n- The process is told so.", ":2: 'is told'"),
    ("| a | Where there is no fence |", "write: if or when"),
    ("Not so: this one.", "write: a sentence with a subject and a verb"),
    ("word " * 31 + ".", "a sentence of 31 words"),
    ("A long line " + "x" * 100, "112 columns"),
])
def test_fault_is_reported(tmp_path, text, part):
    code, output = check(tmp_path, text)
    assert code == 1
    assert part in output


@pytest.mark.parametrize("text", [
    "The file lies in this directory. If there is no fence, cudaguard warns.",
    "`a folder` and \"the door\" are quoted.\n\n```text\na folder that is told\n```",
    ("word " * 14 + "\n") * 2 + "end. " + "Word " * 14 + "\n" + "word " * 14 + "end.",
    "| " + "a cell " * 10 + " | " + "another cell " * 10 + " |",
])
def test_plain_text_passes(tmp_path, text):
    assert check(tmp_path, text) == (0, "")


MANUAL = ".Dd November 23, 2026\n.Dt CUDAGUARD 1\n.Sh DESCRIPTION\n"


@pytest.mark.parametrize("text, part", [
    ("word\n" * 31, "page.1:4: a sentence of 31 words"),
    ("The file lies in this folder.\n", "page.1:4: 'folder'; write: directory"),
    ("word " * 15 + "\n.Fl -cpu\n" + "word " * 15 + "\n", "a sentence of 31 words"),
    ("word " * 15 + "\n.Pq see Sx FILES ,\n" + "word " * 15 + "\n", "a sentence of 33 words"),
    (".Bl -bullet\n.It\nThe process is told so.\n.El\n", "page.1:6: 'is told'"),
    (".Bd -literal\na sample\n.Ed\nThe guard has a door.\n", "page.1:7: 'door'"),
])
def test_fault_in_a_manual_page_is_reported(tmp_path, text, part):
    code, output = check(tmp_path, MANUAL + text, "page.1")
    assert code == 1
    assert part in output


@pytest.mark.parametrize("text", [
    "The option\n.Fl -cpu\nhides all devices.\nThis is the default.\n",
    "The test\n.Dq no process touches CUDA\nand the file\n.Pa folder/door\nare quoted.\n",
    ".Bd -literal\n" + "a folder that is told\n" * 31 + ".Ed\n",
    ".Dl " + "a folder " * 31 + "\n",
    "word " * 15 + "\n.Fl -cpu\n" + "word " * 14 + "\n",
    ("word " * 20 + "\n.Pp\n") * 2,
    (".It Fl -option\n" + "word " * 20 + "\n") * 2,
])
def test_plain_manual_page_passes(tmp_path, text):
    assert check(tmp_path, MANUAL + text, "page.1") == (0, "")
