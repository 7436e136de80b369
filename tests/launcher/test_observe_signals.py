# SPDX-License-Identifier: Apache-2.0
"""Under run --observe the launcher stays, and its callers see no difference in exit codes, signals,
job control and descriptors. It waits for the whole tree. Each test runs unguarded first."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest.mock

import pytest

from support import fixtures, harness, launcher
from support.observed import NO_ATTEMPT, OBSERVE, WITH_WARNINGS

PATIENCE = 60  # seconds, then something hangs
AS_PROCESS_1 = ["bwrap", "--dev-bind", "/", "/", "--proc", "/proc", "--unshare-pid", "--as-pid-1"]


class Case(launcher.Case):
    COMMAND = OBSERVE

    def setUp(self):
        super().setUp()
        # KILL leaves a directory behind.
        os.mkdir(self.path("tmp"))
        patch = unittest.mock.patch.dict(os.environ, TMPDIR=self.path("tmp"))
        patch.start()
        self.addCleanup(patch.stop)

    def popen(self, words, **more):
        """Its stdin, stdout and stderr are pipes."""
        more.setdefault("env", launcher.environment())
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = subprocess.Popen([str(word) for word in words], text=True, **pipes, **more)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()

    def both(self, check):
        """check(words in front), unguarded and observed: the same."""
        unguarded = check([])
        self.assertEqual(check(self.COMMAND), unguarded)
        return unguarded


class Killed(Case):
    def test_limit_killed_launcher_leaves_its_directory(self):
        """tests/lab/limits.md: KILL leaves it behind, with the records in it; TERM does not."""
        directory = os.environ["TMPDIR"]
        for number in (signal.SIGTERM, signal.SIGKILL):
            process = self.popen([launcher.LAUNCHER, "run", "--observe", "--", "sh", "-c",
                                  "echo $$; exec sleep 600"])
            program = int(process.stdout.readline())
            self.assertRegex(" ".join(os.listdir(directory)), r"\Acudaguard-\w{6}\Z")
            process.send_signal(number)
            process.wait(PATIENCE)
            self.until(lambda pid=program: self.has_ended(pid), number)
            left = os.listdir(directory)
            self.assertEqual(len(left), 1 if number == signal.SIGKILL else 0, left)
            for name in left:
                shutil.rmtree(os.path.join(directory, name))


class Codes(Case):
    def test_only_the_program_writes_a_core_file(self):
        """The program's; the launcher dies by the same signal and says nothing of another one."""
        def check(before):
            process = subprocess.Popen(
                ["sh", "-c", 'ulimit -c unlimited; exec "$@"', "sh", *before, "sh", "-c",
                 "kill -ABRT $$"], cwd=self.path("tmp"), env=launcher.environment(),
                stderr=subprocess.DEVNULL)
            _, status = os.waitpid(process.pid, 0)
            process.returncode = 0
            self.assertEqual(os.WTERMSIG(status), signal.SIGABRT)
            return os.WCOREDUMP(status)

        if not check([]):
            harness.skip(self, "this system dumps no core")
        self.assertFalse(check(OBSERVE))

    @pytest.mark.needs("sandbox")
    def test_process_1_exits_with_the_signals_code(self):
        """Process 1 does not die by a signal: as a shell would say it."""
        done = self.unguarded(*AS_PROCESS_1, *OBSERVE, "sh", "-c", "echo $PPID; kill -TERM $$")
        self.assertEqual((done.returncode, done.stdout), (128 + signal.SIGTERM, "1\n"), done)
        done = self.unguarded(*AS_PROCESS_1, *OBSERVE, "sh", "-c",
                              "(setsid sh -c 'echo late' &) ; exit 3")
        self.assertEqual((done.returncode, done.stdout), (3, "late\n"), done)


make_case = fixtures.lent("case", Codes)


@pytest.mark.parametrize(("end", "code"), [
    *(("exit %d" % code, code) for code in (0, 7, 125, 126, 127, 255)),
    *(("ulimit -c 0; kill -%d $$" % number, -number) for number in (15, 9, 11, 2, 13)),
    ("kill -CHLD $$", 0)])
def test_exit_code_or_signal_is_the_programs(case, end, code):
    words = ["sh", "-c", "echo out; echo err >&2; " + end]
    assert case.unguarded(*words).returncode == code
    done = case.start("run", "--observe", *words)
    assert (done.returncode, done.stdout, done.stderr) == (code, "out\n", "err\n" + NO_ATTEMPT)


