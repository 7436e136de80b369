# SPDX-License-Identifier: Apache-2.0
"""What `run` prints, word for word (golden/messages.txt, programs.txt, privileged.txt), and the
help. Each is one line, has at most 150 characters if it carries no long value, and has no colour, at a
terminal neither. Elsewhere: what ld.so itself prints (test_refusals), an interpreter that hangs
(test_loaders), a system without /proc (tests/roots).

pytest --write-golden rewrites the files."""

import os
import platform
import pty
import re
import shutil
import struct
import subprocess
import unittest

from support import harness, launcher


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


def elf(machine=62, kind=2, bits=2, order=1, size=56, segments=(), tail=b"", count=None):
    """The bytes of an ELF file: (type, offset, size) of each segment, then `tail`."""
    count = len(segments) if count is None else count
    header = struct.pack("<4sBBB9xHHIQQQIHHHHHH", b"\x7fELF", bits, order, 1, kind, machine, 1, 0,
                         64, 0, 0, 64, size, count, 0, 0, 0)
    return header + b"".join(struct.pack("<IIQQQQQQ", what, 5, at, at, at, length, length, 1)
                             for what, at, length in segments) + tail


def dynamic(*entries):
    """An ELF file with this dynamic section; the names are at its end, 8 bytes."""
    table = b"".join(struct.pack("<QQ", tag, value) for tag, value in entries)
    start = 64 + 2 * 56
    return elf(segments=[(1, 0, start + len(table) + 8), (2, start, len(table))],
               tail=table + b"\0names\0x")


COMMAND_LINES = r"""
cudaguard walk
cudaguard rum true
cudaguard verfiy
cudaguard help rnu
cudaguard ""
cudaguard --bad
cudaguard --gpu 2 true
cudaguard --verison
cudaguard python3 x.py
cudaguard -- python3 x.py
cudaguard sh -c 'exit 1'
cudaguard --gpus 2 python3
cudaguard --gpus=2 --cpu -- ./x.py
cudaguard --cpu
cudaguard --allow x.py python3 x.py
cudaguard --gpus
cudaguard --by user file
cudaguard run
cudaguard run --
cudaguard run --bad true
cudaguard run --gpu 2 true
cudaguard verify --jnuit x true
cudaguard verify --gpus 2 true
cudaguard report
cudaguard report --fence x
cudaguard doctor true x
CUDAGUARD_POLCY=OFF cudaguard run true
CUDAGUARD_DEVICES=2 cudaguard run true
cudaguard run --cpu=1 true
cudaguard run --gpus
cudaguard run --gpus 1 --gpus 2 true
cudaguard run --cpu --gpus 1 true
cudaguard run --cpu --children=cpu true
cudaguard run --cpu --policy OFF true
cudaguard run --gpus 1 --policy off true
cudaguard run --children=cpu --policy off true
cudaguard run --observe --policy off true
cudaguard run --children=cpu true
cudaguard run --children=gpu --gpus 1 true
cudaguard run --policy= true
cudaguard run --log= true
cudaguard run --report= true
cudaguard run --policy x true
cudaguard run --policy "$(printf 'a\033[31m\nb')" true
CUDAGUARD_POLICY=x cudaguard run true
cudaguard run --log x true
CUDAGUARD_LOG=x cudaguard run true
CUDAGUARD_VISIBLE_DEVICES=1 CUDAGUARD_CHILDREN=x cudaguard run true
CUDAGUARD_VISIBLE_DEVICES=1 CUDAGUARD_CHILDREN=FORCE_CPU CUDAGUARD_ROOT=x cudaguard run true
cudaguard run --gpus 1,,2 true
cudaguard run --gpus all true
cudaguard run --gpus=-1,0 true
cudaguard run --gpus 1,1 true
cudaguard run --gpus "$(seq -s, 65)" true
cudaguard run --gpus "$(seq -s, 6000)" true
CUDAGUARD_VISIBLE_DEVICES=1,,2 cudaguard run true
CUDAGUARD_VISIBLE_DEVICES=all cudaguard run true
CUDAGUARD_VISIBLE_DEVICES=-1,0 cudaguard run true
CUDAGUARD_VISIBLE_DEVICES=1,1 cudaguard run true
cudaguard run --report /none/x true
cudaguard run --report / true
cudaguard run --report plain/x true
cudaguard run --report link true
cudaguard run --report hard true
cudaguard run --report own true
CUDAGUARD_REPORT=own cudaguard run true
CUDAGUARD_REPORT=/none/x cudaguard run true
cudaguard run --report "$(printf '%05000d')" true
cudaguard run --report ./own ./own
mkdir gone; cd gone; rmdir ../gone; cudaguard run --report x true
cudaguard run --print >/dev/full
cudaguard --help >/dev/full
CUDAGUARD_POLICY=off cudaguard run true
(ulimit -n 3; cudaguard run --strict ./own)
"""

