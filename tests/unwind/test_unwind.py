# SPDX-License-Identifier: Apache-2.0
"""Memory reads from another process yield the native stack of a waiting thread. These tests need no
guard."""

import os
import shutil
import subprocess

import pytest

from support import harness

HERE = os.path.join(harness.BUILD, "tests", "unwind")
SCENARIOS = os.path.join(HERE, "scenarios")
# raise() stops the thread, and main's own callers are libc's.
INNERMOST = ["stop_here", "user_function"]
SORTED = [*INNERMOST, "with_array", "realigned", "compare_items", "sort_items"]
# The frames in the program's own file and how the stack ends.
EXPECTED = {
    "plain": ([*INNERMOST, "main", "_start"], "complete"),
    "sort": ([*SORTED, "main", "_start"], "complete"),
    "thread": (SORTED, "complete"),
    "signal": ([*INNERMOST, "faulting", "main", "_start"], "complete"),
    "alternate": ([*INNERMOST, "faulting", "main", "_start"], "complete"),
    "vfork": ([*INNERMOST, "vfork_here", "main", "_start"], "complete"),
    "chroot": ([*INNERMOST, "change_root", "main", "_start"], "complete"),
    "deleted": ([*INNERMOST, "main", "_start"], "complete"),
    # The outermost function of a coroutine returns to code that nothing called.
    "coroutine": (INNERMOST, "cut: code without unwind tables"),
    "generated": (INNERMOST, "cut: code outside any file"),
}


def take_stack(*words):
    """Returns (the functions of the program's own file, all lines)."""
    done = subprocess.run([os.path.join(HERE, "take_stack"), *words], capture_output=True, text=True,
                          timeout=60, check=False)
    if done.returncode == 77:
        pytest.skip("this machine does not allow it")
    assert (done.returncode, done.stderr) == (0, ""), done
    lines = done.stdout.splitlines()
    own = [line.split("+0x")[1].split(" ", 1)[1] for line in lines if "/scenarios" in line]
    return own, lines


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