class Passed(Case):
    """Signals are sent to the launcher."""
    FAILED = 5  # when the program ends with this exit code
    COUNT = ("import os, select, signal\n"
             "seen = []\n"
             "def note(number, _):\n"
             "    seen.append(number)\n"
             "    os.write(1, b'one\\n')\n"  # print is not reentrant
             "for number in %r: signal.signal(number, note)\n"
             "os.write(1, b'%%d\\n' %% os.getpid())\n"
             # Python runs a handler between two calls: none may last.
             "while not select.select([0], [], [], 0.05)[0]: pass\n"
             "print(seen, flush=True)\n")

    def counting(self, before, *numbers, **more):
        process = self.popen(before + ["python3", "-c", self.COUNT % (list(map(int, numbers)),)],
                             **more)
        return process, int(process.stdout.readline())

    def test_every_signal_reaches_the_program(self):
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1,
                   signal.SIGUSR2, signal.SIGALRM, signal.SIGWINCH, signal.SIGCONT, signal.SIGTSTP,
                   signal.SIGTTIN, signal.SIGTTOU, signal.SIGPIPE, signal.SIGRTMIN, signal.SIGRTMAX)
        for number in numbers:
            def check(before, number=number):
                process, pid = self.counting(before, number)
                self.assertEqual(pid == process.pid, not before, number)
                process.send_signal(number)
                self.assertEqual(process.stdout.readline(), "one\n", number)
                return process.communicate("\n", timeout=PATIENCE)[0], process.returncode

            self.assertEqual(self.both(check), ("[%d]\n" % number, 0), number)

    def test_killed_launcher_ends_the_program(self):
        process, pid = self.counting(self.COMMAND)
        self.assertFalse(self.has_ended(pid))
        process.kill()
        self.assertEqual(process.wait(PATIENCE), -signal.SIGKILL)
        self.until(lambda: self.has_ended(pid))

    def test_alarm_set_before_exec_works_as_without_observe(self):
        """exec keeps an alarm: `perl -e 'alarm 5; exec ...'`."""
        def check(before):
            done = self.unguarded("python3", "-c", "import os, signal, sys\n"
                                  "signal.setitimer(signal.ITIMER_REAL, 0.3)\n"
                                  "os.execvp(sys.argv[1], sys.argv[1:])", *before, "sleep", "60")
            return done.returncode

        self.assertEqual(self.both(check), -signal.SIGALRM)

    def test_signal_from_the_tree_reaches_the_program_once(self):
        program = ("import os, signal, sys, time\n"
                   "seen = []\n"
                   "signal.signal(12, signal.SIG_IGN)\n"
                   "signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))\n"
                   "os.kill(0, signal.SIGUSR1)\n"
                   "os.system('python3 -c \"import os; os.kill(0, 12)\"')\n"
                   "os.system('true'); time.sleep(0.1)\n"
                   "print(seen)\n")

        def check(before):
            done = self.unguarded(*before, "python3", "-c", program, start_new_session=True)
            return done.stdout, done.returncode

        self.assertEqual(self.both(check), ("[1]\n", 0))

    def test_program_keeps_signal_mask_and_dispositions(self):
        """The program has those that the launcher was started with. Signals 32 and 33 are glibc's own:
        a container starts programs that ignore them, and every thread takes 33 back."""
        show = "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status"
        own = 3 << 31

        def prepare():
            signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGUSR1, signal.SIGTERM})
            for number in (signal.SIGHUP, signal.SIGCHLD, signal.SIGTSTP):
                signal.signal(number, signal.SIG_IGN)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)

        for before_exec in (None, prepare):
            def check(before, before_exec=before_exec):
                out = self.unguarded(*before, *show.replace("'", "").split(),
                                     preexec_fn=before_exec).stdout
                return {name: int(mask, 16) & ~own for name, mask in re.findall(r"(\w+):\s(\w+)", out)}

            self.assertIn("SigBlk", self.both(check))
        self.assertEqual(self.unguarded(*self.COMMAND, "sh", "-c", "exit 5",
                                        preexec_fn=prepare).returncode, self.FAILED)

    def test_program_is_continued_by_its_process_id(self):
        """A process that knows only the program's id continues it, not the launcher."""
        process = self.popen(self.COMMAND + ["sh", "-c", "echo $$; kill -STOP $$; exit 5"],
                             start_new_session=True)
        pid = int(process.stdout.readline())
        self.until(lambda: self.state(pid) == "T")
        os.kill(pid, signal.SIGCONT)
        self.assertEqual(process.wait(PATIENCE), self.FAILED)

    def test_tstp_stops_the_launcher_and_the_program(self):
        """A parent with job control stops and continues both, by our process id or the group's. The
        program gets the signal once."""
        for send in (os.kill, os.killpg):
            def check(before, send=send):
                # A group of its own: the kernel stops no group that no process could continue.
                process, pid = self.counting(before, signal.SIGCONT, preexec_fn=os.setpgrp)
                send(process.pid, signal.SIGTSTP)
                self.until(lambda: self.state(pid) == "T" and self.state(process.pid) == "T")
                send(process.pid, signal.SIGCONT)
                self.assertEqual(process.stdout.readline(), "one\n")
                self.until(lambda: self.state(process.pid) != "T")
                return process.communicate("\n", timeout=PATIENCE)[0], process.returncode

            self.assertEqual(self.both(check), ("[%d]\n" % signal.SIGCONT, 0), send.__name__)

    def test_sigcont_right_after_two_stops_is_not_lost(self):
        """It may be the only one."""
        def check(before):
            process, pid = self.counting(before, signal.SIGCONT, preexec_fn=os.setpgrp)
            for send, number in ((process.pid, signal.SIGSTOP), (pid, signal.SIGTSTP)):
                os.kill(send, number)
                self.until(lambda send=send: self.state(send) == "T")
            process.send_signal(signal.SIGCONT)
            self.until(lambda: self.state(pid) != "T")
            self.assertEqual(process.stdout.readline(), "one\n")
            return process.communicate("\n", timeout=PATIENCE)[0], process.returncode

        self.assertEqual(self.both(check), ("[%d]\n" % signal.SIGCONT, 0))


