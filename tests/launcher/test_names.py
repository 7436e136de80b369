# SPDX-License-Identifier: Apache-2.0
"""The launcher prints the user's names as they are, unless its terminal does not show UTF-8."""

import pytest

from support import harness, launcher

NAME = "./módulo"
MARKED = "./m??dulo"
C = {"LC_ALL": "C"}


def printed(command, terminal, directory, **env):
    """Both outputs together."""
    return harness.shown([launcher.LAUNCHER, *command], terminal, cwd=directory,
                         env=launcher.environment(**env))[1]


@pytest.mark.parametrize("command", [["run", "--", NAME], ["doctor", NAME],
                                     ["run", "--policy", NAME, "true"]])
def test_only_a_terminal_without_utf8_gets_marks(tmp_path, command):
    for terminal in (False, True):
        text = printed(command, terminal, tmp_path)
        assert NAME in text and MARKED not in text, text
    assert NAME in printed(command, False, tmp_path, **C)
    text = printed(command, True, tmp_path, **C)
    assert MARKED in text and text.isascii(), text
