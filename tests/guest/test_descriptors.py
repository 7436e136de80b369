# SPDX-License-Identifier: Apache-2.0
"""A program that was started with descriptors 0-2 closed has its own files there, and the
guard's line must not land in them. Where descriptor 2 is what the user gave, the line is there."""

import contextlib
import itertools
import os
import pty
import shlex
import shutil
import signal
import socket
import subprocess

from support import guest, harness, messages

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
        """Runs a program that opens as many files as there are closed descriptors, attempts to use
        CUDA, and writes to the files. Returns the descriptors it got and what the files hold then.
        """
        for name in os.listdir(self.directory):
            os.unlink(self.path(name))
        steps = ["open:%s:%s" % (self.path("file%d" % n), mode) for n in closed]
        # Only now: the results need a descriptor too.
        steps += ["results:" + self.results]
        steps += ["put:%d:before\n" % n for n in closed] + ["ask", "nvml"]
        steps += ["put:%d:after\n" % n for n in closed] + ["touches"]
        out = self.launch(" ".join("%d>&-" % n for n in closed), steps, guard=guard, env=env or {})
        contents = {}
        for n in closed:
            with open(self.path("file%d" % n), encoding="utf-8", errors="replace") as stream:
                contents[n] = stream.read()
        return out, contents

    def subsets(self):
        return [s for size in (1, 2, 3) for s in itertools.combinations((0, 1, 2), size)]

    def test_no_message_goes_to_the_programs_own_files(self):
        for closed in self.subsets():
            for mode in MODES:
                if self.is_exception(closed, mode):
                    continue
                for log in ("deny", "all"):
                    with self.subTest(closed=closed, mode=mode, log=log):
                        _, unguarded = self.own_files(closed, mode, guard=False)
                        out, guarded = self.own_files(closed, mode, env={"CUDAGUARD_LOG": log})
                        self.assertIn("cuInit=100\n", out)
                        self.assertIn("touches=2\n", out)
                        for n in closed:
                            self.assertIn("before\nafter\n", unguarded[n])
                        self.assertEqual(guarded, unguarded)

    @staticmethod
    def is_exception(closed, mode):
        """In docs/limits.md: 2 was closed, perhaps with 1, and the program has a regular file
        there, opened for writing only and without close-on-exec. With /dev/null, a terminal or a
        pipe at 0 this is the same as `>out 2>err`."""
        return closed in ((2,), (1, 2)) and mode in ("w", "wa")

    def test_limit_message_can_land_in_a_file_of_the_program(self):
        for closed in self.subsets():
            for mode in MODES:
                if not self.is_exception(closed, mode):
                    continue
                with self.subTest(closed=closed, mode=mode):
                    out, contents = self.own_files(closed, mode)
                    self.assertIn("cuInit=100\n", out)
                    self.assertEqual(len(messages.find(contents[2], "no_cuda")), 1, contents)
                    self.assertEqual(messages.without(contents[2], "no_cuda"), "before\nafter\n")
                    # The remedy.
                    _, contents = self.own_files(closed, mode, env={"CUDAGUARD_LOG": "off"})
                    self.assertEqual(contents[2], "before\nafter\n")

    def test_no_record_goes_to_the_programs_own_files(self):
        for closed in self.subsets():
            if self.is_exception(closed, "w"):
                continue
            with self.subTest(closed=closed):
                _, unguarded = self.own_files(closed, "w", guard=False)
                _, guarded = self.own_files(closed, "w", env={"CUDAGUARD_REPORT": "/dev/stderr"})
                self.assertEqual(guarded, unguarded)

    def test_programs_own_socket_gets_no_message(self):
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

    def attempt(self, redirections="", **options):
        self.launch(redirections, ["results:" + self.results, "ask"], **options)

    def read(self, name):
        with open(self.path(name), encoding="utf-8", newline="") as stream:
            return stream.read()

    def test_message_goes_to_a_file(self):
        self.attempt("2>" + self.path("err"))
        self.assert_line(self.read("err"))

    def test_message_goes_to_a_file_after_a_pipe(self):
        self.attempt("2>" + self.path("err"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assert_line(self.read("err"))

    def test_message_goes_to_a_file_for_both_streams(self):
        self.attempt(">%s 2>&1" % self.path("err"))
        self.assert_line(self.read("err"))

    def test_message_goes_to_that_file_without_stdin(self):
        self.attempt("<&- >%s 2>&1" % self.path("err"))
        self.assert_line(self.read("err"))

    def test_messages_are_appended_to_a_file(self):
        for _ in range(2):
            self.attempt(">>%s 2>>%s" % (self.path("out"), self.path("err")))
        self.assert_line(self.read("err"), 2)

    def test_message_goes_to_a_pipe(self):
        read_end, write_end = os.pipe()
        self.attempt(stderr=write_end)
        os.close(write_end)
        with os.fdopen(read_end, encoding="utf-8") as stream:
            self.assert_line(stream.read())

    def test_message_goes_to_a_terminal(self):
        ours, theirs = pty.openpty()
        self.attempt(stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        self.assert_line(os.read(ours, 4096).decode().replace("\r\n", "\n"))
        os.close(ours)

    def test_message_goes_to_the_journal(self):
        """systemd opens /dev/null as descriptor 0 and one stream socket as 1 and 2."""
        ours, theirs = socket.socketpair()
        self.attempt(stdout=theirs, stderr=theirs)
        theirs.close()
        self.assert_line(ours.recv(4096).decode())
        ours.close()

    def test_message_goes_to_a_journal_for_stderr_alone(self):
        ours, theirs = socket.socketpair()
        self.attempt(stderr=theirs)
        theirs.close()
        self.assert_line(ours.recv(4096).decode())
        ours.close()

    def test_file_that_is_open_for_reading_gets_no_message(self):
        open(self.path("err"), "w", encoding="utf-8").close()
        self.attempt("2<" + self.path("err"))
        self.assertEqual(self.read("err"), "")

    def test_pipe_without_a_reader_does_not_kill(self):
        """SIGPIPE would kill a program that never wrote there."""
        read_end, write_end = os.pipe()
        os.close(read_end)
        try:
            self.attempt(stderr=write_end)
        except subprocess.CalledProcessError as failed:
            self.fail("killed: %s" % failed)
        finally:
            os.close(write_end)
        self.assertEqual(self.read("results"), "cuInit=100\n")

    def test_full_pipe_does_not_block(self):
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
            self.attempt(stderr=write_end)
        except subprocess.TimeoutExpired:
            self.fail("waits for the reader of descriptor 2")
        finally:
            os.close(write_end)
            os.close(read_end)
        self.assertEqual(self.read("results"), "cuInit=100\n")


NOBODY = 65534


class NeverKills(guest.Case):
    """The guard rather loses the message than lets the program die or wait."""

    def setUp(self):
        super().setUp()
        # Where every user may look.
        self.guard = harness.copy_install(self.path("lib"))
        self.program = self.path("steps")
        shutil.copy(guest.STEPS, self.program)
        self.driver = self.path("driver")
        shutil.copytree(harness.FAKE_DRIVER, self.driver, symlinks=True)

    def ask(self, *steps, guard=True, wrap=(), **options):
        """Runs the steps; the exit code and what it printed."""
        words = [*wrap, "env", "-i", "LD_LIBRARY_PATH=" + self.driver]
        if guard:
            words.append("LD_PRELOAD=" + self.guard)
        words += ["%s=%s" % item for item in options.pop("env", {}).items()]
        try:
            done = subprocess.run(words + [self.program, *steps], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, timeout=20, check=False, **options)
        except subprocess.TimeoutExpired:
            self.fail("waits: " + shlex.join(words))
        return done.returncode, done.stdout.decode()

    def same_as_unguarded(self, *steps, make_stderr, **options):
        """Checks that the program ends alike, guarded and not. make_stderr gives a descriptor."""
        outcomes = []
        for guard in (False, True):
            with make_stderr() as stderr:
                outcomes.append(self.ask(*steps, guard=guard, stderr=stderr, **options))
        unguarded, guarded = outcomes
        self.assertIn("cuInit=0\n", unguarded[1])
        answers = unguarded[1].replace("cuInit=0", "cuInit=100")
        self.assertEqual(guarded, (unguarded[0], answers.replace("nvmlInit_v2=0", "nvmlInit_v2=9")))
        return unguarded[0]

    @contextlib.contextmanager
    def no_reader(self):
        read_end, write_end = os.pipe()
        os.close(read_end)
        yield write_end
        os.close(write_end)

    @contextlib.contextmanager
    def full(self):
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        try:
            while True:
                os.write(write_end, b"x" * 4096)
        except BlockingIOError:
            pass
        os.set_blocking(write_end, True)
        yield write_end
        os.close(write_end)
        os.close(read_end)

    def with_room(self, *steps, **options):
        """What arrives in a pipe."""
        read_end, write_end = os.pipe()
        code, out = self.ask(*steps, stderr=write_end, **options)
        os.close(write_end)
        with os.fdopen(read_end, encoding="utf-8") as stream:
            text = stream.read()
        self.assertEqual(code, 0, text)
        self.assertIn("cuInit=100\n", out)
        return text

    @contextlib.contextmanager
    def file(self):
        with open(self.path("err"), "wb") as stream:
            yield stream

    def test_limit_of_the_file_size_does_not_kill(self):
        self.need("prlimit")
        wrap = ("prlimit", "--fsize=0")
        for env in ({}, {"CUDAGUARD_LOG": "all"}, {"CUDAGUARD_REPORT": "/dev/stderr"},
                    {"CUDAGUARD_REPORT": self.path("report")}):
            with self.subTest(env):
                code = self.same_as_unguarded("ask", "nvml", make_stderr=self.file, wrap=wrap,
                                              env=env)
                self.assertEqual((code, os.path.getsize(self.path("err"))), (0, 0))
        # The limit is one, and the program's own signals are still its own.
        code = self.same_as_unguarded("ask", "put:2:x", make_stderr=self.file, wrap=wrap)
        self.assertEqual(code, -signal.SIGXFSZ)
        # Without the limit the line does land there.
        with self.file() as stderr:
            self.ask("ask", stderr=stderr)
        with open(self.path("err"), encoding="utf-8") as stream:
            self.assert_line(stream.read())

    def assert_line(self, text):
        self.assertEqual(len(messages.find(text, "no_cuda", cause="FORCE_CPU")), 1, text)

    def check_pipes(self, *before, wrap=()):
        """No reader, no room, and both as they should be."""
        for env in ({}, {"CUDAGUARD_REPORT": "/dev/stderr"}):
            with self.subTest(env):
                options = {"wrap": wrap, "env": env}
                code = self.same_as_unguarded(*before, "ask", make_stderr=self.no_reader,
                                              **options)
                self.assertEqual(code, 0)
                code = self.same_as_unguarded(*before, "ask", make_stderr=self.full, **options)
                self.assertEqual(code, 0)
                self.assert_line(self.with_room(*before, "ask", **options))
        # SIGPIPE is what the program itself would get.
        code = self.same_as_unguarded(*before, "ask", "put:2:x", make_stderr=self.no_reader,
                                      wrap=wrap)
        self.assertEqual(code, -signal.SIGPIPE)

    def test_pipe_without_reader_or_room_does_not_kill(self):
        self.check_pipes()

    def test_pipe_of_another_user_does_not_kill(self):
        """A service manager's: /proc/self/fd/2 cannot be opened."""
        self.need("setpriv")
        if os.geteuid() != 0:
            harness.skip(self, "needs root to be another user")
        wrap = ("setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups")
        read_end, write_end = os.pipe()
        done = subprocess.run([*wrap, "sh", "-c", ": <>/proc/self/fd/2"], stderr=write_end,
                              check=False)
        os.close(write_end)
        with os.fdopen(read_end, encoding="utf-8") as stream:
            self.assertIn("Permission denied", stream.read())
        self.assertNotEqual(done.returncode, 0)
        self.check_pipes(wrap=wrap)

    def test_pipes_do_not_kill_without_a_free_descriptor(self):
        self.check_pipes("load:libcuda.so.1", "nofile:3")
