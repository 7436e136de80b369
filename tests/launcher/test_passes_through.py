# SPDX-License-Identifier: Apache-2.0
"""Exit codes, signals, process id, descriptors, arguments and nesting are as without the
launcher. Each program runs unguarded, too: what is compared is what it does then."""

import os
import signal
import subprocess

import pytest

from support import harness, launcher
from support.observed import OBSERVE


class Codes(launcher.Case):
    def test_program_has_the_launchers_process_id(self):
        """Signals to this process arrive, and the program stops and goes on as any job does."""
        program = "echo $$; kill -STOP $$; echo on; read -r word; echo $word"
        process = subprocess.Popen(
            [launcher.LAUNCHER, "run", "sh", "-c", program], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env=launcher.environment(), text=True)
        self.assertEqual(int(process.stdout.readline()), process.pid)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        self.assertTrue(os.WIFSTOPPED(status))
        process.send_signal(signal.SIGCONT)
        self.assertEqual(process.communicate("word\n")[0], "on\nword\n")
        self.assertEqual(process.returncode, 0)

    def test_signals_stay_as_they_are(self):
        """As the program inherits them: blocked, ignored and caught."""
        script = "look='grep ^Sig[BIC] /proc/self/status'; $look; \"$0\" run $look"
        rows = self.unguarded("sh", "-c", script, launcher.LAUNCHER).stdout.splitlines()
        self.assertEqual((len(rows), rows[:3]), (6, rows[3:]))

    def test_run_works_with_sigchld_ignored(self):
        """The parent does not want to hear of its children."""
        done = self.start("run", "sh", "-c", "exit 7",
                          preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual((done.returncode, done.stderr), (7, ""))

    def test_program_finds_no_child_of_the_launcher(self):
        """The program does not find a child that it did not start."""
        done = self.start("run", "python3", "-c",
                          "import os\ntry: print(os.wait())\nexcept ChildProcessError: print('no')")
        self.assertEqual((done.stdout, done.returncode), ("no\n", 0), done)


def test_exit_code_or_signal_is_the_programs(case):
    """`run` becomes the program. For a launcher that stays test_observe_signals has more."""
    # -c: a core dump is not what is tested.
    for end, code in (("exit 0", 0), ("exit 125", 125), ("ulimit -c 0; kill -SEGV $$", -11)):
        assert case.unguarded("sh", "-c", end).returncode == code
        done = case.start("run", "--", "sh", "-c", end)
        assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_program_given_as_a_descriptor_starts(case):
    for words in ([], [launcher.LAUNCHER, "run"]):
        done = case.unguarded("sh", "-c", 'exec "$@" /dev/fd/9 -c "exit 7" 9</bin/sh', "sh", *words)
        assert done.returncode == 7, words


@pytest.mark.parametrize("shape", ["", "<&-", "2>&-", "<&- 2>&-", "<&- >&- 2>&-", "7</dev/null"])
def test_descriptors_are_as_without_the_launcher(case, shape):
    """Closed descriptors stay closed."""
    listing = ("import os; print(sorted((fd, os.readlink('/proc/self/fd/' + fd)) "
               "for fd in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + fd)"
               " and fd != '1'), file=open('%s', 'w'))" % case.path("fds"))
    seen = []
    # One file for all runs: pipes have new numbers each time.
    with open(case.path("err"), "wb") as err:
        for words in ([], [launcher.LAUNCHER, "run"], OBSERVE):
            start = ["sh", "-c", 'exec "$@" ' + shape, "sh", *words, "python3", "-c", listing]
            subprocess.run(start, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err,
                           env=launcher.environment(), timeout=120, check=True)
            seen.append(harness.read(case.path("fds")))
    assert seen == 3 * [seen[0]]


class Arguments(launcher.Case):
    SHOW = ("import os, sys, hashlib; words = open('/proc/self/cmdline', 'rb').read(); "
            "print(len(words), hashlib.sha256(words).hexdigest(), os.getcwd(), os.getppid())")

    def same(self, *words):
        wanted = self.unguarded(*words)
        self.assertEqual(wanted.returncode, 0, wanted)
        for options in (["run"], ["run", "--"], ["run", "--cpu", "--"]):
            got = self.start(*options, *words)
            self.assertEqual((got.stdout, got.returncode), (wanted.stdout, 0), options)

    def test_arguments_stay_as_they_are(self):
        self.same("python3", "-c", self.SHOW, "--gpus", "1", "--", "", " ", "a\nb", "\u00e4", "-x")
        self.same("python3", "-c", self.SHOW, *(["x" * 65535] * 16))

    def test_first_word_is_the_one_that_was_given(self):
        """The executable is the file that was found."""
        script = self.make("name", "#!/bin/sh\necho \"$0\" \"$@\"\n")
        env = launcher.environment(PATH=self.directory + ":" + os.environ["PATH"])
        for words in (["name", "a b"], [script, "c"]):
            wanted = self.unguarded(*words, env=env)
            got = self.start("run", *words, env=env)
            self.assertEqual((got.stdout, got.returncode), (wanted.stdout, 0), got)


class Nested(launcher.Case):
    def test_100_nested_runs_are_as_one(self):
        show = ["printenv", "LD_PRELOAD"]
        wanted = self.start("run", *show)
        self.assertEqual(wanted.stdout, harness.GUARD + "\n")
        words = [launcher.LAUNCHER, "run", "--"] * 99
        got = self.start("run", *words, *show)
        self.assertEqual((got.stdout, got.stderr, got.returncode), (wanted.stdout, "", 0))

    def test_inner_run_keeps_the_options_of_the_outer_run(self):
        got = self.start("run", "--gpus", "2", launcher.LAUNCHER, "run", "sh", "-c",
                         "echo $CUDAGUARD_POLICY $CUDAGUARD_VISIBLE_DEVICES")
        self.assertEqual(got.stdout, "VALIDATE 2\n", got)
