# SPDX-License-Identifier: Apache-2.0
"""Memory reads from another process yield the native stack of a waiting thread. These tests need no
guard."""

import os
import shutil
import subprocess

import pytest

from support import harness
from support.scenarios import EXPECTED, INNERMOST, own_functions

HERE = os.path.join(harness.BUILD, "tests", "unwind")
SCENARIOS = os.path.join(HERE, "scenarios")
def take_stack(*words):
    """Returns (the functions of the program's own file, all lines)."""
    done = subprocess.run([os.path.join(HERE, "take_stack"), *words], capture_output=True, text=True,
                          timeout=60, check=False)
    if done.returncode == 77:
        pytest.skip("this machine does not allow it")
    assert (done.returncode, done.stderr) == (0, ""), done
    lines = done.stdout.splitlines()
    return own_functions(lines), lines


@pytest.mark.parametrize("scenario", EXPECTED)
def test_stack_has_every_caller(scenario, tmp_path):
    program = shutil.copy(SCENARIOS, tmp_path)
    functions, end = EXPECTED[scenario]
    own, lines = take_stack("--names-from", SCENARIOS, program, scenario)
    assert own == functions, "\n".join(lines)
    assert lines[-1] == end


def test_stripped_program_has_the_same_frames(tmp_path):
    program = shutil.copy(SCENARIOS, tmp_path)
    subprocess.run(["strip", "--strip-all", program], check=True)
    own, _ = take_stack(program, "sort")
    assert set(own) == {""}
    named, _ = take_stack("--names-from", SCENARIOS, program, "sort")
    assert named == EXPECTED["sort"][0]


def test_deep_recursion_is_cut():
    own, lines = take_stack(SCENARIOS, "deep")
    assert own == [*INNERMOST, *["deep"] * (len(own) - 2)]
    assert len(lines) == 64 + 1 and lines[-1] == "cut: the stack is deeper"


@pytest.mark.parametrize("scenario", ["sort", "alternate"])
def test_damaged_memory_is_read_without_a_fault(scenario):
    rounds = 1000000 if harness.FULL else 2000
    done = subprocess.run([os.path.join(HERE, "unwind_fuzz"), str(rounds), SCENARIOS, scenario],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
