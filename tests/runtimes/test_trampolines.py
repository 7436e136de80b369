# SPDX-License-Identifier: Apache-2.0
"""Programs that export cu* trampolines of their own, as TensorFlow does, do not recurse."""

import pytest

from support import harness

PROGRAMS = ("trampolines", "trampolines_linked")
OFF = {"CUDAGUARD_POLICY": "OFF"}


# The programs linked to a library of the driver, and the ways by which each finds its functions.
LINKED = {"linked_cuda": ("plt", "proc", "proc1", "dlopen", "devname", "default", "next", "self"),
          "linked_nvml": ("plt", "dlopen", "default", "next", "self")}
WORLDS = ("fake", "real") if harness.have_real_driver() else ("fake",)


# The trampolines are in the program itself, or in a library that it is linked to.


@pytest.mark.parametrize("name", PROGRAMS)
def test_trampolines_get_the_guards_answers(case, name):
    unguarded = harness.run([harness.program(name)], guard=False)
    unguarded.assert_reached(case)
    assert unguarded.answers["cuInit"] == "0", str(unguarded)
    for world in WORLDS + ("none",):
        result = harness.run([harness.program(name)], world=world)
        assert result.rc == 0, str(result)
        assert result.answers["cuInit"] == "100", str(result)
        assert result.answers["countRc"] == "3", str(result)
        assert result.answers["version"] == "99990", str(result)
        assert result.answers["procRc"] == "0", str(result)
        assert result.answers["procInit"] == "100", str(result)
        result.assert_untouched(case)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_trampolines_reach_the_driver_once_under_off(case, name, world):
    """As without the guard, each call goes once through the trampoline and once to the driver.
    """
    unguarded = harness.run([harness.program(name)], world=world, guard=False)
    unguarded.assert_reached(case)
    guarded = harness.run([harness.program(name)], world=world, env=OFF)
    assert guarded.rc == 0, str(guarded)
    assert guarded.out == unguarded.out, str(guarded)
    assert guarded.err == unguarded.err, str(guarded)
    assert guarded.fake_calls == unguarded.fake_calls, str(guarded)
    assert guarded.device_opens == unguarded.device_opens, str(guarded)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(("program", "way"),
                         [(program, way) for program, ways in LINKED.items() for way in ways])
def test_linked_program_reaches_the_driver_under_off(case, program, way, world):
    """For a program linked to the driver, OFF forwards the guard's own entries to the driver.
    """
    argv = [harness.program(program), way]
    unguarded = harness.run(argv, world=world, guard=False)
    unguarded.assert_reached(case)
    guarded = harness.run(argv, world=world, env=OFF)
    assert (guarded.rc, guarded.out, guarded.err) == (unguarded.rc, unguarded.out,
                                                      unguarded.err), str(guarded)
    assert guarded.fake_calls == unguarded.fake_calls, str(guarded)
    assert guarded.device_opens == unguarded.device_opens, str(guarded)
