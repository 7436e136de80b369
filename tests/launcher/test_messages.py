# SPDX-License-Identifier: Apache-2.0
"""The help: the list of the commands and one page word for word (transcripts/help.txt; docs/cli.md
has the rows of all), and its form. How many messages workers print.

pytest --write-golden rewrites the file."""

import os
import re

import pytest

from support import harness, launcher, messages, transcript


@transcript.each("help")
def test_page_of_help(case, command, block):
    transcript.check(case, "help", command, block, case.start(*command.split()[1:]), str)


@pytest.mark.parametrize("command", ["run", "verify", "report", "doctor", "system"])
def test_page_of_help_has_its_form(case, command):
    text = case.start(command, "--help").stdout
    assert text.isascii() and "\x1b" not in text
    # One sentence.
    assert re.search(r"\AUsage: cudaguard %s .*\n[A-Z][^.]*\.\n\n" % command, text), text
    assert re.search(r"(?m)^Exit codes: ", text), text


class Help(launcher.Case):
    def test_no_command_prints_the_help_and_fails(self):
        """A script whose command is empty must not pass."""
        done = self.start()
        self.assertEqual((done.returncode, done.stderr), (125, ""))
        self.assertEqual(done.stdout, self.start("--help").stdout)

    def test_version_is_that_of_the_build(self):
        with open(os.path.join(harness.SOURCE, "CMakeLists.txt"), encoding="utf-8") as stream:
            version = stream.read().split("project(cudaguard VERSION ")[1].split()[0]
        for word in ("--version", "-V", "version"):
            done = self.start(word)
            self.assertEqual((done.returncode, done.stdout, done.stderr),
                             (0, "cudaguard %s\n" % version, ""))


WORKERS = """import ctypes, multiprocessing, sys
def work():
    ctypes.CDLL("libcuda.so.1").cuInit(0)
if __name__ == "__main__":
    if sys.argv[2:]:
        work()
    context = multiprocessing.get_context(sys.argv[1])
    workers = [context.Process(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
"""


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_summary_has_one_row_for_all_workers(case, way):
    script = case.make("workers.py", WORKERS)
    done = case.start("run", "--observe", "--cpu", "python3", script, way)
    assert "cudaguard[" not in done.stderr
    assert "cudaguard: 3 processes asked: 3 refused\n" in done.stderr
    assert re.findall(r"(?m)^  asked by (.*)$",
                      done.stderr) == ["workers.py:3 through ctypes/cffi: cuInit, 3 processes"]
    done = case.start("verify", "python3", script, way)
    assert "cudaguard[" not in done.stderr
    assert re.search(r"\Acudaguard: FAIL: 1 line asked for CUDA, in 3 of ",
                     done.stderr), done.stderr
    assert len(re.findall(r"(?m)^  \S*workers\.py:3 in work$", done.stderr)) == 1


@pytest.mark.parametrize(("words", "count"), [(["fork"], 3), (["spawn"], 3), (["fork", "first"], 1),
                                              (["spawn", "first"], 4)])
def test_each_process_has_its_own_message_otherwise(case, words, count):
    """The control. Forked workers are silent if their parent has asked before."""
    script = case.make("workers.py", WORKERS)
    done = case.start("run", "python3", script, *words)
    found = messages.find(done.stderr, "no_cuda", cause="FORCE_CPU",
                          asked_by="workers.py:3 through ctypes/cffi")
    assert len(found) == count, done.stderr
