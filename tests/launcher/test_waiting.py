# SPDX-License-Identifier: Apache-2.0
"""How long verify and run --observe wait for the processes that the command leaves running."""

import ctypes
import os
import re
import signal

import pytest

from launcher import test_observe_signals
from support import fixtures, launcher, verified
from support.observed import OBSERVE

PTRACE_SEIZE = 0x4206
COMMANDS = pytest.mark.parametrize("command", [verified.VERIFY, OBSERVE], ids=["verify", "observe"])

make_case = fixtures.lent("case", test_observe_signals.Case)


def left(case, command, *options):
    """Returns (the launcher, the id of a process that the command leaves running)."""
    started = case.popen([*command, *options, "--", "sh", "-c",
                          "setsid sleep 1000 >/dev/null 2>&1 & echo $!"])
    return started, int(started.stdout.readline())


@COMMANDS
def test_grace_ends_the_wait(case, command):
    started, pid = left(case, command, "--grace", "0")
    _, err = started.communicate(timeout=test_observe_signals.PATIENCE)
    assert not case.has_ended(pid)
    os.kill(pid, signal.SIGKILL)
    assert re.search(r"not waited for: \w+ \(%d\)\n" % pid, err), err
    assert started.returncode == (3 if command is verified.VERIFY else 0), err


@COMMANDS
def test_grace_is_only_a_limit(case, command):
    """It does not delay the end, and it begins when the command has ended."""
    done = case.unguarded(*command, "--grace", "3600", "--", "sh", "-c", "(sleep 0.1; echo late) &",
                          env=launcher.environment())
    assert (done.returncode, done.stdout) == (0, "late\n"), done
    assert "not waited for" not in done.stderr, done


@pytest.mark.parametrize("value", ["", "x", "-1", "3601", "1.5"])
def test_wrong_grace_is_refused(case, value):
    done = case.start("verify", "--grace=" + value, "--", "true")
    assert done.returncode == 125
    assert '--grace "%s" is not accepted (accepted: seconds, 0 to 3600)' % value in done.stderr


def test_grace_of_run_needs_observe(case):
    done = case.start("run", "--grace", "1", "--", "true")
    assert (done.returncode, done.stdout) == (125, "")
    assert "--grace is for --observe" in done.stderr, done


@pytest.mark.needs("tracing")
@COMMANDS
def test_zombie_that_nobody_reaps_is_not_waited_for(case, command):
    """The control: while it lives, the launcher waits. A tracer outside has to reap it first."""
    libc = ctypes.CDLL(None, use_errno=True)
    started, pid = left(case, command)
    assert libc.ptrace(PTRACE_SEIZE, pid, None, None) == 0, os.strerror(ctypes.get_errno())
    assert started.poll() is None
    os.kill(pid, signal.SIGKILL)
    _, err = started.communicate(timeout=test_observe_signals.PATIENCE)
    assert case.state(pid) == "Z"
    os.waitpid(pid, 0)
    assert started.returncode == 0, err


@COMMANDS
def test_limit_orphans_have_the_launcher_as_their_parent(case, command):
    """docs/verify.md. The control: process 1, or another one outside, adopts them."""
    orphan = ('while [ "$(ps -o ppid= -p $$ | tr -d " ")" = $1 ]; do :; done; '
              'ps -o ppid= -p $$')
    words = ["sh", "-c", "sh -c '%s' - $$ & :" % orphan]
    outside = case.unguarded(*words)
    started = case.popen([*command, "--", *words])
    out, err = started.communicate(timeout=test_observe_signals.PATIENCE)
    assert int(out) == started.pid != int(outside.stdout), err
