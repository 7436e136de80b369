# SPDX-License-Identifier: Apache-2.0
"""The help, word for word (golden/help.txt), and how many messages eight workers print.

pytest --write-golden rewrites the file."""

import os
import re

from support import harness, launcher, messages


COMMANDS = ("run", "verify", "report", "doctor")


class Help(launcher.Case):
    def test_every_way_to_ask_prints_the_same_page(self):
        """golden/help.txt: the list of the commands, then the page of each."""
        text = ""
        for ways in ([["--help"], ["-h"], ["help"], ["help", "help"]],
                     *([[name, "--help"], [name, "-h"], ["help", name], ["--help", name]]
                       for name in COMMANDS)):
            pages = [self.start(*words) for words in ways]
            page = pages[0].stdout
            for words, done in zip(ways, pages):
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, page, ""), words)
            lines = page.splitlines()
            self.assertLessEqual(max(map(len, lines)), 100)
            self.assertTrue(page.isascii() and "\x1b" not in page)
            self.assertTrue(lines[0].startswith("Usage: cudaguard "))
            self.assertRegex(lines[1], r"\A[A-Z][^.]*\.\Z")  # one sentence
            text += "$ cudaguard %s\n%s" % (" ".join(ways[0]), page)
        self.same_as_golden("help.txt", text)

    def test_help_ends_the_options(self):
        page = self.start("run", "--help").stdout
        self.assertEqual(self.start("run", "--cpu", "--help", "x").stdout, page)

    def test_the_list_has_every_command_and_three_examples(self):
        page = self.start("--help").stdout
        for name in (*COMMANDS, "help", "version"):
            self.assertRegex(page, r"(?m)^  %s +\w" % name)
        self.assertEqual(len(re.findall(r"(?m)^  cudaguard ", page)), 3)

    def test_no_command_prints_the_help_and_fails(self):
        """A script whose command is empty must not pass."""
        done = self.start()
        self.assertEqual((done.returncode, done.stderr), (125, ""))
        self.assertEqual(done.stdout, self.start("--help").stdout)

    def test_page_has_its_own_options_alone(self):
        pages = {name: self.start(name, "--help").stdout for name in COMMANDS}
        for option, owners in (("--gpus", {"run"}), ("--allow", {"verify"}), ("--by", {"report"}),
                               ("--fence", {"run", "verify"}),
                               ("--force", {"verify", "report", "doctor"})):
            found = {name for name, page in pages.items() if "\n  " + option in page}
            self.assertEqual(found, owners, option)

    def test_version_is_that_of_the_build(self):
        with open(os.path.join(harness.SOURCE, "CMakeLists.txt"), encoding="utf-8") as stream:
            version = stream.read().split("project(cudaguard VERSION ")[1].split()[0]
        for word in ("--version", "-V", "version"):
            done = self.start(word)
            self.assertEqual((done.returncode, done.stdout, done.stderr),
                             (0, "cudaguard %s\n" % version, ""))

    def test_full_disk_exits_with_125(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            for words in (["--help"], ["run", "--print"]):
                done = self.unguarded("sh", "-c", '"$0" "$@" >/dev/full', launcher.LAUNCHER, *words)
                self.assertEqual(done.returncode, 125, words)
            full.flush()


WORKERS = """import ctypes, multiprocessing, sys
def work():
    ctypes.CDLL("libcuda.so.1").cuInit(0)
if __name__ == "__main__":
    if sys.argv[2:]:
        work()
    here = multiprocessing.get_context(sys.argv[1])
    workers = [here.Process(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
"""


class Workers(launcher.Case):
    """Eight workers that ask at one line of code."""

    def test_summary_has_one_row_for_all_workers(self):
        script = self.make("workers.py", WORKERS)
        for way in ("fork", "spawn"):
            with self.subTest(way=way):
                done = self.start("run", "--observe", "--cpu", "python3", script, way)
                self.assertNotIn("cudaguard[", done.stderr)
                self.assertIn("cudaguard: 8 processes asked: 8 refused\n", done.stderr)
                self.assertEqual(re.findall(r"(?m)^  asked by (.*)$", done.stderr),
                                 ["workers.py:3 through ctypes/cffi: cuInit, 8 processes"])
                done = self.start("verify", "python3", script, way)
                self.assertNotIn("cudaguard[", done.stderr)
                self.assertRegex(done.stderr, r"\Acudaguard: FAIL: 1 line asked for CUDA, in 8 of ")
                self.assertEqual(len(re.findall(r"(?m)^  \S*workers\.py:3 in work$", done.stderr)), 1)

    def test_each_process_has_its_own_message_otherwise(self):
        """The control. Forked workers are silent if their parent has asked before."""
        script = self.make("workers.py", WORKERS)
        for words, count in ((["fork"], 8), (["spawn"], 8), (["fork", "first"], 1),
                             (["spawn", "first"], 9)):
            with self.subTest(words=words):
                done = self.start("run", "python3", script, *words)
                found = messages.find(done.stderr, "no_cuda", cause="FORCE_CPU",
                                      asked_by="workers.py:3 through ctypes/cffi")
                self.assertEqual(len(found), count, done.stderr)
