# SPDX-License-Identifier: Apache-2.0
"""A program whose dynamic section does not lead to ld.so's list (lld -z rodynamic) is guarded, too:
the guard finds the list in ld.so."""

import shutil
import struct

import pytest

from support import guest, harness

DT_DEBUG = 21
DT_UNKNOWN = 0x60000000  # a number that means nothing to ld.so


def program(case):
    """Returns a copy of a program in which the entry has another number."""
    path = case.path("steps")
    shutil.copy(guest.STEPS, path)
    with open(path, "r+b") as stream:
        data = stream.read()
        entry = struct.pack("<qQ", DT_DEBUG, 0)
        assert data.count(entry) == 1
        stream.seek(data.index(entry))
        stream.write(struct.pack("<qQ", DT_UNKNOWN, 0))
    return path


@pytest.mark.parametrize(("policy", "answer"), [("FORCE_CPU", "100"), ("OFF", "0")])
def test_program_is_guarded(case, policy, answer):
    words = [program(case), "load:libm.so.6", "ask"]
    harness.run(words, guard=False).assert_reached(case)
    result = harness.run(words, env={"CUDAGUARD_POLICY": policy})
    assert result.answers == {"load": "ok", "cuInit": answer}, str(result)
    if policy == "FORCE_CPU":
        result.assert_untouched(case)
