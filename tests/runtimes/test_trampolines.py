# SPDX-License-Identifier: Apache-2.0
"""Programs that export cu* trampolines of their own, as TensorFlow does, do not recurse."""

import pytest

from support import harness

# The trampolines are in the program itself, or in a library that it is linked to.
PROGRAMS = ("trampolines", "trampolines_linked")
# The programs linked to a library of the driver, and the ways by which each finds its functions.
LINKED = {"linked_cuda": ("plt", "proc", "proc1", "dlopen", "devname", "default", "next", "self"),
          "linked_nvml": ("plt", "dlopen", "default", "next", "self")}
WORLDS = ("fake", "real") if harness.have_real_driver() else ("fake",)


@pytest.mark.parametrize("name", PROGRAMS)
def test_trampolines_get_the_guards_answers(case, name):
    unguarded = harness.run([harness.program(name)], guard=False)
    unguarded.assert_reached(case)
    assert unguarded.answers["cuInit"] == "0", str(unguarded)
    for world in WORLDS + ("none",):
        result = harness.run([harness.program(name)], world=world)
        assert result.rc == 0, str(result)
        expected = {"cuInit": "100", "countRc": "3", "version": "99990", "procRc": "0",
                    "procInit": "100"}
        assert expected.items() <= result.answers.items(), str(result)
        result.assert_untouched(case)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("words", [[name] for name in PROGRAMS] + [
    [program, way] for program, ways in LINKED.items() for way in ways])
def test_program_reaches_the_driver_under_off(case, words, world):
    """As without the guard, each call goes once through the trampoline and once to the driver. For
    a program linked to the driver, OFF forwards the guard's own entries to the driver."""
    words = [harness.program(words[0]), *words[1:]]
    unguarded = harness.run(words, world=world, guard=False)
    unguarded.assert_reached(case)
    guarded = harness.run(words, world=world, env={"CUDAGUARD_POLICY": "OFF"})
    for field in "rc", "out", "err", "fake_calls", "device_opens":
        assert getattr(guarded, field) == getattr(unguarded, field), str(guarded)
