# SPDX-License-Identifier: Apache-2.0
"""Plug-ins are linked to runtimes of two major versions, and under OFF each call reaches its own
runtime: a recording one, whose answers name the runtime that was called, or NVIDIA's own."""

import os
import re
import sys

import pytest

from support import harness

PROGRAM = os.path.join(harness.SOURCE, "tests", "runtimes", "programs", "two_runtimes.py")
PLUGINS = {"fake": "fake_runtime_plugin_%d.so", "real": "runtime_plugin_%d.so"}


def expected(major):
    return "runtime=%d000 count=%d:%d set=%d wait=%d000" % (major, major, major, major * 100 + 3,
                                                             major)


def run(case, kind, mode, majors=(12, 13), **more):
    plugins = [harness.program(PLUGINS[kind] % major) for major in majors]
    for path in plugins:
        if not os.path.exists(path):
            harness.skip(case, "scripts/fetch-cuda brought no runtime for " + path)
    return harness.run([sys.executable, PROGRAM, mode, *plugins], **more)


def off(case, kind, mode, majors):
    """Returns the output under OFF, which has to be that of the unguarded program. Threads print
    their lines in any order."""
    unguarded = run(case, kind, mode, majors, guard=False)
    guarded = run(case, kind, mode, majors, env={"CUDAGUARD_POLICY": "OFF"})
    assert (unguarded.rc, guarded.rc) == (0, 0), "%s\n%s" % (unguarded, guarded)
    assert sorted(guarded.out.splitlines()) == sorted(unguarded.out.splitlines()), str(guarded)
    assert [line for line in guarded.err.splitlines() if "cudaguard" in line] == []
    assert sorted(guarded.fake_calls) == sorted(unguarded.fake_calls)
    assert kind == "fake" or "cuInit" in guarded.fake_calls  # NVIDIA's have called the fake driver
    return guarded


@pytest.mark.parametrize(("mode", "majors"), [
    ("together", (12, 13)), ("together", (13, 12)), ("replace", (12, 13)), ("threads", (12, 13))])
@pytest.mark.parametrize("kind", PLUGINS)
def test_each_call_reaches_its_own_runtime(case, kind, mode, majors):
    result = off(case, kind, mode, majors)
    lines = result.out.splitlines()
    order = majors * {"together": 2, "replace": 3, "threads": 400}[mode]
    if mode == "threads":
        lines, order = sorted(lines), sorted(order)
    if kind == "fake":
        assert lines == [expected(major) for major in order], str(result)
    else:
        assert [line.split("=")[1][:2] for line in lines] == list(map(str, order)), str(result)
    # If ld.so never reused the first one's address for the second, this would prove less.
    assert mode != "replace" or kind == "real" or "sameAddress=1" in result.err, str(result)


@pytest.mark.parametrize("major", [12, 13])
@pytest.mark.parametrize("kind", PLUGINS)
def test_tail_call_reaches_its_runtime(case, kind, major):
    """A call in tail position has its return address in the plug-in's caller. That caller needs
    no runtime itself (libffi, for a library that ctypes has loaded)."""
    result = off(case, kind, "tail", (major, major))
    assert kind == "real" or result.out.splitlines() == ["tail=%d:%d" % (major, major)] * 4


@pytest.mark.parametrize("kind", PLUGINS)
def test_ambiguous_tail_call_reaches_a_runtime(case, kind):
    """The guard cannot know which runtime such a call belongs to, but it must reach one of them."""
    result = run(case, kind, "tail", env={"CUDAGUARD_POLICY": "OFF"})
    if kind == "fake":
        assert set(result.out.splitlines()) <= {"tail=12:12", "tail=13:13"}, str(result)
    else:
        assert "tail=100" not in result.out and "cuInit" in result.fake_calls, str(result)


def test_calls_of_fake_runtimes_get_the_guards_answers(case):
    """The same programs under FORCE_CPU get the guard's answers."""
    result = run(case, "fake", "together")
    assert result.rc == 0, str(result)
    for line in result.out.splitlines():
        assert re.search(r"count=100:0 set=100 wait=100$", line), str(result)


@pytest.mark.parametrize("mode", ["together", "replace", "tail"])
@pytest.mark.parametrize("world", ["none", "fake"] + ["real"] * harness.have_real_driver())
def test_calls_of_real_runtimes_get_the_guards_answers(case, world, mode):
    result = run(case, "real", mode, world=world)
    assert result.rc == 0, str(result)
    assert re.search(r"(count|tail)=100:", result.out), result.out
    assert not re.search(r"(count|tail|set|wait)=(?!100)\d", result.out), str(result)
    result.assert_untouched(case)
