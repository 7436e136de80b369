# SPDX-License-Identifier: Apache-2.0
"""VALIDATE and CLAMP apply to the calls that take a device index."""

import re

import pytest

from support import box, messages, policies

VIEW = [5, 2, 7]
ALLOW = "5,2,7"
# Each entry has a program, the steps before, and the prefix of its runtime's steps.
RUNTIMES = [("open", "rt12."), ("open", "rt13."), ("runtime12", "rt."), ("runtime13", "rt."),
            ("mixed", "rt."), ("mixed_now", "rt.")]
CALLS = {"set": "cudaSetDevice", "initdevice": "cudaInitDevice",
         "properties": "cudaGetDeviceProperties", "properties2": "cudaGetDeviceProperties_v2",
         "attribute": "cudaDeviceGetAttribute"}
# These have CUDA 13, which has one form of cudaGetDeviceProperties.
WITH_ONE_FORM = {("open", "rt13."), ("runtime13", "rt."), ("mixed_now", "rt.")}
DRIVERS = [("open", []), ("open", ["cu.route=proc"]), ("cuda", []), ("cuda_now", []), ("mixed", [])]
VISIBLE = {"visible": messages.text("visible", last=2), "gpus": "GPUs 5,2,7"}
TOO_HIGH = ("3", "100", "2147483647")
NEGATIVE = ("-1", "-2147483648")


def good_answer(call, position):
    """Returns the step's answer for the device at this position."""
    gpu = VIEW[position]
    if call == "attribute":
        return "0:%d" % box.GPUS[gpu][1]
    if call.startswith("properties"):
        return "0:%s:Box_GPU_%d" % (box.GPUS[gpu][0], gpu)
    return "0"


def bad_answer(call):
    return {"attribute": "101:-7", "properties": "101:", "properties2": "101:"}.get(call, "101")


def calls_of(name, prefix):
    """All calls. Each is the first one of some program."""
    first = RUNTIMES.index((name, prefix)) % len(CALLS)
    return [*CALLS][first:] + [*CALLS][:first]


def apis_of(name, prefix):
    """The functions that the calls lead to."""
    return {api.replace("_v2", "") if (name, prefix) in WITH_ONE_FORM else api
            for api in CALLS.values()}


def steps_of(name, prefix, indices):
    """Each call with each index, each followed by questions about the error state."""
    return [prefix + step for call in calls_of(name, prefix) for index in indices
            for step in ("%s=%s" % (call, index), "peek", "last", "last")]


def printed(name, prefix, indices, answer_of, error="0"):
    """What steps_of() prints if each call has this answer and leaves this error."""
    return [prefix + line for call in calls_of(name, prefix) for index in indices
            for line in ("%s=%s" % (call, answer_of(call, index)), "peek=" + error, "last=" + error,
                         "last=0")]


def bad(call, _):
    return bad_answer(call)


def last_device(call, _):
    return good_answer(call, 2)


def has_messages(result, apis, indices, **values):
    """Fails unless there is one message for each call and index, and no other line."""
    assert len(box.lines(result)) == len(apis) * len(indices), str(result)
    for api in apis:
        for index in indices:
            found = messages.find(result.err, "bad_index", call=api, device=index, **values)
            assert len(found) == 1, "%s %s\n%s" % (api, index, result)


@pytest.mark.parametrize(("name", "prefix"), RUNTIMES)
def test_runtime_control_bad_index_is_an_error_without_the_guard(name, prefix):
    """CUDA's own variable makes a view of three GPUs."""
    own = ",".join(box.uuid(gpu) for gpu in VIEW)
    result = box.run(steps_of(name, prefix, ("2",)), name, guard=False, own=own)
    assert result.out.split() == printed(name, prefix, ("2",), last_device), str(result)
    result = box.run(steps_of(name, prefix, ("3", "-1")), name, guard=False, own=own)
    assert result.out.split() == printed(name, prefix, ("3", "-1"), bad, "101"), str(result)


