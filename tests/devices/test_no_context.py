# SPDX-License-Identifier: Apache-2.0
"""Under NO_CONTEXT, a program counts the GPUs and reads what they are, but makes no context and
takes no memory. The control is VALIDATE, under which each call reaches the fake driver."""

import pytest

from support import box, harness, messages

CONTEXTS = sorted(harness.guarded("CONTEXT"))
REFUSED = "46"
QUERIES = ["cu.init", "cu.list", "cu.insist=0", "nv.see", "rt12.see"]


@pytest.mark.parametrize("name", CONTEXTS)
def test_each_function_that_makes_a_context_is_refused(case, name):
    """The fake driver refuses arguments of zero with 1."""
    steps = ["cu.init", "cu.zeros=" + name]
    control = box.run(steps, policy="VALIDATE")
    assert control.answers == {"cu.init": "0", "cu.zeros": "1"}, str(control)
    assert control.fake_calls[-1] == name, str(control)
    result, records = case.run_reported(steps, policy="NO_CONTEXT")
    assert result.answers == {"cu.init": "0", "cu.zeros": REFUSED}, str(result)
    assert name not in result.fake_calls, str(result)
    case.message(result, "no_context", cause="NO_CONTEXT", asked_by="open",
                 remedy="CUDAGUARD_POLICY=VALIDATE")
    assert [(record["api"], record["decision"]) for record in records] == [
        ("cuInit", "allow"), (name, "deny")], str(records)


def test_queries_are_answered_as_under_validate(case):
    control = box.run(QUERIES, policy="VALIDATE")
    assert box.seen(control.answers["rt12.see"]) == box.FASTEST, str(control)
    result = box.run(QUERIES, policy="NO_CONTEXT")
    assert result.answers == control.answers, str(result)
    case.silent(result)
