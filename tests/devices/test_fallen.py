# SPDX-License-Identifier: Apache-2.0
"""If a list cannot be enforced after the driver was initialised, the driver's calls answer as under
FORCE_CPU."""

import os
import re

import pytest

from support import box, harness
from support.box import PROXIES, uuid

# These faults show only after the real cuInit has run.
FALLS = (("list_not_read", {"box": "bypass", "allow": "2,5"}),
         ("list_not_shown", {"box": "liar", "allow": "2,5"}),
         ("list_others_shown", {"box": "liar", "allow": "2,5", "CG_LIE": "others"}),
         ("list_not_shown", {"allow": "2,5", "CG_GONE": "5"}))


def with_falls(*rows):
    """The first row with every fault, and each other one with one of them: what shows the fault is
    the driver's cuInit, to which all of these programs lead."""
    return [(*fall, *rows[0]) for fall in FALLS] + [
        (*FALLS[place % len(FALLS)], *row) for place, row in enumerate(rows[1:])]


# The answers of cu.insist: count, get and seven calls about a device.
ALL_WORK, ALL_REFUSED = ":".join("0" * 9), ":".join("3" * 9)
# These answer otherwise: see the tests of cu.init and cu.ask.
OTHERS = {"cuInit", "cuGetProcAddress", "cuGetProcAddress_v2"}


def test_each_guarded_name_is_refused():
    """Every row of shim/api/guarded.inc. The fake driver refuses arguments of zero with 1."""
    names = sorted(harness.guarded("DRIVER") - OTHERS)
    steps = ["cu.init", *("cu.zeros=" + name for name in names)]
    unguarded = box.run(steps, guard=False, box="liar")
    assert unguarded.out.split() == ["cu.init=0"] + ["cu.zeros=1"] * len(names), str(unguarded)
    result = box.run(steps, box="liar", allow="2,5")
    assert "cuInit:initialised" in result.fake_calls, str(result)
    assert result.out.split() == ["cu.init=100"] + ["cu.zeros=3"] * len(names), str(result)


@pytest.mark.parametrize(("message", "more", "name", "steps", "preload"), with_falls(
    ("open", [], ()),
    ("open", ["cu.route=proc"], ()),
    ("cuda", ["cu.route=dlsym"], ()),
    ("cuda", ["cu.route=proc"], ()),
    ("cuda", [], PROXIES),
    ("cuda_now", [], PROXIES),
    ("mixed", [], PROXIES)))
def test_every_guarded_function_of_the_driver_is_refused(case, message, more, name, steps, preload):
    questions = ["cu.init", "cu.insist=0", "cu.context=primary,0", "cu.init"]
    unguarded = box.run(steps + questions, name, guard=False,
                        box=more.get("box", "lazy"))
    assert unguarded.answers["cu.insist"] == ALL_WORK, str(unguarded)
    result, records = case.run_reported(steps + questions, name, preload=preload, **more)
    assert "cuInit:initialised" in result.fake_calls, str(result)
    assert result.answers["cu.init"] == "100", str(result)
    assert ("cuInit", "deny") in [(one["api"], one["decision"]) for one in records], str(records)
    assert result.answers["cu.insist"] == ALL_REFUSED, str(result)
    assert result.answers["cu.context"][:2] == "3:", str(result)
    case.explained(result, name=message)


@pytest.mark.parametrize(("message", "more", "name", "prefix", "preload"), with_falls(
    ("cuda", "cu.", ()),
    ("cuda_now", "cu.", ()),
    ("mixed", "cu.", ()),
    ("open", "linked.cu.", ()),
    ("open", "linked.cu.", PROXIES)))
def test_count_of_a_linked_program_is_refused(case, message, more, name, prefix, preload):
    """With the guard alone, cuInit, cuDeviceGetCount and cuDeviceGet lead to it."""
    steps = [prefix + step for step in ("init", "count", "get=0", "list")]
    unguarded = box.run(steps, name, guard=False, box=more.get("box", "lazy"))
    assert unguarded.answers[prefix + "count"] == "0:8", str(unguarded)
    result = box.run(steps, name, preload=preload, **more)
    assert [result.answers[prefix + key]
            for key in ("init", "count", "get")] == ["100", "3:0", "3:-7"], str(result)
    case.explained(result, name=message)


