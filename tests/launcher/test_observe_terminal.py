# SPDX-License-Identifier: Apache-2.0
"""run --observe at a terminal: what plain `run` is held to (test_terminal.py), and what a launcher
that stays could spoil."""

import os
import re
import signal

from support import launcher
from launcher import test_terminal
from support.observed import NO_ATTEMPT, OBSERVE, WITH_WARNINGS


class Mixed:
    """The tests of plain `run` at a terminal, observed: the same but for what ps would show."""

    def both(self, check):
        unguarded = check([])
        self.assertEqual(self.plain(check(OBSERVE)), self.plain(unguarded))
        return unguarded

    def plain(self, seen):
        if isinstance(seen, (list, tuple)):
            return [self.plain(part) for part in seen]
        if not isinstance(seen, str):
            return seen
        # The launcher leads the group, and the session. A SIGCONT for the group is passed on where
        # the program was not seen to stop.
        seen = re.sub(r"leader=\d session=\d own-group=\d", "", seen.replace(NO_ATTEMPT, ""))
        return re.sub(r"(continued\n)+", "continued\n", seen)


class Jobs(Mixed, test_terminal.Jobs):
    pass


class SshLike(Mixed, test_terminal.SshLike):
    pass


class Shell(test_terminal.Case):
    """A shell with job control inside: the terminal is its own, then the outer one's again."""

    def test_shell_with_job_control_works_inside(self):
        def check(before):
            env = launcher.environment(PS1="outer> ", TERM="dumb", HISTFILE="/dev/null", ENV=None)
            terminal = self.terminal(["bash", "--norc", "--noprofile", "-i"], env=env)

            def step(keys, *patterns):
                terminal.send(keys)
                for pattern in patterns:
                    terminal.expect(pattern)

            terminal.expect("outer> ")
            step(" ".join(["PS1='in''ner> '", *before, "bash", "--norc", "--noprofile", "-i\n"]),
                 "inner> ")
            step(self.program + " wait\n", "ready")
            step("\x1a", "Stopped", "inner> ")
            step("fg\n", "continued")
            step("\x03", "inner> ")
            step("echo code=$?\n", "code=130", "inner> ")
            step("suspend\n", "Stopped", "outer> ")
            step("fg\n", "inner> ")
            step("exit 9\n", "outer> ")
            step("echo code=$?\n", "code=9", "outer> ")
            step("exit 4\n")
            return os.waitstatus_to_exitcode(terminal.wait())

        for before in ([], OBSERVE):
            self.assertEqual(check(before), 4)


class Keys(test_terminal.Case):
    PROGRAM = ("import os, signal, sys, time\n"
               "if %r: os.setpgid(0, 0); signal.signal(signal.SIGTTIN, signal.SIG_IGN)\n"
               "seen = []\n"
               # By write: print is not reentrant.
               "def put(text): os.write(1, text.encode() + b'\\n')\n"
               "def note(number, _): seen.append(number); put('int %%d' %% len(seen))\n"
               "signal.signal(signal.SIGINT, note)\n"
               "signal.signal(signal.SIGUSR1, lambda *_: (put('all %%d' %% len(seen)), sys.exit(6)))\n"
               "put('pid=%%d.' %% os.getpid())\n"
               "while True: time.sleep(0.05)\n")

    def test_key_reaches_a_program_as_one_signal(self):
        """In the launcher's group, or in its own: the terminal does not reach that, so the signal is
        passed on."""
        for own_group in (False, True):
            terminal = self.terminal(OBSERVE + ["python3", "-c", self.PROGRAM % own_group])
            pid = int(terminal.expect(r"pid=(\d+)\.")[1])
            for count in (1, 2):
                terminal.send("\x03")
                terminal.expect("int %d" % count)
            os.kill(pid, signal.SIGUSR1)
            terminal.expect("all 2")
            terminal.expect("no process was seen to ask for CUDA")
            self.assertEqual(os.waitstatus_to_exitcode(terminal.wait()), 6)

    def test_first_ctrl_c_ends_the_program_and_the_second_the_waiting(self):
        # The key must not come before the process left behind has its own session.
        leave = ("(setsid sh -c 'echo >%s; read word <%s' >/dev/null 2>&1 &); read word <%s; "
                 "trap 'exit 8' INT; echo ready; while :; do sleep 0.02; done")
        fifos = [self.path("has-session"), self.path("go")]
        for path in fifos:
            os.mkfifo(path)
        terminal = self.terminal([*WITH_WARNINGS, "sh", "-c", leave % (*fifos, fifos[0])])
        with open(os.open(self.path("go"), os.O_RDWR), "w", encoding="utf-8"):
            terminal.expect("ready")
            terminal.send("\x03")
            terminal.expect("the program has ended; waiting for the processes that it left running: sh")
            terminal.send("\x03")
            terminal.expect("not waited for: sh")
            self.assertEqual(os.waitstatus_to_exitcode(terminal.wait()), 8)
