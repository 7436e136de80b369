# SPDX-License-Identifier: Apache-2.0
"""tests/support/messages.py finds what was printed, and only that."""

import pytest

from support import messages

OUTPUT = "before\ncudaguard[7]: %s\nafter\ncudaguard[8]: %s\n" % (
    messages.text("no_cuda", cause="x", first=3, call="cuInit", asked_by="a (b) in c"),
    messages.text("no_cuda", cause="x", asked_by="a (b) in c", remedy="y"))


def pids_of(**values):
    return [found["pid"] for found in messages.find(OUTPUT, "no_cuda", **values)]


@pytest.mark.parametrize(("values", "pids"), [({}, ["7", "8"]), ({"asked_by": "a"}, []),
                                              ({"first": 3}, ["7"]), ({"first": 33}, []),
                                              ({"first": None}, ["8"]), ({"remedy": "y"}, ["8"]),
                                              ({"asked_by": "a (b) in c", "remedy": None}, ["7"])])
def test_values_select_the_messages(values, pids):
    assert pids_of(**values) == pids


def test_other_messages_are_not_found():
    assert messages.find(OUTPUT, "no_nvml", "no_opencl") == []
    words = messages.PATTERNS["no_cuda"].split()[0]
    assert messages.find(OUTPUT.replace(words, words.swapcase()), "no_cuda") == []
    assert messages.find(OUTPUT.replace("]: ", "]:  "), "no_cuda") == []


def test_rest_of_the_output_stays():
    assert messages.without(OUTPUT, *messages.DENIED) == "before\nafter\n"
    assert messages.without(OUTPUT, "no_nvml") == OUTPUT


def test_unknown_names_and_fields_are_errors():
    """Otherwise, a test that expects no message could not fail."""
    for values in ({"asked": "x"}, {"asked": None}):
        with pytest.raises(AssertionError):
            messages.find("", "no_cuda", **values)
    with pytest.raises(KeyError):
        messages.find("", "no_such_name")
    with pytest.raises(AssertionError):
        messages.text("no_cuda", asked="x")
