# SPDX-License-Identifier: Apache-2.0
"""The guard reports and records failures: a cuInit or nvmlInit that finds no GPU, a missing driver,
a forked child's error 3."""

import json
import os
import re
import tempfile

import pytest

from support import box, harness, messages, policies

EVERY_POLICY = (*({"policy": name} for name in policies.ALLOWING), {"allow": "0,2"})
# The machines have a driver without a GPU, the same without NVML, and no driver.
SICK = {"CG_SICK": "100"}
NO_DRIVER = {"box": "only_nvml"}


def results(records, event="init"):
    assert {record["decision"] for record in records} == {"allow"}, str(records)
    return [(record["pid"], record["result"]) for record in records
            if record["event"] == event]


def test_control_fake_drivers_fail_without_the_guard():
    unguarded = box.run(["pid", "cu.init", "nv.init"], guard=False, **SICK)
    assert (unguarded.answers["cu.init"], unguarded.answers["nv.init"]) == ("100",
                                                                            "9"), str(unguarded)
    assert unguarded.fake_calls == ["cuInit", "nvmlInit_v2", "nvmlInitWithFlags"], str(unguarded)
    unguarded = box.run(["cu.open", "cu.init"], guard=False, **NO_DRIVER)
    assert (unguarded.answers["cu.open"], unguarded.answers["cu.init"]) == ("null",
                                                                            "-999"), str(unguarded)
    unguarded = box.run(["cu.init", "fork=c", "cu.init", "end"], guard=False)
    assert unguarded.answers["c.cu.init"] == "3", str(unguarded)


@pytest.mark.parametrize(("more", "code"), [
    *((more, 100) for more in EVERY_POLICY), (EVERY_POLICY[0], 3), (EVERY_POLICY[0], 999)])
def test_each_result_of_an_init_is_recorded_once(case, more, code):
    """The record has the caller. A success after an error is recorded, too."""
    steps = ["pid", "cu.init", "cu.init", "nv.init", "nv.init"]
    result, records = case.run_reported(steps, CG_SICK=str(code), **more)
    own = int(result.answers["pid"])
    assert result.answers["cu.init"] == str(code), str(result)
    assert results(records) == [(own, code)]
    assert results(records, "nvml") == [(own, 9)]
    for record in records:
        assert re.search(r"/programs/open\+0x", record["caller"]), str(record)


@pytest.mark.parametrize(("name", "steps"), [("open", ["cu.init", "nv.init"]),
                                             ("cuda", ["cu.init"]), ("nvml", ["nv.init"])])
def test_success_after_a_failed_init_is_recorded(case, name, steps):
    _, records = case.run_reported(steps + ["unsetenv=CG_SICK"] + steps, name,
                                   policy="VALIDATE", **SICK)
    for step, event, failed in (("cu.init", "init", 100), ("nv.init", "nvml", 9)):
        assert [code for _, code in results(records, event)
                ] == ([failed, 0] if step in steps else []), str(records)


@pytest.mark.parametrize(("name", "steps"),
                         [("open", ["cu.init", "cu.init", "rt12.count", "cu.see"]),
                          ("open", ["rt13.count"]), ("cuda", ["cu.init"]),
                          ("runtime13", ["rt.count"])])
def test_list_without_a_gpu_is_reported_once(case, name, steps):
    """Only CUDAGUARD_LOG=off silences the message, and every caller gets it."""
    result = box.run(steps, name, allow="0,2", **SICK)
    case.message(result, "list_in_vain", list='CUDAGUARD_VISIBLE_DEVICES="0,2"',
                 reason=messages.text("no_gpu"))
    assert len(box.lines(result)[0]) <= 120, str(result)


def test_log_off_and_other_settings_print_no_list_in_vain(case):
    case.silent(box.run(["cu.init", "nv.init"], allow="0,2", CUDAGUARD_LOG="off", **SICK))
    case.silent(box.run(["cu.init", "nv.init"], policy="VALIDATE", **SICK))
    # The program's own setting needs no message.
    case.silent(box.run(["setenv=CUDA_VISIBLE_DEVICES=-1", "cu.init"], allow="0,2"))


@pytest.mark.parametrize(
    "steps", [["cu.open", "cu.open"], ["rt12.count"],
              ["cu.library=libcuda.so", "cu.open", "cu.library=libcuda.so.1", "cu.open"]])
