# SPDX-License-Identifier: Apache-2.0
"""No code of the guard takes ld.so's lock of dl_iterate_phdr, which a forked child inherits as it
was at the fork. One function does, for the objects that a process that was not forked has loaded
later (shim/guard/elf/objects.h)."""

import glob
import os
import subprocess

import pytest

from support import harness

# Functions that take this lock, or ld.so's others. The guard finds those of dlopen at run time.
TAKES_LOCK = ("dl_iterate_phdr", "dladdr", "dlopen", "dlmopen", "dlclose")
HELD = "with_held_list"


def objects(target):
    """Returns {source: the names that its object file imports}."""
    found = {}
    top = os.path.join(harness.BUILD, "shim")
    for path in glob.glob(os.path.join(top, "**", target + ".dir", "**", "*.o"), recursive=True):
        source = path.split(target + ".dir/")[1].replace("__/", "")[:-len(".o")]
        if not glob.glob(os.path.join(harness.SOURCE, "shim", "**", source), recursive=True):
            continue  # left over from another commit
        listed = subprocess.run(["nm", "-C", "-u", path], capture_output=True, text=True, check=True)
        found[source] = {line.split(None, 1)[1].split("(")[0].split("@")[0]
                         for line in listed.stdout.splitlines()}
    assert len(found) > 3, "%s was not built in %s" % (target, top)
    return found


def importers(target, *names):
    return {source for source, imported in objects(target).items()
            if any(name.split("::")[-1] in names for name in imported)}


def test_one_object_of_the_guard_takes_the_lock():
    assert importers("guard", *TAKES_LOCK) == {"elf/objects.cpp"}


def test_one_object_of_the_guard_walks_later_objects_with_it():
    """For a call whose caller was loaded later."""
    assert importers("guard", HELD) == {"elf/caller_scope.cpp"}


@pytest.mark.parametrize("target", ["proxy_driver", "proxy_nvml"])
def test_no_object_of_a_proxy_takes_the_lock(target):
    assert importers(target, *TAKES_LOCK, HELD) == set()
