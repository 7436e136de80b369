# SPDX-License-Identifier: Apache-2.0
"""An ordinary user's verify. Yama's kernel.yama.ptrace_scope says whose memory it may read: with 1
its descendants', with 2 nobody's unless it has CAP_SYS_PTRACE, with 3 nobody's. The tests take the
value that they find, and scripts/lab runs them with each (lab/kernels.py)."""

import json
import os

import pytest

from support import fixtures, launcher, machine

pytestmark = pytest.mark.needs("ordinary_user")
# What a shell does to start $program, how many programs it starts before that, and with which scope
# verify may not read the memory of the one that starts it.
TREES = {
    "child": ('"$program"', 0, 2),
    "script": ("echo '#!/bin/sh\n\"$1\"; true' >script; chmod 755 script; "
               './script "$program"', 2, 2),
    "make": ('echo "all:; -$program" | make -f -', 1, 2),
    "session": ('setsid -w "$program"', 1, 2),
    # Its parent has ended, as a daemon's.
    "daemon": ('go=${program##*/}.go; mkfifo "$go"; '
               'setsid -f sh -c \'read line <"$1"; exec "$0"\' "$program" "$go"; echo >"$go"', 3, 2),
    # verify's user has made the namespace, so verify has each capability in it.
    "namespace": ('unshare -r "$program"', 1, 3),
}
ASKS = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"


def scope():
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="utf-8") as stream:
            return int(stream.read())
    except FileNotFoundError:
        return 0  # without Yama


def why_closed():
    return "kernel.yama.ptrace_scope is %d, so no memory can be read" % scope()


class Case(launcher.Case):
    nobody = [*machine.AS_NOBODY, "--"]

    def setUp(self):
        super().setUp()
        self.command = self.installed()
        os.chmod(self.directory, 0o777)

    def ends(self, words, code, guarded, unguarded=(), unknown=(), who=None):
        """Runs the words under an ordinary user's verify. Checks its exit code, how many programs
        are guarded, and why the others are not or may not be. Returns what it printed."""
        if who is None:
            who = self.nobody if os.geteuid() == 0 else []
        path = self.path("verify.json")
        done = self.unguarded(*who, self.command, "verify", "--json", path, "--", *words,
                              cwd=self.directory, env=launcher.environment(TMPDIR="/tmp"))
        self.assertEqual(done.returncode, code, done)
        with open(path, encoding="utf-8") as stream:
            tree = json.load(stream)["tree"]
        found = [[one["reason"] for one in tree[kind]] for kind in ("unguarded", "unknown")]
        self.assertEqual([tree["guarded"], *found], [guarded, list(unguarded), list(unknown)], done)
        return done.stderr

    def starts_static(self, words, guarded, known, unknown, **more):
        """`words` start static_0 last, which the guard cannot be in. `unknown` is said if verify may
        not know it."""
        if known:
            self.ends(words, 0, guarded, unguarded=["static"], **more)
        else:
            self.ends(words, 3, guarded, unknown=[unknown], **more)


make_case = fixtures.lent("case", Case)


@pytest.mark.parametrize("name", TREES)
def test_each_start_is_counted(case, name):
    """A start beacon tells of a guarded program, also where no memory may be read."""
    script, before, closed = TREES[name]
    case.need(*(tool for tool in ("make", "setsid", "unshare") if tool in script))
    if name == "namespace":
        machine.need("user_namespaces")
    words = ["sh", "-c", "for program; do %s; done; true" % script, "-"]
    case.ends([*words, case.copied("exits_0")], 0, 1 + before + 1)
    case.starts_static([*words, case.copied("static_0")], 1 + before, scope() < closed, why_closed())


def test_attempt_is_found(case):
    text = case.ends(["sh", "-c", 'python3 -c "$0"; true', ASKS], 1, 2)
    assert ("the memory of its process could not be read" in text) == (scope() > 1), text


def test_search_in_path_starts_one_program(case):
    """The kernel answers that the first name is not there."""
    script = ("import os\nif os.fork() == 0:\n    os.environ['PATH'] = '/no:' + os.environ['PATH']\n"
              "    os.execvp('true', ['true'])\nos.wait()")
    case.ends(["python3", "-c", script], 0, 2)


def test_limit_failed_start_of_a_child_that_ends_is_unknown(case):
    """Documented: where its memory may not be read, nothing says that the call has failed."""
    script = ("import os\nif os.fork() == 0:\n    try: os.execv('/no', ['no'])\n"
              "    except OSError: os._exit(0)\nos.wait()")
    closed = scope() > 1
    case.ends(["python3", "-c", script], 3 if closed else 0, 1, unknown=[why_closed()] * closed)


@pytest.mark.needs("root", "other_users_processes")
def test_roots_verify_reads_unless_nobody_may(case):
    case.starts_static([*case.nobody, case.copied("static_0")], 1, scope() < 3,
                       why_closed(), who=[])


@pytest.mark.needs("root")
def test_roots_verify_without_the_capability_is_an_ordinary_users(case):
    """As in a container."""
    who = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-all", "--"]
    case.starts_static(["sh", "-c", '"$0"; true', case.copied("static_0")], 1, scope() < 2,
                       why_closed(), who=who)
