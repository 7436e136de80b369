# SPDX-License-Identifier: Apache-2.0
"""scripts/check-text: each rule finds its fault, and plain text passes."""

import os
import subprocess

import pytest

from support import harness

SCRIPT = os.path.join(harness.SOURCE, "scripts", "check-text")


def check(tmp_path, text):
    page = tmp_path / "page.md"
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
