# SPDX-License-Identifier: Apache-2.0
"""Transcripts (tests/launcher/transcripts): commands with their output and their exit codes.

    $ cudaguard rum true
    cudaguard: unknown command "rum"; did you mean run? (see cudaguard --help)
    -> 125

A line of stdout begins with "| ". All other lines are stderr's.
"""

import fcntl
import os
import re

import pytest

from support import machine, settings

DIRECTORY = os.path.join(settings.TESTS, "launcher", "transcripts")
BLOCK = re.compile(r"^\$ (.*)\n((?:.*\n)*?)-> (\d+)\n", re.MULTILINE)


def path_of(name):
    return os.path.join(DIRECTORY, name + ".txt")


def each(name):
    """Parametrizes a test with each block of a file: (command, the block's whole text). The command
    is the test's id, so that -k finds it."""
    text = settings.read(path_of(name))
    blocks = [(match[1], match[0]) for match in BLOCK.finditer(text)]
    assert text == "".join(block for _, block in blocks), name + " has lines outside of a block"
    commands = [command for command, _ in blocks]
    assert len(set(commands)) == len(commands) > 0, name + " has a command twice"
    return pytest.mark.parametrize(("command", "block"), blocks, ids=commands)


def need_program(case, command):
    """Skips the test if this machine cannot make the command's program."""
    words = command.split()
    if "./musl" in words:
        case.need("musl-gcc")
    if "./capable" in words:
        machine.need("file_capabilities")


def check(case, name, command, block, done, shown):
    """Fails unless the command printed and returned what its block says. shown: makes the same text
    in each run. pytest --write-golden rewrites the block."""
    out = "".join("| %s\n" % line if line else "|\n" for line in done.stdout.splitlines())
    text = "$ %s\n%s-> %d\n" % (command, shown(out + done.stderr), done.returncode)
    if settings.WRITE_GOLDEN:
        with open(path_of(name), "r+", encoding="utf-8") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)  # other tests rewrite other blocks
            whole = stream.read().replace(block, text)
            stream.seek(0)
            stream.truncate()
            stream.write(whole)
    else:
        case.assertEqual(text, block, settings.TO_REWRITE % path_of(name))