PROGRAMS = r"""
cudaguard run none
cudaguard run ./none
cudaguard run ""
cudaguard run .
cudaguard run ./plain
cudaguard run ./plain/x
cudaguard run ./cycle
cudaguard run ./script
cudaguard run ./script-directory
cudaguard run ./script-plain
cudaguard run ./script-env
cudaguard run ./script-static
cudaguard run --strict ./script-static
cudaguard run ./binary
cudaguard run text
cudaguard run "text -x"
cudaguard run -- X=1 true
cudaguard verify -- X=1 true
cudaguard run ./loop
cudaguard run ./no-loader
cudaguard run ./no-answer
cudaguard run ./library.so
exec 9>>busy; cudaguard run ./busy
cudaguard run ./cut
cudaguard run ./damage-object
cudaguard run ./damage-none
cudaguard run ./damage-size
cudaguard run ./damage-table
cudaguard run ./damage-load
cudaguard run ./damage-interpreter
cudaguard run ./damage-strings
cudaguard run ./damage-needed
cudaguard run ./damage-soname
cudaguard run ./hello
cudaguard run --strict ./hello
cudaguard run ./named
cudaguard run ./i386
cudaguard run ./arm32
cudaguard run ./arm64
cudaguard run ./power
cudaguard run ./riscv
cudaguard run ./machine258
cudaguard run ./big-endian
cudaguard run ./musl
broken/bin/cudaguard run true
half/bin/cudaguard run ./linked
'a b/bin/cudaguard' run true
'a:b/bin/cudaguard' run true
"""

PRIVILEGED = r"""
nobody run ./setuid
nobody run ./setgid
nobody run ./capable
nobody run ./unreadable
nobody run --report plain true
nobody run --report new true
"""


