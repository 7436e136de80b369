# SPDX-License-Identifier: Apache-2.0
"""A program's runtime may be in the global scope, next to another major version there, asked by a
constructor's thread while ld.so holds its lock, or missing."""

import pytest

from support import fixtures, harness

OFF = {"CUDAGUARD_POLICY": "OFF"}
MAJORS = (12, 13)
SECONDS = 20  # these programs need almost no time


def answers(major):
    return "%d:%d:%d:%d000" % (major, major, major * 100 + 3, major)


DENIED = "100:0:100:100"


class Scopes(harness.Case):
    def three(self, *argv):
        """Runs the program unguarded, under OFF (which has to be the same) and under FORCE_CPU."""
        argv = [harness.program(argv[0]), *argv[1:]]
        unguarded = harness.run(argv, guard=False, timeout=SECONDS)
        self.assertEqual(unguarded.rc, 0, unguarded)
        off = harness.run(argv, env=OFF, timeout=SECONDS)
        self.assertFalse(off.timed_out, off)
        self.assertEqual((off.rc, off.out, off.err), (0, unguarded.out, unguarded.err), off)
        self.assertEqual(off.fake_calls, unguarded.fake_calls)
        forced = harness.run(argv, timeout=SECONDS)
        self.assertFalse(forced.timed_out, forced)
        self.assertEqual(forced.rc, 0, forced)
        self.assertEqual([c for c in forced.fake_calls if "RuntimeGetVersion" not in c], [], forced)
        return unguarded.out.splitlines(), forced.out.splitlines()

    def test_weak_references_to_the_driver_load_nothing_under_off(self):
        """Under OFF, weak references load no library of cudaguard, and calls through them answer as
        if the libraries were missing. The libraries that the program loads later are the driver's.
        """
        program = [harness.program("weak_driver")]
        unguarded = harness.run(program, guard=False)
        self.assertEqual(unguarded.rc, 0, unguarded)
        names = [name for name in unguarded.answers if name.startswith(("cu", "nvml"))]
        self.assertEqual({unguarded.answers[name] for name in names}, {"null"}, unguarded)
        loaded = {"loaded.cuInit": "0", "loaded.nvmlInit_v2": "0", "ours": ""}
        self.assertLessEqual(loaded.items(), unguarded.answers.items(), unguarded)
        off = harness.run(program, env={"CUDAGUARD_LOG": "all", **OFF})
        wanted = {name: "12" if name.startswith("nvml") else "100" for name in names}
        wanted.update(loaded, cuDeviceGet="3", nvmlDeviceGetHandleByIndex_v2="2", function="null")
        self.assertEqual((off.rc, off.answers, off.err), (0, wanted, ""), off)
        self.assertEqual(off.fake_calls, unguarded.fake_calls)
        # Control: FORCE_CPU answers with the null drivers.
        forced = harness.run(program)
        self.assertEqual((forced.rc, forced.answers["loaded.cuInit"], forced.answers["ours"]),
                         (0, "100", "libcuda.so.1,libnvidia-ml.so.1,"), forced)
        forced.assert_untouched(self)


make_case = fixtures.lent("case", Scopes)


@pytest.mark.parametrize("program", ["global_runtimes", "global_runtimes_reversed"])
def test_two_majors_in_the_global_scope_work_as_unguarded(case, program):
    unguarded, forced = case.three(program)
    assert unguarded == ["user%d=%s" % (m, answers(m)) for m in MAJORS] * 2
    assert forced == ["user%d=%s" % (m, DENIED) for m in MAJORS] * 2


@pytest.mark.parametrize("major", MAJORS)
@pytest.mark.parametrize("scope", ["local", "global"])
def test_plugin_of_another_major_reaches_its_own_runtime(case, scope, major):
    unguarded, forced = case.three(
        "linked_runtime", harness.program("fake_runtime_plugin_%d.so" % major), scope)
    plugin = "runtime=%d000 count=%d:%d set=%d wait=%d000" % (
        major, major, major, major * 100 + 3, major)
    assert unguarded == ["program=" + answers(12), plugin] * 2
    plugin = "runtime=%d000 count=100:0 set=100 wait=100" % major
    assert forced == ["program=" + DENIED, plugin] * 2


@pytest.mark.parametrize("major", MAJORS)
def test_thread_of_a_constructor_does_not_hang(case, major):
    plugin = harness.program("runtime_on_load_%d.so" % major)
    unguarded, forced = case.three("entry_point", "plugin=" + plugin)
    assert unguarded == ["onLoad=" + answers(major)]
    assert forced == ["onLoad=" + DENIED]
    unguarded, forced = case.three("linked_runtime", plugin)
    assert unguarded == ["program=" + answers(12), "onLoad=" + answers(major)] * 2
    assert forced == ["program=" + DENIED, "onLoad=" + DENIED] * 2


@pytest.mark.parametrize("env", [{}, OFF])
def test_limit_weak_references_find_the_guards_names(case, env):
    """A known limit (tests/lab/limits.md): in a program without a runtime, a name that the guard
    exports is defined."""
    program = [harness.program("weak_runtime")]
    unguarded = harness.run(program, guard=False)
    assert (unguarded.rc,
            unguarded.answers) == (0,
                                   {"cudaSetDevice": "null", "cudaMalloc": "null",
                                    "answer": "-1"}), str(unguarded)
    guarded = harness.run(program, env=env)
    assert (guarded.rc,
            guarded.answers) == (0, {"cudaSetDevice": "set", "cudaMalloc": "null",
                                     "answer": "100"}), str(guarded)
    guarded.assert_untouched(case)
