# SPDX-License-Identifier: Apache-2.0
"""Beside other preloaded libraries that hook dlopen, before and after the guard: theirs are still
called, and the guard still answers."""


import pytest

from support import guest, harness

FIRST = guest.binary("hook_first.so")
SECOND = guest.binary("hook_second.so")


def order(*libraries):
    result = harness.run([guest.STEPS, "load:libm.so.6", "ask", "nvml", "ask:libcuda.so",
                          "load:libcg-none.so"], guard=False, preload=libraries,
                         env={"CG_HOOK_LOG": "1"})
    lines = result.out.splitlines()
    return result, [line for line in lines if "(" in line], \
        [line for line in lines if "=" in line]


@pytest.mark.parametrize("libraries",
                         [(FIRST, harness.GUARD), (harness.GUARD, FIRST),
                          (FIRST, harness.GUARD, SECOND), (harness.GUARD, FIRST, SECOND),
                          (FIRST, SECOND, harness.GUARD)])
def test_guard_works_before_and_after_other_preloads(case, libraries):
    unguarded, unguarded_calls, _ = order(FIRST, SECOND)
    unguarded.assert_reached(case)
    assert "first dlopen(libm.so.6)" in unguarded_calls
    assert "second dlopen(libcuda.so.1)" in unguarded_calls
    wanted = ["load=ok", "cuInit=100", "nvmlInit_v2=9", "cuInit=100", "load=failed"]
    result, calls, answers = order(*libraries)
    assert result.rc == 0, str(result)
    assert answers == wanted, str(result)
    result.assert_untouched(case)
    assert guest.DENIED % "steps" in guest.lines_of(result.err)
    # Every request of the program went through every hook, in order.
    tags = [tag for library, tag in ((FIRST, "first"), (SECOND, "second"))
            if library in libraries]
    assert len(calls) == len(tags) * 5, str(result)
    for tag in tags:
        mine = [call for call in calls if call.startswith(tag)]
        assert mine[0] == tag + " dlopen(libm.so.6)"
        assert mine[-1] == tag + " dlopen(libcg-none.so)"
        is_after = libraries.index(harness.GUARD) < libraries.index(
            FIRST if tag == "first" else SECOND)
        name = harness.NULL_DRIVER_CUDA if is_after else "libcuda.so.1"
        assert mine[1] == "%s dlopen(%s)" % (tag, name)


@pytest.mark.parametrize("second", ["same", "copy"])
def test_guard_that_is_preloaded_twice_prints_one_message(case, second):
    """LD_PRELOAD names the same guard twice, as nested launchers do, or two copies of the
    guard."""
    other = harness.GUARD if second == "same" else harness.copy_install(case.path("lib"))
    result, _, answers = order(harness.GUARD, other)
    assert answers[1:4] == ["cuInit=100", "nvmlInit_v2=9", "cuInit=100"], str(result)
    case.untouched(result)
    assert len(guest.lines_of(result.err)) == 1, str(result)