@pytest.mark.parametrize(("policy", "indices", "answer", "error", "values"), [
    *((policy, range(3), good_answer, "0", None) for policy in policies.COMPUTING),
    ("VALIDATE", TOO_HIGH + NEGATIVE, bad, "101", {"used": None, **VISIBLE}),
    ("CLAMP", TOO_HIGH, last_device, "0", {"used": 2}),
    ("CLAMP", NEGATIVE, bad, "101", {"used": None})],
    ids=["good-%s" % policy for policy in policies.COMPUTING] + ["validate", "clamp", "negative"])
@pytest.mark.parametrize(("name", "prefix"), RUNTIMES)
def test_runtime_keeps_or_clamps_the_index(name, prefix, policy, indices, answer, error, values):
    """VALIDATE leaves the answers and the error state as without the guard. CLAMP answers as if the
    program had asked for the last valid device, but clamps no negative index."""
    result = box.run(steps_of(name, prefix, indices), name, policy=policy, allow=ALLOW)
    assert result.rc == 0, str(result)
    assert result.out.split() == printed(name, prefix, indices, answer, error), str(result)
    has_messages(result, apis_of(name, prefix) if values else (), indices, **values or {})


@pytest.mark.parametrize(("name", "prefix"), RUNTIMES)
def test_refusal_names_the_index_that_the_program_gave(name, prefix):
    """The device that CLAMP uses instead may fail, too."""
    result = box.run([prefix + call + "=9" for call in calls_of(name, prefix)], name,
                     policy="CLAMP", allow=ALLOW, CG_FAILED="2")
    for call in calls_of(name, prefix):
        assert result.answers[prefix + call] == bad_answer(call), str(result)
    has_messages(result, apis_of(name, prefix), ["9"], used=2)


@pytest.mark.parametrize(("policy", "wanted"), [("CLAMP", "0:2"), ("VALIDATE", "0:1")])
@pytest.mark.parametrize(("name", "prefix"), RUNTIMES)
def test_clamped_selection_is_in_use_and_a_refused_one_is_not(name, prefix, policy, wanted):
    steps = [prefix + step for step in ("set=1", "set=9", "current", "sync")]
    result = box.run(steps, name, allow=ALLOW, policy=policy)
    assert result.answers[prefix + "current"] == wanted, str(result)
    assert result.answers[prefix + "sync"] == "0", str(result)


@pytest.mark.parametrize(("name", "prefix"), RUNTIMES)
def test_clamped_call_keeps_an_earlier_error(name, prefix):
    """A success does not clear the runtime's last error, nor does a clamped call."""
    steps = [prefix + step for call in calls_of(name, prefix)
             for step in ("free=1", call + "=9", "peek", "last")]
    result = box.run(steps, name, allow=ALLOW, policy="CLAMP")
    assert result.out.split() == [
        prefix + line for call in calls_of(name, prefix)
        for line in ("free=1", "%s=%s" % (call, good_answer(call, 2)), "peek=1", "last=1")], (
            str(result))


@pytest.mark.parametrize(("name", "prefix"), RUNTIMES)
def test_clamp_without_a_device_keeps_the_error(name, prefix):
    steps = ["%s%s=%d" % (prefix, call, index) for call in calls_of(name, prefix)
             for index in (0, 3)]
    unguarded = box.run(steps, name, guard=False, own="-1")
    result = box.run(steps, name, allow=ALLOW, own="-1", policy="CLAMP")
    assert result.out == unguarded.out, str(result)
    assert result.out.count("=100") == len(steps), str(result)


def test_policies_without_an_allow_list_check_all_gpus(case):
    """VALIDATE and CLAMP alone show all GPUs of the machine in the driver's own order."""
    for policy in policies.ALLOWING:
        result = box.run(["cu.see", "nv.see", "rt12.see", "rt13.see"], policy=policy)
        case.silent(result)
        case.sees(result, cu=box.FASTEST, rt12=box.FASTEST, rt13=box.FASTEST, nv=box.ALL)
        result = box.run(["rt12.set=8", "rt12.current"], policy=policy)
        case.message(result, "bad_index", call="cudaSetDevice", device=8,
                     visible=messages.text("visible", last=7))
        assert result.answers["rt12.current"] == ("0:7"
                                                  if policy in policies.CLAMPING else "0:0"), str(result)


