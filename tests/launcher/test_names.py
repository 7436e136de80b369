# SPDX-License-Identifier: Apache-2.0
"""The launcher prints the user's names as they are, unless its terminal does not show UTF-8."""

import os
import pty
import subprocess

import pytest

from support import launcher

NAME = "./módulo"
MARKED = "./m??dulo"
C = {"LC_ALL": "C"}


def printed(command, terminal, directory, **env):
    """Both outputs together."""
    ours, theirs = pty.openpty() if terminal else os.pipe()
    with subprocess.Popen([launcher.LAUNCHER, *command], env=launcher.environment(**env),
                          cwd=directory, stdin=subprocess.DEVNULL, stdout=theirs,
                          stderr=theirs):
        os.close(theirs)
        text = b""
        try:
            while part := os.read(ours, 65536):
                text += part
        except OSError:
            pass  # a terminal without a writer
    os.close(ours)
    return text.decode("utf-8")


@pytest.mark.parametrize("command", [["run", "--", NAME], ["doctor", NAME],
                                     ["run", "--policy", NAME, "true"]])
def test_only_a_terminal_without_utf8_gets_marks(tmp_path, command):
    for terminal in (False, True):
        text = printed(command, terminal, tmp_path)
        assert NAME in text and MARKED not in text, text
    assert NAME in printed(command, False, tmp_path, **C)
    text = printed(command, True, tmp_path, **C)
    assert MARKED in text and text.isascii(), text
