# SPDX-License-Identifier: Apache-2.0
"""G4: a program that was started with descriptors 0-2 closed has its own files there, and the
guard's line must not land in them. Where descriptor 2 is what the user gave, the line is there."""

import itertools
import os
import pty
import shlex
import socket
import subprocess
import unittest

import guest
import harness

MODES = {"w": "write", "we": "write, close-on-exec", "+": "both ways", "wa": "append"}


class Descriptors(guest.Case):
    def setUp(self):
        super().setUp()
        self.results = self.path("results")

    def launch(self, redirections, steps, **options):
        """The program started by a shell with these redirections; its answers."""
        environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": harness.FAKE_DRIVER,
                       "CG_FAKE_LOG": self.path("fake.log"), **options.pop("env", {})}
        if options.pop("guard", True):
            environment["LD_PRELOAD"] = harness.GUARD
        words = " ".join(shlex.quote(word) for word in
                         ["env", *("%s=%s" % item for item in environment.items()), guest.STEPS,
                          *steps])
        subprocess.run(["/bin/sh", "-c", "exec " + words + " " + redirections], check=True,
                       timeout=20, env={"PATH": os.environ["PATH"]},
                       **{"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL,
                          "stderr": subprocess.DEVNULL, **options})
        with open(self.results, encoding="utf-8") as stream:
            return stream.read()

    def own_files(self, closed, mode, guard=True, env=None):
        """Runs a program that opens as many files as there are closed descriptors, touches, and
        writes to them. Returns the descriptors it got and what the files hold then."""
        for name in os.listdir(self.folder):
            os.unlink(self.path(name))
        steps = ["open:%s:%s" % (self.path("file%d" % n), mode) for n in closed]
        # Only now: the results need a descriptor too.
        steps += ["results:" + self.results]
        steps += ["put:%d:before\n" % n for n in closed] + ["touch", "nvml"]
        steps += ["put:%d:after\n" % n for n in closed] + ["touches"]
        out = self.launch(" ".join("%d>&-" % n for n in closed), steps, guard=guard, env=env or {})
        contents = {}
        for n in closed:
            with open(self.path("file%d" % n), encoding="utf-8", errors="replace") as stream:
                contents[n] = stream.read()
        return out, contents

    def subsets(self):
        return [s for size in (1, 2, 3) for s in itertools.combinations((0, 1, 2), size)]

    def test_nothing_lands_in_own_files(self):
        for closed in self.subsets():
            for mode in MODES:
                if self.is_exception(closed, mode):
                    continue
                for log in ("deny", "all"):
                    with self.subTest(closed=closed, mode=mode, log=log):
                        _, bare = self.own_files(closed, mode, guard=False)
                        out, guarded = self.own_files(closed, mode, env={"CUDAGUARD_LOG": log})
                        self.assertIn("cuInit=100\n", out)
                        self.assertIn("touches=2\n", out)
                        for n in closed:
                            self.assertIn("before\nafter\n", bare[n])
                        self.assertEqual(guarded, bare)

    @staticmethod
    def is_exception(closed, mode):
        """Documented in the README: 2 was closed, perhaps with 1, and the program has a regular file
        there, opened for writing only and without close-on-exec. With /dev/null, a terminal or a
        pipe at 0 this is the same as `>out 2>err`."""
        return closed in ((2,), (1, 2)) and mode in ("w", "wa")

    def test_the_exception(self):
        for closed in self.subsets():
            for mode in MODES:
                if not self.is_exception(closed, mode):
                    continue
                with self.subTest(closed=closed, mode=mode):
                    out, contents = self.own_files(closed, mode)
                    self.assertIn("cuInit=100\n", out)
                    self.assertRegex(contents[2],
                                     r"^before\ncudaguard\[\d+\]: no CUDA here [^\n]*\nafter\n$")
                    # The remedy.
                    _, contents = self.own_files(closed, mode, env={"CUDAGUARD_LOG": "off"})
                    self.assertEqual(contents[2], "before\nafter\n")

    def test_report_to_stderr_obeys_too(self):
        for closed in self.subsets():
            if self.is_exception(closed, "w"):
                continue
            with self.subTest(closed=closed):
                _, bare = self.own_files(closed, "w", guard=False)
                _, guarded = self.own_files(closed, "w", env={"CUDAGUARD_REPORT": "/dev/stderr"})
                self.assertEqual(guarded, bare)

    def test_socket_of_its_own(self):
        """A program with all three closed that has a connection at 2."""
        script = ("import ctypes, os, socket, sys\n"
                  "a, b = socket.socketpair(); os.dup2(a.fileno(), 2); os.close(0); os.close(1)\n"
                  "r = ctypes.CDLL('libcuda.so.1').cuInit(0)\n"
                  "b.setblocking(False)\n"
                  "try: got = b.recv(1000)\n"
                  "except BlockingIOError: got = b''\n"
                  "open(sys.argv[1], 'w').write('%d %r' % (r, got))\n")
        environment = {"LD_PRELOAD": harness.GUARD, "LD_LIBRARY_PATH": harness.FAKE_DRIVER}
        subprocess.run([guest.PYTHON, "-c", script, self.results], env=environment, check=True,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, timeout=60)
        with open(self.results, encoding="utf-8") as stream:
            self.assertEqual(stream.read(), "100 b''")

    # --- where the line is wanted ---------------------------------------------------------------

    def assert_line(self, text, count=1):
        self.assertEqual(guest.lines_of(text).count(guest.DENIED % "steps"), count, text)

    def touch(self, redirections="", **options):
        self.launch(redirections, ["results:" + self.results, "touch"], **options)

    def read(self, name):
        with open(self.path(name), encoding="utf-8", newline="") as stream:
            return stream.read()

    def test_file(self):
        self.touch("2>" + self.path("err"))
        self.assert_line(self.read("err"))

    def test_file_after_a_pipe(self):
        self.touch("2>" + self.path("err"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assert_line(self.read("err"))

    def test_both_in_one_file(self):
        self.touch(">%s 2>&1" % self.path("err"))
        self.assert_line(self.read("err"))

    def test_both_in_one_file_without_stdin(self):
        self.touch("<&- >%s 2>&1" % self.path("err"))
        self.assert_line(self.read("err"))

    def test_append(self):
        for _ in range(2):
            self.touch(">>%s 2>>%s" % (self.path("out"), self.path("err")))
        self.assert_line(self.read("err"), 2)

    def test_pipe(self):
        read_end, write_end = os.pipe()
        self.touch(stderr=write_end)
        os.close(write_end)
        with os.fdopen(read_end, encoding="utf-8") as stream:
            self.assert_line(stream.read())

    def test_terminal(self):
        ours, theirs = pty.openpty()
        self.touch(stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        self.assert_line(os.read(ours, 4096).decode().replace("\r\n", "\n"))
        os.close(ours)

    def test_journal(self):
        """systemd: /dev/null at 0, one stream socket at 1 and 2."""
        ours, theirs = socket.socketpair()
        self.touch(stdout=theirs, stderr=theirs)
        theirs.close()
        self.assert_line(ours.recv(4096).decode())
        ours.close()

    def test_journal_for_stderr_alone(self):
        ours, theirs = socket.socketpair()
        self.touch(stderr=theirs)
        theirs.close()
        self.assert_line(ours.recv(4096).decode())
        ours.close()

    def test_not_for_writing(self):
        open(self.path("err"), "w", encoding="utf-8").close()
        self.touch("2<" + self.path("err"))
        self.assertEqual(self.read("err"), "")

    def test_a_pipe_without_reader(self):
        """SIGPIPE would kill a program that never wrote there."""
        read_end, write_end = os.pipe()
        os.close(read_end)
        try:
            self.touch(stderr=write_end)
        except subprocess.CalledProcessError as failed:
            self.fail("killed: %s" % failed)
        finally:
            os.close(write_end)
        self.assertEqual(self.read("results"), "cuInit=100\n")

    def test_a_full_pipe(self):
        """A reader that does not read: a program that never wrote there must not wait for it."""
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        try:
            while True:
                os.write(write_end, b"x" * 65536)
        except BlockingIOError:
            pass
        os.set_blocking(write_end, True)
        try:
            self.touch(stderr=write_end)
        except subprocess.TimeoutExpired:
            self.fail("waits for the reader of descriptor 2")
        finally:
            os.close(write_end)
            os.close(read_end)
        self.assertEqual(self.read("results"), "cuInit=100\n")


if __name__ == "__main__":
    harness.main()