class PassedByVerify(Passed):
    """It waits for the kernel's notifications as well."""
    COMMAND = [launcher.LAUNCHER, "verify"]
    FAILED = 2
    test_alarm_set_before_exec_works_as_without_observe = None  # verify ends by no signal

    @staticmethod
    def state(pid):
        return Passed.state(pid).upper()  # of a traced one "t"


make_passed = fixtures.lent("passed", Passed)


@pytest.mark.parametrize(("options", "trap", "code"), [
    (["-s", "TERM"], "", 124), (["-s", "KILL"], "", -9), (["-k", "0.2"], "trap '' TERM; ", -9),
    (["--foreground"], "", 124)])
def test_timeout_ends_the_program(passed, options, trap, code):
    """timeout(1) sends to its child and to the group; with -k, it sends KILL later. Its time is over
    when SIGALRM comes."""
    passed.need("timeout")

    def check(before):
        process = passed.popen(["timeout", *options, "600", *before, "sh", "-c", trap +
                                "echo $$; while :; do sleep 0.05; done"])
        pid = int(process.stdout.readline())
        passed.until(lambda: passed.state(process.pid) == "S", "the wait after fork")
        process.send_signal(signal.SIGALRM)
        process.wait(PATIENCE)
        passed.until(lambda: passed.has_ended(pid))
        return process.returncode

    assert passed.both(check) == code


class Descriptors(Case):
    def test_launcher_holds_no_descriptor_of_the_program(self):
        """Who reads from the program, or writes to it, sees when it closes its ends; so does who
        waits for a lock."""
        reader, writer = os.pipe()
        go = self.path("go")
        os.mkfifo(go)
        # Only bash closes a descriptor above 9. It then waits until the test opens the FIFO.
        process = self.popen(OBSERVE + ["bash", "-c",
                                        "exec 0<&- 1>&- %d>&-; : <%s" % (writer, go)],
                             pass_fds=(writer,), start_new_session=True)
        os.close(writer)
        for fd, done in ((process.stdout.fileno(), lambda fd: os.read(fd, 1) == b""),
                         (reader, lambda fd: os.read(fd, 1) == b""),
                         (process.stdin.fileno(), lambda fd: os.write(fd, b"x") < 0)):
            os.set_blocking(fd, False)
            self.until(lambda fd=fd, done=done: self.is_done(done, fd), fd)
        os.close(reader)
        self.assertIsNone(process.poll())
        with open(go, "wb"):
            pass
        self.assertEqual(process.wait(PATIENCE), 0)

    @staticmethod
    def is_done(done, fd):
        try:
            return done(fd)
        except BlockingIOError:
            return False
        except BrokenPipeError:
            return True


