# SPDX-License-Identifier: Apache-2.0
"""`cudaguard system` is killed at every system call, and each call fails with ENOSPC and EIO. The
file is then the old one or the new one, and sh, ls and a login work."""

import collections
import errno
import os
import re
import signal
import subprocess

import pytest

from support import fixtures, harness, system_root
from support.system_root import FILE, GUARD

pytestmark = pytest.mark.all

CALL = re.compile(r"(\w+)\(")
OTHER = "/opt/other.so"
# {scenario: (action, the file before, the file afterwards)}
SCENARIOS = {
    "first": ("enable", None, GUARD + "\n"),
    "beside others": ("enable", OTHER + " # why\n", GUARD + "\n" + OTHER + " # why\n"),
    "last": ("disable", GUARD + "\n", None),
    "others stay": ("disable", "# a\n%s:%s\n" % (GUARD, OTHER), "# a\n" + OTHER + "\n"),
}
# Without --full, one scenario of each action is enough.
EACH = [pytest.param(name, marks=[] if name in ("beside others", "last") else pytest.mark.full)
        for name in SCENARIOS]
Point = collections.namedtuple("Point", "name number")  # the number of the call of this name


class Case(system_root.Case):
    def setUp(self):
        super().setUp()
        self.need("strace")
        self.add(system_root.libraries_of("/bin/su")[0], OTHER)

    def put(self, text):
        if text is not None:
            self.write(FILE, text)
        elif os.path.exists(self.inside(FILE)):
            os.remove(self.inside(FILE))

    def strace(self, action, *options):
        """Runs the command under strace. Returns the run and its system calls."""
        log = self.path("strace")
        done = self.unguarded("strace", "-o", log, *options, self.command, "system", action,
                              "--root", self.root)
        with open(log, encoding="utf-8") as stream:
            return done, [line for line in stream if CALL.match(line)]

    def calls(self, action, old):
        """Returns every call of an undisturbed run as (Point, line)."""
        self.put(old)
        done, lines = self.strace(action)
        self.assertEqual(done.returncode, 0, done)
        counts, points = collections.Counter(), []
        for line in lines:
            name = CALL.match(line)[1]
            counts[name] += 1
            points.append((Point(name, counts[name]), line))
        return points

    def disturb(self, action, old, new, point, how):
        """Lets the call `point` end in this way. Fails unless the root directory then works."""
        self.put(old)
        done, _ = self.strace(action, "-e", "inject=%s:%s:when=%d" % (point.name, how, point.number))
        where = "%s, %s at %s" % (done, how, point)
        self.assertIn(self.text(), (old, new), where)
        if done.returncode == 0:
            self.assertEqual(self.text(), new, where)
        self.programs_work()
        return done


make_case = fixtures.lent("case", Case)


def test_change_by_another_program_is_kept(case):
    """The other program changes the file just before the new one gets its name."""
    log = case.make("strace", "", 0o644)
    tracer = subprocess.Popen(
        ["strace", "-o", log, "-e", "inject=fsync:signal=STOP:when=1", case.command, "system",
         "enable", "--root", case.root], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True)
    case.addCleanup(tracer.kill)

    def stopped():
        return "stopped by SIGSTOP" in harness.read(log)
    case.until(stopped)
    case.write(FILE, OTHER + "\n")
    children = "/proc/%d/task/%d/children" % (tracer.pid, tracer.pid)
    with open(children, encoding="ascii") as stream:
        os.kill(int(stream.read()), signal.SIGCONT)
    _, err = tracer.communicate(timeout=120)
    assert (tracer.returncode, err) == (125, "cudaguard: %s cannot be changed: another program has "
                                        "just changed it\n" % FILE)
    assert case.text() == OTHER + "\n"
    assert os.listdir(case.inside("etc")).count("ld.so.preload") == 1


def ending(points):
    """The calls from the one on that first opens /etc to change it. Before, nothing is written."""
    (start, *_) = [at for at, (_, line) in enumerate(points) if '"/etc", O_RDONLY' in line]
    return points[start:]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_new_file_is_on_the_disk_before_it_gets_its_name(case, scenario):
    action, old, new = SCENARIOS[scenario]
    names = [point.name for point, _ in ending(case.calls(action, old))
             if point.name in ("write", "fchmod", "fsync", "rename", "unlink")]
    change = ["unlink"] if new is None else ["write", "fchmod", "fsync", "rename"]
    assert names == [*change, "fsync", "write"]  # the last one prints the result
    assert case.text() == new


@pytest.mark.parametrize("scenario", EACH)
def test_command_that_is_killed_leaves_a_file_that_works(case, scenario):
    action, old, new = SCENARIOS[scenario]
    points = [point for point, _ in case.calls(action, old)]
    last = [point for point, _ in ending(case.calls(action, old))]
    before = points[1:-len(last)]  # without strace's own execve
    states, killed = set(), set()
    for point in harness.sample(before, 12) + last:
        done = case.disturb(action, old, new, point, "signal=KILL")
        if done.returncode in (-9, 137):  # otherwise this run had fewer calls of this name
            states.add(case.text())
            killed.add(point.name)
    assert states == {old, new}
    wanted = {"unlink", "fsync"} if new is None else {"write", "fchmod", "fsync", "rename", "close"}
    assert killed >= wanted
    # The next command removes what the killed ones have left.
    case.put(old)
    case.done(action)
    assert case.text() == new
    assert [name for name in os.listdir(case.inside("etc")) if name.startswith("ld.so")] == (
        [] if new is None else ["ld.so.preload"])


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
@pytest.mark.parametrize("scenario", EACH)
def test_call_that_fails_leaves_a_file_that_works(case, scenario, error):
    action, old, new = SCENARIOS[scenario]
    refusals = set()
    for point, _ in ending(case.calls(action, old)):
        if point.name == "exit_group":
            continue
        done = case.disturb(action, old, new, point, "error=" + error)
        if done.returncode != 0:
            refusals.add(point.name)
            assert done.returncode == 125, done
            assert re.fullmatch(r"cudaguard: [ -~]+\n", done.stderr), done
            assert os.strerror(getattr(errno, error)) in done.stderr, done
            late = "is changed, but" in done.stderr or "cannot print" in done.stderr
            assert late or case.text() == old, (point, done)
    wanted = {"unlink", "fsync"} if new is None else {"write", "fchmod", "fsync", "rename", "close"}
    assert refusals >= wanted
