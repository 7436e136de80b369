# SPDX-License-Identifier: Apache-2.0
"""verify shows Rust's names as Rust's users write them. c++filt of binutils reads both schemes;
without it, names of the older one have no hash."""

import re

import pytest

from support import fixtures
from launcher import test_verify_tree

INTO = "$LT$T$u20$as$u20$core..convert..Into$LT$U$GT$$GT$"
LEGACY = "_ZN5train3gpu5probe17h0123456789abcdefE"
NEWER = "_RNCNvCsgStHSCytQ6I_7mycrate4main0B3_"
NAMES = {
    LEGACY: "train::gpu::probe",
    "_ZN%d_%s4into17h1234567890abcdefE" % (len(INTO) + 1, INTO): "<T as core::convert::Into<U>>::into",
    NEWER: "mycrate::main::{closure#0}",
    "_RNvMs_CskwGfYPst2Cb_3fooNtB4_3Bar5probe": "<foo::Bar>::probe",
    # Not Rust's.
    "_ZN5train3gpu16h0123456789abcdeEi": "train::gpu::h0123456789abcde(int)",
    "_Restart": "_Restart",
    "plain": "plain",
}


class Case(test_verify_tree.Case):
    def shown(self, program, **more):
        """The function that asks, in the text and in the document."""
        result, _ = self.tree([program], **more)
        row = re.search(r"(?m)^ +native +> (.*)$", self.ends(result, 1, "asked for CUDA"))[1]
        found = [frame["symbol"] for frame in self.document["calls"][0]["native"]]
        return row.partition(": ")[2], found[0]


make_case = fixtures.lent("case", Case)


@pytest.fixture(name="program")
def make_program(case):
    case.need("gcc")
    return lambda name: case.compile("mangled", "mangled.c", "-O1", '-DNAME="%s"' % name, "-ldl")


@pytest.mark.parametrize("name", NAMES)
def test_function_has_its_readable_name(case, program, name):
    case.need("c++filt")
    assert case.shown(program(name)) == (NAMES[name],) * 2


def test_name_that_would_fill_the_memory_is_cut(case, program):
    """Each part of the name doubles what it stands for."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    places = ["S_", *("S%s_" % digit for digit in digits), *("S1%s_" % digit for digit in digits)]
    name = "_Z1fSt4pairIiiE" + "".join("S_I%sE" % (places[n] * 2) for n in range(1, 60))
    _, symbol = case.shown(program(name))
    assert symbol.startswith("f(std::pair<int, int>, std::pair<std::pair<"), symbol
    assert len(symbol) < 8192


@pytest.mark.parametrize(("name", "shown"), [(LEGACY, NAMES[LEGACY]), (NEWER, NEWER)])
@pytest.mark.parametrize("tool", [None, "exit 1", "echo one; echo two", "kill -SEGV $$"])
def test_without_a_working_tool_the_hash_is_left_out(case, program, name, shown, tool):
    if tool is not None:
        case.make("c++filt", "#!/bin/sh\n%s\n" % tool)
    assert case.shown(program(name), env={"PATH": case.directory}) == (shown,) * 2