class Lines(launcher.Case):
    """Each command as a shell runs it, what it prints and its exit code."""

    def setUp(self):
        super().setUp()
        self.installed("tree")
        self.make("plain", "", 0o644)
        self.make("own", "#!/bin/sh\n")
        os.symlink("plain", self.path("link"))
        self.make("linked-report", "", 0o644)
        os.link(self.path("linked-report"), self.path("hard"))

    def run_lines(self, lines, name):
        """Compared with golden/NAME. stderr is a pipe, then a terminal: the same, and no colour."""
        env = launcher.environment(PATH=self.path("tree", "bin") + ":" + os.environ["PATH"],
                                   TERM="xterm-256color", COLORTERM="truecolor")
        text = ""
        for line in lines.strip("\n").split("\n"):
            done = self.unguarded("sh", "-c", line, env=env, cwd=self.directory)
            self.assertEqual(done.stdout, "", line)
            self.assertEqual(self.at_terminal(line, env), done.stderr, line)
            shown = done.stderr.replace(self.directory, "DIRECTORY")
            self.assertTrue(shown.isascii() and "\x1b" not in shown, shown)
            self.assertEqual(shown.count("\n"), 1, shown)
            if not re.search(r"[^ ]{45}", shown):
                self.assertLessEqual(len(shown.rstrip("\n").replace("DIRECTORY/", "/")), 150, shown)
            text += "$ %s\n%s-> %d\n" % (line, shown, done.returncode)
        self.same_as_golden(name, text)

    def at_terminal(self, line, env):
        here, there = pty.openpty()
        with open(here, "rb", buffering=0) as end:
            process = subprocess.Popen(["sh", "-c", line], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=there, env=env,
                                       cwd=self.directory)
            os.close(there)
            text = b""
            try:
                while piece := end.read(65536):
                    text += piece
            except OSError:  # EIO: no process writes there any more
                pass
            process.wait(timeout=120)
        return text.decode().replace("\r\n", "\n")

    def test_messages_about_command_lines_match_the_golden_file(self):
        self.run_lines(COMMAND_LINES, "messages.txt")

    @unittest.skipUnless(platform.machine() == "x86_64", "names the machines from there")
    def test_messages_about_programs_match_the_golden_file(self):
        self.need("gcc", "musl-gcc")
        for name, first in (("script", "/no/interpreter"), ("loop", "./loop"),
                            ("script-directory", "/"), ("script-plain", "./plain"),
                            ("script-env", "/usr/bin/env none"), ("script-static", "./hello")):
            self.make(name, "#!%s\n" % first)
        os.symlink("cycle", self.path("cycle"))
        self.make("text", "exit 0\n")
        self.make("binary", "MZ\0")
        for name, data in (
                ("cut", b"\x7fELF"), ("damage-object", elf(kind=1)), ("damage-none", elf()),
                ("damage-size", elf(size=32, count=1)), ("damage-table", elf(count=1)),
                ("damage-load", elf(segments=[(1, 0, 9999)])),
                ("damage-interpreter", elf(segments=[(3, 120, 4)], tail=b"/lib")),
                ("damage-strings", dynamic((1, 1), (5, 1 << 40), (10, 8), (0, 0))),
                ("damage-needed", dynamic((1, 99), (5, 240), (10, 8), (0, 0))),
                ("damage-soname", dynamic((14, 7), (5, 240), (10, 8), (0, 0))),
                ("arm32", elf(machine=40, bits=1)),
                ("arm64", elf(machine=183, segments=[(1, 0, 64)])),
                ("power", elf(machine=21, segments=[(1, 0, 64)])),
                ("riscv", elf(machine=243, segments=[(1, 0, 64)])),
                ("machine258", elf(machine=258, segments=[(1, 0, 64)])),
                ("big-endian", elf(order=2))):
            self.make(name, data)
        main = "int main(void) { return 0; }"
        self.compile("hello", main, "-static")
        self.compile("named", "#include <stdio.h>\nint main(void) { puts(\"libcuda.so\"); }",
                     "-static")
        self.compile("i386", "void _start(void) {}", "-m32", "-nostdlib", "-static")
        self.compile("musl", main, compiler="musl-gcc")
        self.compile("busy", main)
        self.compile("library.so", main, "-shared", "-fPIC", "-Wl,--no-as-needed")
        self.compile("no-loader", main, "-Wl,-dynamic-linker,/no/ld.so")
        self.compile("no-answer", main, "-Wl,-dynamic-linker," + self.path("hello"))
        shutil.copy(harness.program("linked_cuda"), self.path("linked"))
        for name in ("broken", "half", "a b", "a:b"):
            self.installed(name)
        os.unlink(self.path("broken", "lib", "libcudaguard.so"))
        os.unlink(self.path("half", "lib", "cudaguard", "libcuda.so.1"))
        self.run_lines(PROGRAMS, "programs.txt")

    def test_messages_about_privileged_programs_match_the_golden_file(self):
        self.need("gcc", "setcap", "setpriv")
        if os.geteuid() != 0:
            harness.skip(self, "needs root for setuid files and file capabilities")
        self.make("nobody", "#!/bin/sh\nexec setpriv --reuid=65534 --regid=65534 --clear-groups "
                  'tree/bin/cudaguard "$@"\n')
        for name, mode in (("setuid", 0o4755), ("setgid", 0o2755), ("capable", 0o755),
                           ("unreadable", 0o711)):
            os.chmod(self.compile(name, "int main(void) { return 0; }"), mode)
        subprocess.run(["setcap", "cap_net_raw+ep", self.path("capable")], check=True)
        self.run_lines(PRIVILEGED.replace("nobody", "./nobody"), "privileged.txt")


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
                self.assertEqual(done.stderr.count("no CUDA here (FORCE_CPU; asked by workers.py:3"),
                                 count, done.stderr)