def test_missing_driver_is_reported_and_recorded_as_an_init(case, steps):
    """Only the usual name of the driver counts."""
    result, records = case.run_reported(["pid"] + steps, allow="0,2", **NO_DRIVER)
    case.message(result, "list_in_vain", list='CUDAGUARD_VISIBLE_DEVICES="0,2"',
                 reason=messages.text("driver_missing"))
    assert [(r["api"], r["event"], r["decision"], r["result"])
            for r in records] == [("dlopen", "init", "allow", 100)]


@pytest.mark.parametrize("steps",
                         [["nv.init"], ["lib.open=libm.so.6"], ["cu.library=libcuda.so", "cu.open"],
                          ["cu.library=/nowhere/libcuda.so.1", "cu.open"],
                          ["lib.noload=libcuda.so.1"]])
def test_other_calls_without_a_driver_are_no_init(case, steps):
    # Without a list, nothing is printed, but recorded.
    result, records = case.run_reported(["cu.open"], policy="VALIDATE", **NO_DRIVER)
    case.silent(result)
    assert len(records) == 1, str(records)
    result, records = case.run_reported(steps, allow="0,2", **NO_DRIVER)
    case.silent(result)
    assert "init" not in [record["event"] for record in records], str(records)


@pytest.mark.parametrize("config", EVERY_POLICY)
@pytest.mark.parametrize(("more", "call"), [(SICK, "cuInit"), (NO_DRIVER, "dlopen")])
def test_log_all_reports_a_failed_init_once(more, call, config):
    result = box.run(["cu.init", "cu.init"], CUDAGUARD_LOG="all", **config, **more)
    found, = messages.find(result.err, "cuda_failed")
    assert (found["error"], found["call"], found["asked_by"]) == ("100", call, "open"), str(result)


def test_log_all_reports_no_init_without_one(case):
    result = box.run(["nv.init"], policy="VALIDATE", CUDAGUARD_LOG="all", **SICK)
    case.message(result, "nvml_failed", error=9, policy="VALIDATE", call="nvmlInit_v2",
                 asked_by="open")


@pytest.mark.parametrize(("more", "config"), [(SICK, EVERY_POLICY[0]), (SICK, EVERY_POLICY[-1]),
                                              ({}, EVERY_POLICY[0]), (NO_DRIVER, EVERY_POLICY[-1])])
@pytest.mark.parametrize("call", ["cu.init", "nv.init"])
def test_bad_variable_is_reported_at_the_first_call(call, more, config):
    """The answer of the call does not matter."""
    result = box.run([call], CUDAGUARD_LOG="loud", **config, **more)
    assert messages.find(result.err, "bad_log", value="loud"), str(result)


@pytest.mark.parametrize("look_up", [[], ["cu.ask=cuInit"]])
@pytest.mark.parametrize(("name", "before", "call"), [("open", "cu.init", "cu.init"),
                                                      ("cuda", "cu.init", "cu.init"),
                                                      ("open", "rt12.sync", "rt12.set=0"),
                                                      ("open", "cu.init", "cu.get=0"),
                                                      ("runtime13", "rt.set=1", "rt.sync")])
def test_error_3_of_a_forked_child_is_recorded(case, name, before, call, look_up):
    """The records also have the parent's success. A look-up of a function succeeds."""
    result, records = case.run_reported(
        ["pid", before, "fork=c", "pid", *look_up, call, call, "end"], name, policy="VALIDATE")
    assert result.answers["c." + call.partition("=")[0]][0] == "3", str(result)
    assert results(records) == [(int(result.answers["pid"]), 0), (int(result.answers["c.pid"]), 3)]
    assert not records[1]["api"].startswith("cuGetProcAddress"), str(records)


@pytest.mark.parametrize(("config", "count"), [({"CUDAGUARD_POLICY": "VALIDATE"}, 0),
                                               ({"CUDAGUARD_VISIBLE_DEVICES": "0,2"}, 1)])
def test_real_driver_without_a_gpu_is_recorded(case, config, count):
    case.need_real_driver()
    with tempfile.TemporaryDirectory(prefix="cg-") as directory:
        path = os.path.join(directory, "report.jsonl")
        result = harness.run([box.program("open"), "cu.init"], world="real", trace=False,
                             env={"CUDAGUARD_REPORT": path, **config}, timeout=300)
        assert result.answers["cu.init"] == "100", str(result)
        assert len(box.lines(result)) == count, str(result)
        assert len(messages.find(result.err, "list_in_vain",
                                 reason=messages.text("no_gpu"))) == count
        with open(path, encoding="utf-8") as stream:
            assert [json.loads(line)["result"] for line in stream] == [100]
