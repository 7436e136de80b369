# SPDX-License-Identifier: Apache-2.0
"""Plug-ins are linked to runtimes of two major versions, and under OFF each call reaches its own
runtime."""

import os
import re

import pytest

from support import fixtures, harness

FAKE = [harness.program("fake_runtime_plugin_%d.so" % major) for major in (12, 13)]
REAL = [harness.program("runtime_plugin_%d.so" % major) for major in (12, 13)]
OFF = {"CUDAGUARD_POLICY": "OFF"}


def expected(major):
    return "runtime=%d000 count=%d:%d set=%d wait=%d000" % (major, major, major, major * 100 + 3,
                                                             major)


class FakeRuntimes(harness.Case):
    """Recording runtimes, whose answers name the runtime that was called."""

    def run_pair(self, mode, plugins=None, **more):
        return harness.run([harness.program("two_runtimes"), mode] + (plugins or FAKE), **more)

    def off(self, mode, plugins=None):
        """Returns the output under OFF, which has to be that of the unguarded program."""
        unguarded = self.run_pair(mode, plugins, guard=False)
        guarded = self.run_pair(mode, plugins, env=OFF)
        self.assertEqual(unguarded.rc, 0, unguarded)
        self.assertEqual(guarded.rc, 0, guarded)
        self.assertEqual(sorted(guarded.out.splitlines()), sorted(unguarded.out.splitlines()),
                         guarded)
        self.assertEqual([line for line in guarded.err.splitlines() if "cudaguard" in line], [])
        self.assertEqual(sorted(guarded.fake_calls), sorted(unguarded.fake_calls))
        return guarded

    def test_each_call_reaches_its_own_runtime(self):
        result = self.off("together")
        self.assertEqual(result.out.splitlines(), [expected(12), expected(13)] * 2)

    def test_load_order_does_not_matter(self):
        result = self.off("together", FAKE[::-1])
        self.assertEqual(result.out.splitlines(), [expected(13), expected(12)] * 2)

    def test_runtime_at_a_reused_address_is_found(self):
        result = self.off("replace")
        self.assertEqual(result.out.splitlines(), [expected(12), expected(13)] * 3)
        # If ld.so never reused the first one's address for the second, this test would prove less.
        self.assertIn("sameAddress=1", result.err, result)

    def test_ambiguous_tail_call_reaches_a_runtime(self):
        """The guard cannot know which runtime such a call belongs to, but it must reach one of
        them."""
        result = self.run_pair("tail", env=OFF)
        for line in result.out.splitlines():
            self.assertIn(line, ("tail=12:12", "tail=13:13"), result)

    def test_each_threads_call_reaches_its_own_runtime(self):
        result = self.off("threads")
        lines = sorted(result.out.splitlines())
        self.assertEqual(lines, [expected(12)] * 400 + [expected(13)] * 400)


class RealRuntimes(FakeRuntimes):
    """NVIDIA's own runtimes 12 and 13 are in one process."""

    def run_pair(self, mode, plugins=None, **more):
        plugins = [REAL[FAKE.index(plugin)] for plugin in plugins or FAKE]
        missing = [path for path in REAL if not os.path.exists(path)]
        if missing:
            harness.skip(self, "scripts/fetch-cuda brought no runtimes for %s" % missing[0])
        return super().run_pair(mode, plugins, **more)

    def check_majors(self, result, order):
        majors = [line.split("=")[1][:2] for line in result.out.splitlines()]
        self.assertEqual(majors, order, result)
        # Each of them has called the recording driver.
        self.assertIn("cuInit", result.fake_calls)

    def test_each_call_reaches_its_own_runtime(self):
        self.check_majors(self.off("together"), ["12", "13"] * 2)

    def test_load_order_does_not_matter(self):
        self.check_majors(self.off("together", FAKE[::-1]), ["13", "12"] * 2)

    def test_runtime_at_a_reused_address_is_found(self):
        self.check_majors(self.off("replace"), ["12", "13"] * 3)

    def test_ambiguous_tail_call_reaches_a_runtime(self):
        result = self.run_pair("tail", env=OFF)
        self.assertNotIn("tail=100", result.out, result)
        self.assertIn("cuInit", result.fake_calls)

    def test_each_threads_call_reaches_its_own_runtime(self):
        result = self.off("threads")
        self.assertEqual(len(result.out.splitlines()), 800)


make_fake_runtimes = fixtures.lent("fake_runtimes", FakeRuntimes)


@pytest.mark.parametrize(("plugin", "major"), zip(FAKE, (12, 13)))
def test_fake_runtimes_tail_call_reaches_its_runtime(fake_runtimes, plugin, major):
    """A call in tail position has its return address in the plug-in's caller. That caller needs
    no runtime itself (libffi, for a library that ctypes has loaded)."""
    result = fake_runtimes.off("tail", [plugin] * 2)
    assert result.out.splitlines() == ["tail=%d:%d" % (major, major)] * 4


def test_fake_runtimes_guarded_calls_get_the_guards_answers(fake_runtimes):
    """The same programs under FORCE_CPU get the guard's answers."""
    result = fake_runtimes.run_pair("together")
    assert result.rc == 0, str(result)
    for line in result.out.splitlines():
        assert re.search(r"count=100:0 set=100 wait=100$", line), str(result)


make_real_runtimes = fixtures.lent("real_runtimes", RealRuntimes)


@pytest.mark.parametrize("plugin", FAKE)
def test_real_runtimes_tail_call_reaches_its_runtime(real_runtimes, plugin):
    real_runtimes.off("tail", [plugin] * 2)


@pytest.mark.parametrize("mode", ["together", "replace", "tail"])
@pytest.mark.parametrize("world", ("none", "fake") + (("real", ) if harness.have_real_driver() else
                                                      ()))
def test_real_runtimes_guarded_calls_get_the_guards_answers(real_runtimes, world, mode):
    result = real_runtimes.run_pair(mode, world=world)
    assert result.rc == 0, str(result)
    assert re.search(r"(count|tail)=100:", result.out), result.out
    assert not re.search(r"(count|tail|set|wait)=(?!100)\d", result.out), str(result)
    result.assert_untouched(real_runtimes)
