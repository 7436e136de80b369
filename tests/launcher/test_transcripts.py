# SPDX-License-Identifier: Apache-2.0
"""What `cudaguard` prints about its command line and about programs, word for word
(transcripts/*.txt). Each message is one line, has at most 150 characters if it carries no long value,
and has no colour, at a terminal neither. A refused command starts nothing and makes no file.
Elsewhere: the sentences about options and variables that tests/unit/options_test.cpp and
environment_test.cpp have (here is one of each kind), what ld.so itself prints (test_refusals), an
interpreter that hangs (test_hangs), a system without /proc (tests/roots).

Each command is one test: pytest -k 'command_line and repeats'. pytest --write-golden rewrites the
files. To add a command, add "$ COMMAND" and "-> 0" to a file and rewrite it."""

import gzip
import os
import platform
import re
import shutil
import struct
import subprocess

import pytest

from support import harness, launcher, machine, recorded, transcript


def elf(machine=62, kind=2, segments=(), tail=b""):
    """The bytes of an ELF file: (type, offset, size) of each segment, then `tail`."""
    header = struct.pack("<4sBBB9xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, kind, machine, 1, 0,
                         64, 0, 0, 64, 56, len(segments), 0, 0, 0)
    return header + b"".join(struct.pack("<IIQQQQQQ", what, 5, at, at, at, length, length, 1)
                             for what, at, length in segments) + tail


def dynamic(*entries):
    """An ELF file with this dynamic section; the names are at its end, 8 bytes."""
    table = b"".join(struct.pack("<QQ", tag, value) for tag, value in entries)
    start = 64 + 2 * 56
    return elf(segments=[(1, 0, start + len(table) + 8), (2, start, len(table))],
               tail=table + b"\0names\0x")


class Directory(launcher.Case):
    """The directory in which the commands run."""

    def setUp(self):
        super().setUp()
        self.installed("tree")
        os.mkdir(self.path("marks"))
        os.chmod(self.path("marks"), 0o777)
        self.make("tree/bin/true", "#!/bin/sh\ntouch %s\n" % self.path("marks", "started"))
        self.make("plain", "", 0o644)
        self.make("own", "#!/bin/sh\n")
        os.symlink("plain", self.path("link"))
        self.make("records", recorded.text(recorded.line()), 0o644)
        self.make("records.gz", gzip.compress(b"x"), 0o644)
        self.make("linked-report", "", 0o644)
        os.link(self.path("linked-report"), self.path("hard"))
        self.env = launcher.environment(PATH=self.path("tree", "bin") + ":" + os.environ["PATH"],
                                        TERM="xterm-256color", COLORTERM="truecolor")

    def check(self, name, command, block):
        """stderr is a pipe, then a terminal: the same, and no colour."""
        before = os.listdir(self.directory)
        done = self.unguarded("sh", "-c", command, env=self.env, cwd=self.directory)
        at_terminal = harness.shown(["sh", "-c", command], True, stdout=subprocess.DEVNULL,
                                    env=self.env, cwd=self.directory)
        self.assertEqual(at_terminal, (done.returncode, done.stderr))
        self.assertEqual(sorted(os.listdir(self.directory)), sorted(before))
        if command.endswith(" true"):
            self.assertEqual(self.was_started(), done.returncode == 0)
        shown = self.shown(done.stderr)
        self.assertTrue(shown.isascii() and "\x1b" not in shown, shown)
        self.assertEqual((done.stdout, shown.count("\n")), ("", 1), shown)
        if not re.search(r"[^ ]{45}", shown):
            self.assertLessEqual(len(shown.rstrip("\n").replace("DIRECTORY/", "/")), 150, shown)
        transcript.check(self, name, command, block, done, self.shown)

    def was_started(self):
        """True if `true` has run since the last call."""
        found = os.listdir(self.path("marks"))
        for name in found:
            os.unlink(self.path("marks", name))
        return bool(found)

    def shown(self, text):
        return text.replace(self.directory, "DIRECTORY")


@pytest.fixture(name="place", scope="module")
def make_place():
    place = Directory()
    place.setUp()
    yield place
    place.doCleanups()


@pytest.fixture(name="programs", scope="module")
def make_programs(place):
    if platform.machine() != "x86_64":
        pytest.skip("names the machines from there")
    place.need("gcc")
    for name, first in (("script", "/no/interpreter"),
                        ("script-env", "/usr/bin/env none"), ("script-static", "./hello"),
                        ("script-relative", "relative"), ("script-long", "x" * 253)):
        place.make(name, "#!%s\n" % first)
    place.make("text", "exit 0\n")
    for name, data in (
            ("cut", b"\x7fELF"), ("damage-object", elf(kind=1)),
            ("damage-interpreter", elf(segments=[(3, 120, 4)], tail=b"/lib")),
            ("damage-strings", dynamic((1, 1), (5, 1 << 40), (10, 8), (0, 0))),
            ("damage-soname", dynamic((14, 7), (5, 240), (10, 8), (0, 0))),
            ("arm64", elf(machine=183, segments=[(1, 0, 64)])),
            ("riscv", elf(machine=243, segments=[(1, 0, 64)])),
            ("machine258", elf(machine=258, segments=[(1, 0, 64)]))):
        place.make(name, data)
    for file, name in (("static_0", "hello"), ("hello_driver", "named"), ("i386_static", "i386"),
                       ("exits_0", "busy"), ("library.so", "library.so"),
                       ("missing_loader", "no-loader"), ("hello_static_pie", "pie")):
        place.copied(file, name)
    if shutil.which("musl-gcc"):
        place.copied("hello_musl", "musl")
    place.compile("no-answer", "exits.c", "-DCODE=0", "-Wl,-dynamic-linker," + place.path("hello"))
    shutil.copy(harness.program("linked_cuda"), place.path("linked"))
    for name in ("broken", "half", "a b"):
        place.installed(name)
    os.unlink(place.path("broken", "lib", "libcudaguard.so"))
    os.unlink(place.path("half", "lib", "cudaguard", "libcuda.so.1"))


@pytest.fixture(name="privileged", scope="module")
def make_privileged(place):
    place.need("setpriv")
    machine.need("setuid_programs")
    place.make("nobody", "#!/bin/sh\nexec setpriv --reuid=65534 --regid=65534 --clear-groups "
               'tree/bin/cudaguard "$@"\n')
    for name, mode in (("setuid", 0o4755), ("setgid", 0o2755), ("capable", 0o755),
                       ("unreadable", 0o711)):
        os.chmod(place.copied("exits_0", name), mode)
    for name, owner, mode in (("setuid-other", (65533, -1), 0o4755),
                              ("setgid-other", (-1, 65533), 0o2755)):
        os.chown(place.copied("exits_0", name), *owner)
        os.chmod(place.path(name), mode)
    place.make("setuid-script", "#!%s\n" % place.path("setuid"))
    os.mkdir(place.path("closed"), 0o700)
    place.copied("exits_0", "closed/exits_0")
    if not machine.missing("file_capabilities"):
        machine.give_capability(place.path("capable"))


@transcript.each("command_lines")
def test_command_line(place, command, block):
    place.check("command_lines", command, block)


@transcript.each("programs")
@pytest.mark.usefixtures("programs")
def test_program(place, command, block):
    transcript.need_program(place, command)
    place.check("programs", command, block)


@transcript.each("privileged")
@pytest.mark.usefixtures("privileged")
def test_privileged_program(place, command, block):
    transcript.need_program(place, command)
    place.check("privileged", command, block)
