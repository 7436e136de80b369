# SPDX-License-Identifier: Apache-2.0
"""Lists the native stack of each scenario of tests/unwind/programs/scenarios.cpp."""

# raise() stops the thread, and main's own callers are libc's.
INNERMOST = ["stop_here", "user_function"]
SORTED = [*INNERMOST, "with_array", "realigned", "compare_items", "sort_items"]
NO_TABLES = "cut: code without unwind tables"

# Lists the frames in the program's own file and how the stack ends.
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
    """Returns the names of the frames in the program's own file from the lines of
    tests/unwind/printed.h."""
    return [line.split("+0x")[1].split(" ", 1)[1] for line in lines if "/scenarios" in line]
