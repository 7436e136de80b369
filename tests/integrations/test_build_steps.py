# SPDX-License-Identifier: Apache-2.0
"""The RUN steps of docs/integrations/containers.md, run as an engine runs them: the words of SHELL,
and then the step's text."""

import pytest

from support import harness, image, launcher, messages, places

SECTION = "`RUN` steps of `docker build`"
SHELL = ["/bin/sh", "-c"]  # docker's default
COMMANDS = ("python3 -m pytest", "python3 -m build")


def steps():
    """Yields (the words of SHELL, a step's text) of the page, and at last one more step."""
    (text,) = places.blocks("dockerfile", "containers", SECTION)
    shell = SHELL
    for name, words in image.instructions(text):
        if name == "SHELL":
            shell = words
        else:
            assert name == "RUN"
            yield shell, words
    yield shell, COMMANDS[0]


def answer_of(shell, text, program):
    """Runs a step with this program in place of the page's commands; returns (answers, result)."""
    for command in COMMANDS:
        text = text.replace(command, program)
    text = text.replace("cudaguard run", launcher.LAUNCHER + " run")
    words = [launcher.LAUNCHER if word == "/usr/local/bin/cudaguard" else word for word in shell]
    result = harness.run([*words, text], guard=False, world="fake", trace=False)
    assert result.rc == 0, str(result)
    return [line.split()[0] for line in result.out.splitlines()], result


def test_steps_of_the_page_find_no_device():
    program = " ".join(places.OPEN)
    found = [answer_of(shell, text, program) for shell, text in steps()]
    assert [answers for answers, _ in found] == [["cuInit=100"], ["cuInit=100"] * 2, ["cuInit=0"]]
    for _, result in found[:2]:
        assert messages.find(result.err, "no_cuda"), str(result)


@pytest.mark.parametrize(("word", "code"), [("run", 0), ("verify", 1)])
def test_verify_fails_the_step_that_asks(word, code):
    shell, text = list(steps())[0]
    text = text.replace("cudaguard run", launcher.LAUNCHER + " " + word).replace(
        COMMANDS[0], " ".join(places.OPEN))
    result = harness.run([*shell, text], guard=False, world="fake", trace=False)
    assert result.rc == code, str(result)
