# SPDX-License-Identifier: Apache-2.0
"""What tests/unwind/programs/scenarios.cpp has on its native stack."""

# raise() stops the thread; main's own callers are libc's.
INNERMOST = ["stop_here", "user_function"]
SORTED = [*INNERMOST, "with_array", "realigned", "compare_items", "sort_items"]
NO_TABLES = "cut: code without unwind tables"

# What the program's own file shows, and how the stack ends.
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
    "coroutine": (INNERMOST, NO_TABLES),
    "generated": (INNERMOST, "cut: code outside any file"),
}


def own_functions(lines):
    """The names of the frames in the program's own file, of what tests/unwind/printed.h prints."""
    return [line.split("+0x")[1].split(" ", 1)[1] for line in lines if "/scenarios" in line]
