# SPDX-License-Identifier: Apache-2.0
"""The user's names are printed as they are: in any language, without what a terminal would obey."""

import os
import subprocess

import pytest

from support import guest, harness, messages

CODE = "import ctypes\nctypes.CDLL('libcuda.so.1').cuInit(0)\n"
NO_LOCALE = {"LC_ALL": None, "LC_CTYPE": None, "LANG": None}


def asked_by(directory, name, terminal=False, **env):
    """The caller in the message about a script of this name, whose stderr is a pipe or a terminal."""
    path = os.path.join(os.fsencode(directory), name)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(CODE)
    environment = harness.child_environment("none", True, env, (), os.devnull)
    code, text = harness.shown([guest.PYTHON, path], terminal, env=environment,
                               stdout=subprocess.DEVNULL)
    assert code == 0, text
    return messages.find(text, "no_cuda")[0]["asked_by"]


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("name", ["módulo.py", "грубо.py", "漢字.py", "😀’–.py"])
def test_message_has_the_name_as_it_is(tmp_path, name, terminal):
    assert asked_by(tmp_path, name.encode(), terminal) == name + ":2 through ctypes/cffi"


@pytest.mark.parametrize(("locale", "utf8"), [
    ({"LC_ALL": "C"}, False), ({}, False), ({"LANG": "de_DE.ISO-8859-1"}, False),
    ({"LC_CTYPE": "C", "LANG": "C.UTF-8"}, False), ({"LC_ALL": "C.utf8", "LANG": "C"}, True)])
def test_only_a_terminal_without_utf8_gets_marks(tmp_path, locale, utf8):
    """It gets what `ls -q` prints there. A file or a pipe is read elsewhere."""
    name = "módulo.py"
    env = {**NO_LOCALE, "PYTHONUTF8": "1", **locale}
    seen = asked_by(tmp_path, name.encode(), terminal=True, **env)
    assert seen.partition(":")[0] == (name if utf8 else "m??dulo.py")
    listed = subprocess.run(["ls", "-q", tmp_path], capture_output=True, text=True, check=True,
                            env={**os.environ, "LC_ALL": "C"})
    assert utf8 or seen.partition(":")[0] == listed.stdout.strip()
    assert asked_by(tmp_path, name.encode(), **env).partition(":")[0] == name
