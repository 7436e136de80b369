# SPDX-License-Identifier: Apache-2.0
"""At a terminal: a job that is stopped and continued by shells with job control, and a terminal
as `ssh -t` makes one. Each unguarded first; under `run` it is the same."""

import contextlib
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import time

from support import launcher

PATIENCE = 60  # seconds, then something hangs


def members_of(group):
    """The processes of a process group."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(int(name)) == group:
                yield int(name)


class Terminal:
    """A program that is the leader of a session on a terminal of its own; what it writes there."""

    def __init__(self, words, size=(24, 80), env=None):
        self.text = ""
        self.status = None
        start, go = os.pipe()
        self.pid, self.end = pty.fork()
        if self.pid == 0:
            try:
                os.close(go)
                os.read(start, 1)  # the terminal has its size before the program starts
                os.execvpe(words[0], words, env or launcher.environment())
            finally:
                os._exit(127)  # otherwise it would be a second test runner
        os.close(start)
        self.resize(*size)
        os.close(go)

    def resize(self, rows, columns):
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, text):
        os.write(self.end, text.encode())

    def expect(self, pattern):
        """The match, and everything up to its end is gone."""
        end = time.monotonic() + PATIENCE
        while True:
            match = re.search(pattern, self.text)
            if match:
                self.text = self.text[match.end():]
                return match
            if not select.select([self.end], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError("%r was awaited; there is %r, and\n%s"
                                     % (pattern, self.text, self.processes()))
            try:
                new = os.read(self.end, 65536)
            except OSError:  # EIO: no process has the terminal any more
                new = b""
            if not new:
                raise AssertionError("%r was awaited; at the end %r" % (pattern, self.text))
            self.text += new.decode("utf-8", "replace")

    def processes(self):
        """What the processes of the session wait for, where ps is installed."""
        if not shutil.which("ps"):
            return ""
        columns = "pid,ppid,pgid,tpgid,stat,wchan:20,pending,blocked,ignored,args"
        return subprocess.run(["ps", "-ww", "-o", columns, "-s", str(self.pid)], text=True,
                              stdout=subprocess.PIPE, check=False).stdout

    def close(self):
        if self.end >= 0:
            os.close(self.end)
        self.end = -1

    def wait(self):
        """The program's status, as waitpid gives it."""
        end = time.monotonic() + PATIENCE
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
            elif time.monotonic() > end:
                raise AssertionError("it does not end; there is %r" % self.text)
            else:
                time.sleep(0.01)
        return self.status

    def stop(self):
        self.close()
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()


class Case(launcher.Case):
    def setUp(self):
        super().setUp()
        self.program = launcher.program("terminal")

    def both(self, check):
        """check(words in front) for the unguarded program and under `run`: the same."""
        unguarded = check([])
        self.assertEqual(check([launcher.LAUNCHER, "run"]), unguarded)
        return unguarded

    def terminal(self, words, **more):
        terminal = Terminal(words, **more)
        self.addCleanup(terminal.stop)
        return terminal


class Jobs(Case):
    def session(self, shell, before):
        """A user with ^Z, jobs, fg, bg and ^C; returns what was seen."""
        env = launcher.environment(PS1="$ ", TERM="dumb", HISTFILE="/dev/null", ENV=None)
        terminal = self.terminal(shell, env=env)
        seen = []

        def step(keys, *patterns):
            terminal.send(keys)
            seen.extend(terminal.expect(pattern)[0] for pattern in patterns)

        def stop():
            """Under a launcher, the shell waits for that alone: a program that has not stopped yet may
            read the next line."""
            group = os.tcgetpgrp(terminal.end)
            step("\x1a", "Stopped", r"\$ ")
            self.until(lambda: {self.state(pid) for pid in members_of(group)} == {"T"})

        terminal.expect(r"\$ ")
        command = " ".join(before + [self.program])
        step(command + "\n", r"tty=.*\r\n", r"size=.*\r\n", "ready")
        stop()
        step("jobs\n", r"\[1\].*Stopped.*" + re.escape(command))
        seen[-1] = seen[-1].replace(command, "COMMAND")
        step("fg\n", "continued")
        step("hello\n", "got hello")
        stop()
        step("fg\n", "continued")
        step("\x04", r"\$ ")
        step("echo code=$?\n", r"code=\d+")
        step(command + " wait\n", "ready")
        stop()
        step("fg\n", "continued")
        step("\x03", r"\$ ")
        step("echo code=$?\n", r"code=\d+")
        step(command + " wait\n", "ready")
        stop()
        step("bg\n", "continued")
        step("jobs\n", "Running")
        step("kill -USR1 %1\n", "usr1")
        # Not by the code of `wait %1`: bash 5.3 forgets it once the job's end was shown.
        step("kill %1; wait; jobs; echo left=$(jobs | wc -l)\n", r"left=\d+")
        step("exit 5\n")
        self.assertEqual(os.waitstatus_to_exitcode(terminal.wait()), 5)
        return seen

    def check(self, *shell):
        self.need(shell[0])
        seen = self.both(lambda before: self.session(list(shell), before))
        self.assertEqual([word for word in seen if word.startswith(("code=", "left="))],
                         ["code=7", "code=130", "left=0"])
        self.assertEqual(seen[0].strip(), "tty=111 leader=1 session=0 own-group=1 foreground=1 "
                         "own-session-tty=1")
        self.assertEqual(seen[1].strip(), "size=24x80")

    def test_job_control_of_bash_works_as_without_run(self):
        self.check("bash", "--norc", "--noprofile", "-i")

    def test_job_control_of_dash_works_as_without_run(self):
        self.check("dash", "-i")


class SshLike(Case):
    """The program itself leads the session, as after `ssh -t host program`."""

    def test_window_size_reaches_the_program(self):
        def check(before):
            terminal = self.terminal(before + [self.program], size=(33, 99))
            seen = [terminal.expect(r"tty=.*\r\n")[0], terminal.expect(r"size=.*\r\n")[0]]
            terminal.expect("ready")
            terminal.resize(40, 100)
            seen.append(terminal.expect(r"size=.*\r\n")[0])
            terminal.send("hello\n")
            seen.append(terminal.expect(r"got .*\r\n")[0])
            terminal.send("\x04")
            return seen, terminal.wait()

        seen, status = self.both(check)
        self.assertEqual([line.strip() for line in seen],
                         ["tty=111 leader=1 session=1 own-group=1 foreground=1 own-session-tty=1",
                          "size=33x99", "size=40x100", "got hello"])
        self.assertEqual(os.waitstatus_to_exitcode(status), 7)

    def test_keys_end_the_program_as_without_run(self):
        for key, number in (("\x03", signal.SIGINT), ("\x1c", signal.SIGQUIT)):
            def check(before, key=key):
                terminal = self.terminal(before + [self.program, "wait"])
                terminal.expect("ready")
                terminal.send(key)
                return os.WTERMSIG(terminal.wait())

            self.assertEqual(self.both(check), number)

    def test_lost_connection_ends_the_program(self):
        """SIGHUP ends the program, or the program handles the signal."""
        for way, wanted in (("wait", -signal.SIGHUP), ("hup", 3)):
            def check(before, way=way):
                terminal = self.terminal(before + [self.program, way])
                terminal.expect("ready")
                terminal.close()
                return os.waitstatus_to_exitcode(terminal.wait())

            self.assertEqual(self.both(check), wanted, way)