def test_limit_linked_program_that_ignores_errors_reads_names():
    """tests/lab/limits.md: with the guard alone, the other calls reach the driver itself."""
    for name in ("cuda", "cuda_now"):
        result = box.run(["cu.init", "cu.insist=0"], name, box="liar", allow="2,5")
        assert result.answers["cu.insist"] == "3:3:" + ":".join("0" * 7), str(result)


@pytest.mark.parametrize(("message", "more", "name", "prefix", "preload"), with_falls(
    ("open", "rt12.", ()),
    ("open", "rt13.", ()),
    ("runtime12", "rt.", ()),
    ("runtime13", "rt.", ()),
    ("mixed", "rt.", PROXIES)))
def test_every_call_of_a_shared_runtime_is_refused(case, message, more, name, prefix, preload):
    steps = [prefix + step for step in ("count", "set=0", "properties=0", "attribute=0",
                                        "initdevice=0", "sync", "free=0", "count")]
    unguarded = box.run(steps, name, guard=False, box=more.get("box", "lazy"))
    assert unguarded.answers[prefix + "count"] == "0:8", str(unguarded)
    result = box.run(steps, name, preload=preload, **more)
    for key in ("count", "set", "properties", "attribute", "initdevice", "sync", "free"):
        assert result.answers[prefix + key].split(":")[0] == "100", str(result)
    case.explained(result, name=message)


@pytest.mark.parametrize(("message", "more", "version"), with_falls(
    ("12",), ("13",), *([("11",)] if harness.FULL else [])))
def test_every_call_of_a_static_runtime_is_refused(case, version, message, more):
    """NVIDIA's static runtime keeps the driver's first answer."""
    program = harness.program("runtime_%s_static" % version)
    if not os.path.exists(program):
        harness.skip(case, "scripts/fetch-cuda brought no static runtime " + version)
    result = harness.run([program, "sample"], world="none",
                         env=box.environment(**more))
    assert "cuInit:initialised" in result.fake_calls, str(result)
    assert "cudaGetDeviceCount=100" in result.out, str(result)
    assert not re.search(r"(?m)^\w+=0 ", result.out), str(result)
    case.explained(result, name=message)


@pytest.mark.parametrize(("message", "more", "name", "first", "preload"), with_falls(
    ("open", "cu.init", ()),
    ("mixed", "cu.init", ()),
    ("mixed", "cu.init", PROXIES),
    ("nvml", "rt12.count", ()),
    ("nvml", "rt12.count", PROXIES)))
def test_nvml_shows_no_gpu_once_the_list_failed(case, message, more, name, first, preload):
    names = ["nv.get=0", "nv.uuid=" + uuid(2), "nv.serial=" + box.GPUS[2][2],
             "nv.bus=" + box.bus_id(2)]
    # NVML was in use before, and the program asks it again.
    steps = ["nv.init", "nv.count", first, "nv.see"] + names
    unguarded = box.run(steps, name, guard=False, box=more.get("box", "lazy"))
    assert unguarded.answers["nv.count"] == "0:8", str(unguarded)
    result = box.run(steps, name, preload=preload, **more)
    case.sees(result, nv="!9")
    assert result.answers["nv.get"] == "2:null", str(result)
    for key in ("nv.uuid", "nv.serial", "nv.bus"):
        assert result.answers[key][:2] == "6:", str(result)
    case.explained(result, name=message)


def test_list_that_nvml_refuses_later_refuses_cuda_too():
    """CUDA was in use, and its calls are refused from then on, too."""
    steps = ["cu.init", "cu.insist=0", "setenv=CG_LOST=0", "nv.init", "cu.insist=0", "cu.count"]
    for name, preload in (("open", ()), ("mixed", PROXIES)):
        result = box.run(steps, name, preload=preload, allow=uuid(0))
        assert "cu.insist=" + ALL_WORK in result.out, str(result)
        assert result.answers["cu.insist"] == ALL_REFUSED, str(result)
        assert result.answers["cu.count"] == "3:0", str(result)


def test_children_of_a_process_whose_list_failed_are_refused(case):
    for message, more in FALLS:
        result = box.run(["cu.init", "fork=f", "cu.init", "cu.insist=0", "nv.see", "end",
                          "spawn=s", "cu.init", "cu.insist=0", "end"], **more)
        for label in ("f.", "s."):
            assert result.answers[label + "cu.init"] == "100", str(result)
            assert result.answers[label + "cu.insist"] == ALL_REFUSED, str(result)
        case.sees(result, f_nv="!9")