class Waits(Case):
    # Stays until it may go; in a session of its own, its parents have ended.
    LEAVE = "(setsid sh -c 'exec <%s >/dev/null; echo $$ >%s; read word; exit 9' 2>/dev/null &); "

    def leaving(self, before=(), end="echo; exit 7", command=None):
        """A program that leaves a process behind, and the process's number."""
        directory = tempfile.mkdtemp(dir=self.directory)
        path, number = os.path.join(directory, "go"), os.path.join(directory, "pid")
        os.mkfifo(path)
        process = self.popen([*before, *(command or WITH_WARNINGS), "sh", "-c",
                              self.LEAVE % (path, number) + end])
        # Not only for writing, because that would block until there is a reader.
        go = open(os.open(path, os.O_RDWR), "w", encoding="utf-8")
        self.addCleanup(go.close)
        self.until(lambda: os.path.exists(number) and os.path.getsize(number))
        return process, int(harness.read(number)), go

    def test_launcher_waits_for_what_is_left_and_prints_it(self):
        """The exit code is the program's."""
        process, pid, go = self.leaving()
        self.assertEqual(process.stderr.readline(), "cudaguard: the program has ended; waiting for "
                         "the processes that it left running: sh (%d) "
                         "(Ctrl-C, SIGTERM or --grace ends the wait)\n" % pid)
        parent = harness.read("/proc/%d/stat" % pid).rsplit(")", 1)[1].split()[1]
        self.assertEqual(int(parent), process.pid)
        self.assertIsNone(process.poll())
        go.write("word\n")
        go.close()
        self.assertEqual(process.communicate(timeout=PATIENCE), ("\n", NO_ATTEMPT))
        self.assertEqual(process.returncode, 7)

    def test_ignored_hangup_stays_ignored(self):
        """nohup: neither the program nor the waiting hears of a hangup."""
        process, _, go = self.leaving(before=["nohup"], end="kill -HUP $$; exit 7")
        self.until(lambda: "waiting for" in process.stderr.readline())
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGHUP)
        go.write("word\n")
        go.close()
        _, err = process.communicate(timeout=PATIENCE)
        self.assertEqual((err, process.returncode), (NO_ATTEMPT, 7))

    def test_signal_ends_the_program_but_not_the_waiting(self):
        """It is the program's alone, and the tree is waited for."""
        process, _, go = self.leaving(end="trap 'exit 8' TERM; echo; while :; do sleep 0.02; done")
        process.stdout.readline()
        process.terminate()
        self.assertIn("waiting for", process.stderr.readline())
        go.close()
        self.assertEqual(process.wait(PATIENCE), 8)

    def test_launcher_does_not_wait_for_children_of_the_shell(self):
        """A shell that has become the launcher had children of its own. The launcher does not wait
        for them, above all not for those that wait for the launcher."""
        code = "exec 2> >(cat >%s); exec \"$@\"" % self.path("err")
        done = self.unguarded("bash", "-c", code, "bash", *OBSERVE, "sh", "-c", "exit 3")
        self.assertEqual(done.returncode, 3)
        self.until(lambda: os.path.getsize(self.path("err")))
        self.assertEqual(harness.read(self.path("err")), NO_ATTEMPT)
        # One of others that runs on, and one of the tree that is waited for.
        os.mkfifo(self.path("other"))
        late = "(setsid sh -c 'while [ -e /proc/'$$' ]; do sleep 0.02; done; echo late' &); exit 4"
        process = self.popen(["sh", "-c", 'sh -c "read word" <%s >/dev/null 2>&1 & exec "$@"' %
                              self.path("other"),
                              "sh", *OBSERVE, "sh", "-c", late])
        with open(self.path("other"), "w", encoding="utf-8"):
            self.assertEqual(process.communicate(timeout=PATIENCE), ("late\n", NO_ATTEMPT))
            self.assertEqual(process.returncode, 4)


make_waits = fixtures.lent("waits", Waits)


def test_signal_ends_the_waiting(waits):
    """The processes that were left go on. All launchers wait at the same time."""
    ends = {True: "echo; exit 0", False: "echo; kill -USR1 $$"}
    started = [(number, verify, *waits.leaving(end=ends[verify is not None], command=verify))
               for number, verify in ((signal.SIGTERM, None), (signal.SIGINT, None),
                                      (signal.SIGTERM, [launcher.LAUNCHER, "verify"]))]
    for number, verify, process, pid, go in started:
        assert ("the program has ended; waiting for the processes that it left running: sh (%d)" %
                pid) in process.stderr.readline()
        process.send_signal(signal.SIGUSR2)  # for the program, which is not there any more
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
        left = "  not waited for: sh (%d)\n" % pid
        if verify:
            assert (process.returncode, out) == (3, "\n"), err
            assert left in err
        else:
            assert (process.returncode, out, err) == (-signal.SIGUSR1, "\n", NO_ATTEMPT + left)
        assert not waits.has_ended(pid)
        go.write("word\n")
        go.close()
        waits.until(lambda pid=pid: waits.has_ended(pid))


@pytest.mark.needs("sandbox")
def test_sigterm_to_process_1_ends_the_waiting_too(waits):
    """docker stop sends it once, and SIGKILL ten seconds later, without a result."""
    process, _, go = waits.leaving(before=AS_PROCESS_1, command=[launcher.LAUNCHER, "verify"],
                                   end="trap 'exit 8' TERM; echo; while :; do sleep 0.02; done")
    process.stdout.readline()
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], check=True,
                              capture_output=True, text=True).stdout.split()
    os.kill(int(children[0]), signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2, err
    assert "the program ended with exit code 8" in err
    assert "  not waited for: sh (" in err
    go.close()
