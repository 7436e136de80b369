# SPDX-License-Identifier: Apache-2.0
"""CUDAGUARD_LOG=all reports the caller that initialises, selects, makes contexts, loads code or
asks NVML."""

import re

import pytest

from support import box, messages

ALL_LINES = {"CUDAGUARD_LOG": "all"}


def count(result, name, **values):
    return len(messages.find(result.err, name, **values))


def test_each_use_of_cuda_makes_a_message_and_a_record(case):
    steps = ["pid", "nv.init", "nv.count", "rt12.set=1", "cu.context=v4,0", "cu.load=library"]
    result, records = case.run_reported(steps, allow="5,2", **ALL_LINES)
    assert count(result, "cuda_initialised", asked_by="libcudart.so.12 in open") == 1, str(result)
    assert count(result, "nvml_used", asked_by="open") == 1, str(result)
    selected = count(result, "device_selected", device=1, call="cudaSetDevice",
                     asked_by="runtime_12.so")
    assert selected == 1, str(result)
    assert count(result, "context_made", device=1,
                 call="cuDevicePrimaryCtxRetain") == 1, str(result)
    assert count(result, "context_made", device=0, call="cuCtxCreate_v4",
                 asked_by="open") == 1, str(result)
    assert count(result, "code_loaded", call="cuLibraryLoadData") == 1, str(result)
    events = {(record.get("event"), record["api"], record.get("device"))
              for record in records}
    for wanted in (("init", "cuInit", None), ("select", "cudaSetDevice", 1),
                   ("context", "cuDevicePrimaryCtxRetain", 1), ("context", "cuCtxCreate_v4", 0),
                   ("work", "cuLibraryLoadData", None)):
        assert wanted in events, str(records)
    assert "nvml" in {event for event, _, _ in events}, str(records)
    for record in records:
        assert record["v"] == 1, str(record)
        assert str(record["pid"]) == result.answers["pid"], str(record)
        assert record["argv"][1] == "pid", str(record)
        assert record["exe"].endswith("/programs/open"), str(record)
        assert re.search(r"/(open|libcudart\.so\.12|runtime_12\.so)\+0x",
                         record["caller"]), str(record)


@pytest.mark.parametrize(("steps", "works"),
                         [(["rt12.free=0"], False), (["rt12.set=0"], False),
                          (["cu.init", "cu.context=v2,0"], False), (["rt12.sync"], True),
                          (["cu.init", "cu.context=v2,0", "cu.load=module"], True)])
def test_work_is_reported_only_if_code_is_loaded(case, steps, works):
    """A process may hold a context and never load code."""
    result, records = case.run_reported(steps, allow="5,2", **ALL_LINES)
    events = [record.get("event") for record in records]
    assert "context" in events, str(records)
    assert ("work" in events) == works, str(records)
    assert count(result, "code_loaded") == int(works), str(result)


@pytest.mark.parametrize(("name", "steps", "more", "message", "values", "record"), [
    *(("open", ["cu.route=" + route, "cu.init", "cu.context=" + kind + ",1"], {}, "context_made",
       {"device": 1, "call": api}, {"event": "context", "api": api, "device": 1})
      for route in ("dlsym", "proc") for kind, api in (
          ("v2", "cuCtxCreate_v2"), ("v3", "cuCtxCreate_v3"), ("v4", "cuCtxCreate_v4"),
          ("primary", "cuDevicePrimaryCtxRetain"))),
    # The device that was selected instead of the requested one.
    ("open", ["rt12.set=9"], {"policy": "CLAMP"}, "device_selected", {"device": 1},
     {"event": "select", "device": 1}),
    ("open", ["cu.init", "cu.context=v4,7"], {}, "context_failed", {"device": 7, "error": 101},
     {"event": "context", "device": 7, "result": 101}),
    ("cuda", ["cu.init"], {}, "cuda_initialised", {"asked_by": "cuda"}, {"event": "init"}),
    ("nvml", ["nv.init"], {}, "nvml_used", {"asked_by": "nvml"}, {"event": "nvml"}),
    ("runtime13", ["rt.set=1"], {}, "device_selected", {"device": 1, "asked_by": "runtime13"},
     {"event": "select", "device": 1})])
def test_use_has_a_message_and_a_record(case, name, steps, more, message, values, record):
    result, records = case.run_reported(steps, name, allow="5,2", **more, **ALL_LINES)
    assert count(result, message, **values) == 1, str(result)
    assert message != "context_failed" or count(result, "context_made") == 0, str(result)
    found = [one for one in records if one.get("event") == record["event"]]
    assert len(found) == 1 and record.items() <= found[0].items(), str(records)


def test_many_wrong_indices_hide_no_event(case):
    """Each wrong index has its message, and they do not hide other events."""
    steps = ["cu.init"] + ["cu.get=%d" % index for index in range(2, 302)]
    result, records = case.run_reported(steps + ["nv.init", "rt12.set=1", "cu.context=v4,0"],
                                        allow="5,2", **ALL_LINES)
    assert count(result, "bad_index", call="cuDeviceGet") == 300
    events = {record.get("event") for record in records}
    assert {"nvml", "select", "context"} <= events
    for name, values in (("nvml_used", {}), ("device_selected", {"device": 1}),
                         ("context_made", {"device": 0})):
        assert count(result, name, **values) == 1, str(name)


def test_context_without_a_device_or_cuinit(case):
    result = box.run(["cu.init", "cu.context=v4,-1"], allow="5,2", **ALL_LINES)
    assert result.answers["cu.context"][:4] == "101:", str(result)
    assert ": no context, error 101 (" in result.err, str(result)
    result, records = case.run_reported(["cu.context=v4,0"], allow="5,2", **ALL_LINES)
    assert result.answers["cu.context"][:2] == "3:", str(result)
    assert "context" not in [record.get("event") for record in records], str(records)


def test_each_process_reports_its_own_use(case):
    steps = ["fork=a", "rt12.sync", "end", "spawn=b", "cu.init", "end", "nv.init"]
    result, records = case.run_reported(steps, allow="5,2", **ALL_LINES)
    by_process = {}
    for record in records:
        by_process.setdefault(record["pid"], set()).add(record.get("event"))
    assert len(by_process) == 3, str(records)
    assert sum("work" in events for events in by_process.values()) == 1, str(records)
    assert sum("init" in events for events in by_process.values()) == 2, str(records)
    assert count(result, "cuda_initialised") == 2, str(result)


def test_answers_are_the_same_as_with_log_off(case):
    """The default, CUDAGUARD_LOG=deny, prints nothing about what is allowed, either."""
    case.silent(box.run(["nv.init", "rt12.set=1", "rt12.sync"], allow="5,2"))
    steps = ["nv.see", "rt12.see", "rt12.set=1", "rt12.set=9", "rt12.last", "cu.context=v4,1",
             "cu.load=library", "cu.memory"]
    quiet = box.run(steps, allow="5,2", CUDAGUARD_LOG="off")
    case.silent(quiet)
    loud, _ = case.run_reported(steps, allow="5,2", **ALL_LINES)
    assert loud.out == quiet.out, str(loud)
