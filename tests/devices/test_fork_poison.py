# SPDX-License-Identifier: Apache-2.0
"""A forked child of a process that had initialised CUDA can never use CUDA; a message says why."""

import re

import pytest

from support import box, harness, messages, policies

WAYS = [
    # Each entry has a program, the parent's step that initialises, the child's call and the caller
    # that initialised.
    ("open", "cu.init", "cu.init", "open"),
    ("open", "cu.init", "cu.get=0", "open"),
    ("open", "rt12.count", "rt12.count", "libcudart.so.12 in %s"),
    ("open", "rt12.sync", "rt12.set=0", "libcudart.so.12 in %s"),
    ("open", "rt13.sync", "rt13.sync", "libcudart.so.13 in %s"),
    ("open", "rt13.sync", "cu.init", "libcudart.so.13 in %s"),
    ("cuda", "cu.init", "cu.init", "cuda"),
    ("cuda", "cu.init", "cu.get=0", "cuda"),
    ("cuda_now", "cu.init", "cu.init", "cuda_now"),
    ("runtime12", "rt.count", "rt.set=1", "libcudart.so.12 in %s"),
    ("runtime13", "rt.set=1", "rt.count", "libcudart.so.13 in %s"),
    ("mixed", "rt.sync", "cu.init", "libcudart.so.12 in %s"),
]


@pytest.mark.parametrize(("name", "before", "call", "by", "policy"), [
    *((*WAYS[0], policy) for policy in policies.COMPUTING),
    *((*way, "VALIDATE") for way in WAYS[1:])])
def test_message_explains_the_use_of_cuda_after_a_fork(case, name, before, call, by, policy):
    steps = ["pid", before, "fork=c", call, "end"]
    unguarded = box.run(steps[1:], name, guard=False, own="5,2")
    result = box.run(steps, name, policy=policy, allow="5,2")
    # The driver's own answers are unchanged.
    assert result.out.splitlines()[1:] == unguarded.out.splitlines(), str(result)
    found = case.message(result, "fork", parent=result.answers["pid"], by=by.replace("%s", name),
                         seconds=re.compile(r"\d+\.\d"))
    assert found["pid"] != result.answers["pid"], str(result)


@pytest.mark.parametrize(("before", "call", "library"), [
    ("cu.init", "cu.get=0", "open"), ("cu.init", "cu.count", "open"),
    ("rt12.sync", "rt12.set=0", "runtime_12.so"), ("rt12.sync", "rt12.sync", "runtime_12.so")])
def test_record_names_the_caller_in_the_child(before, call, library, tmp_path):
    report = str(tmp_path / "report.jsonl")
    box.run([before, "fork=c", call, "end"], policy="VALIDATE", CUDAGUARD_REPORT=report)
    found = [record["library"] for record in harness.records(report) if record.get("result") == 3]
    assert found[:1] == [library], harness.records(report)


def test_message_is_printed_once_in_each_process(case):
    result = box.run(["cu.init", "fork=a", "cu.init", "cu.init", "rt12.count", "end", "fork=b",
                      "cu.get=0", "end"], allow="5,2")
    assert len(box.lines(result)) == 2, str(result)
    result = box.run(["cu.init", "fork=a", "fork=b", "cu.init", "end", "end"], allow="5,2")
    case.message(result, "fork")


@pytest.mark.parametrize(
    "steps",
    [["cu.init", "fork=c", "getenv=PATH", "end"], ["nv.see", "cu.init", "fork=c", "nv.list", "end"],
     ["cu.see", "spawn=c", "cu.see", "end"],
     ["cu.see", "fork=c", "exec", "label", "c", "cu.see", "end"],
     ["cu.see", "fork=c", "cu.ask=cuInit", "end"],
     ["fork=c", "cu.see", "end", "cu.see"], ["nv.see", "fork=c", "cu.see", "end", "cu.see"]])
def test_child_that_can_use_cuda_gets_no_message(case, steps):
    """Such a child makes no CUDA call but a look-up, uses NVML alone, is spawned or replaced, or
    was forked before."""
    result = box.run(steps, allow="5,2")
    case.silent(result)
    if "c.cu.see" in result.answers:
        assert box.seen(result.answers["c.cu.see"]) == [5, 2], str(result)


def test_child_may_initialise_after_its_parents_failure():
    steps = ["setenv=CUDA_VISIBLE_DEVICES=-1", "cu.init", "fork=c",
             "setenv=CUDA_VISIBLE_DEVICES=1", "cu.see", "end"]
    unguarded = box.run(steps, guard=False)
    assert box.seen(unguarded.answers["c.cu.see"]) == [0], str(unguarded)
    result = box.run(steps, allow="5,2")
    assert box.seen(result.answers["c.cu.see"]) == [2], str(result)
    assert messages.find(result.err, "fork") == [], str(result)


def test_log_off_and_policy_off_print_no_message(case):
    for more in ({"CUDAGUARD_LOG": "off", "allow": "5,2"}, {"policy": "OFF"}):
        result = box.run(["cu.init", "fork=c", "cu.init", "end"], **more)
        case.silent(result)
        assert result.answers["c.cu.init"] == "3", str(result)
