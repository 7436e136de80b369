# SPDX-License-Identifier: Apache-2.0
"""The configuration is that of the environment which the kernel handed over: whatever is loaded
before libc has set `environ`, and whatever the program does to its environment later. In these
programs getenv() finds nothing, with the guard or without, so the fake driver cannot log: its cuInit
answers 0."""

import os

import pytest

from support import guest, harness

LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(harness.LIB)), "bin", "cudaguard")
REACHED = {"cuInit": "0"}
DENIED = {"cuInit": "100"}
EARLY = [guest.binary("early_" + name) for name in ("preinit", "ifunc", "initfirst")]


@pytest.mark.parametrize("program", EARLY)
def test_program_that_loads_before_libc_is_ready_is_guarded(case, program):
    assert harness.run([program], guard=False).answers == REACHED
    result = harness.run([program])
    assert result.answers == DENIED, str(result)
    result.assert_untouched(case)
    result = harness.run([program], env={"CUDAGUARD_POLICY": "OFF"})
    assert (result.answers, result.err) == (REACHED, ""), str(result)
    report = case.path("report")
    result = harness.run([program], env={"CUDAGUARD_LOG": "off",
                                         "CUDAGUARD_REPORT": report})
    result.assert_untouched(case)
    assert result.err == "", str(result)
    assert [one["api"] for one in harness.records(report)] == ["cuInit"]


@pytest.mark.parametrize("program", EARLY)
def test_verify_counts_a_process_that_loads_early(program):
    result = harness.run([LAUNCHER, "verify", "--", program], guard=False, trace=False,
                         world="none")
    assert result.rc == 1, str(result)
    assert ", in 1 of 1 process" in result.err


@pytest.mark.parametrize("how", ["clear", "overwrite"])
def test_cleared_or_overwritten_environment_changes_nothing(case, how):
    for log, lines in (("off", 0), ("deny", 1)):
        report = case.path("%s-%s" % (how, log))
        result = harness.run([guest.binary("early"), how],
                             env={"CUDAGUARD_REPORT": report, "CUDAGUARD_LOG": log})
        result.assert_untouched(case)
        assert len(guest.lines_of(result.err)) == lines, str(result)
        assert [one["api"] for one in harness.records(report)] == ["cuInit"]
    result = harness.run([guest.binary("early"), how], env={"CUDAGUARD_POLICY": "OFF"})
    assert (result.answers, result.err) == (REACHED, ""), str(result)


@pytest.mark.parametrize("steps", [["ask"], ["fork", "ask", "end"]])
def test_program_does_not_lift_the_policy_before_its_first_load(case, steps):
    steps = ["setenv:CUDAGUARD_POLICY=OFF", "setenv:CUDAGUARD_LOG=off", *steps]
    case.steps(*steps, guard=False).assert_reached(case)
    result = case.steps(*steps)
    result.assert_untouched(case)
    assert guest.lines_of(result.err) == [guest.DENIED % "steps"], str(result)