@pytest.mark.parametrize(("more", "high", "values"), [
    ({"guard": False, "own": ALLOW}, "101:-7", None), ({"allow": ALLOW}, "101:-7", VISIBLE),
    ({"allow": ALLOW, "policy": "CLAMP"}, "0:2", {"used": 2})],
    ids=["control", "validate", "clamp"])
@pytest.mark.parametrize(("name", "steps"), DRIVERS)
def test_driver_keeps_or_clamps_the_index(name, steps, more, high, values):
    """It clamps no negative one."""
    gets = ["cu.get=%s" % index for index in ("2", *TOO_HIGH, *NEGATIVE)]
    result = box.run([*steps, "cu.init", *gets], name, **more)
    assert re.findall(r"cu\.get=(\S+)", result.out) == (
        ["0:2"] + [high] * len(TOO_HIGH) + ["101:-7"] * len(NEGATIVE)), str(result)
    assert len(box.lines(result)) == (len(gets) - 1 if values else 0), str(result)
    for index in TOO_HIGH + NEGATIVE if values else ():
        used = None if index in NEGATIVE else values.get("used")
        assert messages.find(result.err, "bad_index", call="cuDeviceGet", device=index,
                             **{**values, "used": used}), "%s\n%s" % (index, result)


def test_call_before_cuinit_gets_error_3_and_no_message(case):
    for policy in policies.ALLOWING:
        for name, steps in DRIVERS:
            result = box.run(steps + ["cu.get=9"], name, allow=ALLOW, policy=policy)
            assert result.answers["cu.get"] == "3:-7", str(result)
            case.silent(result)


@pytest.mark.parametrize("policy", policies.ALLOWING)
def test_each_call_and_index_makes_one_message(policy):
    """Another index, or another call, makes one more message."""
    again = ["rt12.set=9"] * 5 + ["cu.get=9"] * 5
    result = box.run(["cu.init"] + again, allow=ALLOW, policy=policy)
    assert len(box.lines(result)) == 2, str(result)
    result = box.run(again + ["rt12.set=8", "rt12.attribute=9", "rt12.set=-1"] + again,
                     allow=ALLOW, policy=policy)
    assert len(box.lines(result)) == 5, str(result)


@pytest.mark.parametrize(("name", "steps", "more", "values"), [
    *(("open", [step + asked], {}, {"meant": meant}) for asked, meant in (("5", 0), ("7", 2))
      for step in ("rt12.set=", "rt13.set=", "cu.get=")),
    ("open", ["cu.get=4"], {}, {"meant": None, "asked_by": "open"}),
    ("open", ["rt12.set=9"], {}, {"asked_by": "runtime_12.so"}),
    ("runtime13", ["rt.set=9"], {}, {"asked_by": "runtime13"}),
    # Without a list, the program's own CUDA_VISIBLE_DEVICES makes the view.
    ("open", ["rt12.set=6"], {"allow": None, "policy": "VALIDATE", "own": "6,4"},
     {"visible": messages.text("visible", last=1), "meant": 0, "gpus": "CUDA_VISIBLE_DEVICES=6,4"}),
    # The program sees these GPUs, by the machine's numbers.
    ("open", ["setenv=CUDA_VISIBLE_DEVICES=2,0", "rt12.set=7"], {},
     {"visible": messages.text("visible", last=1), "meant": 0, "gpus": "GPUs 7,5"})])
def test_message_says_what_the_program_sees_and_perhaps_meant(case, name, steps, more, values):
    """The program used the machine's number of a visible GPU, and the message suggests its
    position in the view."""
    before = ["cu.init"] if steps[0].startswith("cu.") else []
    result = box.run(before + steps, name, **{"allow": ALLOW, **more})
    case.message(result, "bad_index", **values)


def test_log_off_prints_no_message_and_still_clamps(case):
    result = box.run(["rt12.set=9", "rt12.current"], allow=ALLOW, policy="CLAMP",
                     CUDAGUARD_LOG="off")
    case.silent(result)
    assert result.answers["rt12.current"] == "0:2", str(result)
