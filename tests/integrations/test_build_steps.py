# SPDX-License-Identifier: Apache-2.0
"""The RUN steps of docs/integrations/containers.md, run as an engine runs them: the words of SHELL,
and then the step's text."""

import json

from support import harness, launcher, messages, places

COMMANDS = ("python3 -m pytest", "python3 -m build")


def steps():
    """Yields (the words of SHELL, a step's text) of the page, and at last one more step."""
    (text,) = places.blocks("dockerfile", "containers", "`RUN` steps of `docker build`")
    shell = ["/bin/sh", "-c"]  # docker's default
    for line in text.splitlines():
        name, words = line.split(None, 1)
        if name == "SHELL":
            shell = json.loads(words)
        else:
            assert name == "RUN"
            yield shell, words
    yield shell, COMMANDS[0]


def run(shell, text):
    """Runs a step with a program that asks in place of the page's commands."""
    for command in COMMANDS:
        text = text.replace(command, " ".join(places.OPEN))
    text = text.replace("cudaguard ", launcher.LAUNCHER + " ")
    words = [launcher.LAUNCHER if word == "/usr/local/bin/cudaguard" else word for word in shell]
    return harness.run([*words, text], guard=False, world="fake", trace=False)


def test_steps_of_the_page_find_no_device():
    results = [run(shell, text) for shell, text in steps()]
    assert [result.rc for result in results] == [0, 0, 0]
    answers = [[line.split()[0] for line in result.out.splitlines()] for result in results]
    assert answers == [["cuInit=100"], ["cuInit=100"] * 2, ["cuInit=0"]]
    for result in results[:2]:
        assert messages.find(result.err, "no_cuda"), str(result)


def test_verify_fails_the_step_that_asks():
    shell, text = next(steps())
    result = run(shell, text.replace("cudaguard run", "cudaguard verify"))
    assert result.rc == 1, str(result)
