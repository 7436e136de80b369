# SPDX-License-Identifier: Apache-2.0
"""Each test takes the remedy out of a message and follows it, and the remedy works."""

import re
import shlex

import pytest

from support import box, launcher, messages
from support.box import uuid

LATE_WRITES = ("late_write", "late_write_unread")


def advice_in(result):
    """Returns the advice of the only message, which is about a late write."""
    assert len(box.lines(result)) == 1, str(result)
    found, = messages.find(result.err, *LATE_WRITES)
    return found["advice"]


# A program writes CUDA_VISIBLE_DEVICES after CUDA has counted the GPUs for it.


def late_steps(written, first="nv.see"):
    return [first, "setenv=CUDA_VISIBLE_DEVICES=" + written, "cu.see", "rt12.count"]


def setting_in(case, advice):
    """Returns the setting that the message advises."""
    for name in ("start_with_one", "start_with_list", "start_with"):
        if found := messages.read(name, advice):
            return found["setting"]
    return case.fail(advice)


def follow(setting, machine):
    """Starts the program as the message advises. It uses device 0 and does not write the
    variable."""
    words = shlex.split(setting)
    steps = ["nv.see", "cu.see", "rt12.see"]
    if words[0] == "cudaguard":
        return box.launch(words[2:], steps, box=machine)
    name, _, value = words[0].partition("=")
    assert (name, len(words)) == ("CUDAGUARD_VISIBLE_DEVICES", 1), str(setting)
    return box.run(steps, box=machine, allow=value)


@pytest.mark.parametrize("place", ["variable", "run"])
@pytest.mark.parametrize(("machine", "written", "first"), [
    ("lazy", "2", "nv.see"), ("lazy", "7,0", "nv.see"), ("lazy", "5, 2", "nv.see"),
    ("lazy", uuid(3), "nv.see"), ("driver", "0", "nv.see"), ("lazy", "2,5", "cu.see"),
    ("driver", "0", "cu.see")])
def test_advised_list_works(case, machine, written, first, place):
    steps = late_steps(written, first)
    more = {"box": machine, "own": "0,1" if machine == "lazy" else None}
    if first == "cu.see":
        more["own"] = None
    result = (box.run(steps, policy="VALIDATE", **more)
              if place == "variable" else box.launch(["--policy", "VALIDATE"], steps, **more))
    if machine == "driver" and first == "nv.see":
        # The program knows of one GPU, and the machine has one.
        case.silent(result)
        return
    setting = setting_in(case, advice_in(result))
    assert setting.startswith("cudaguard run --gpus ") == (place == "run"), str(setting)
    fixed = follow(setting, machine)
    case.silent(fixed)
    gpus = box.seen(fixed.answers["nv.see"])
    assert len(gpus) == written.count(",") + 1, str(fixed)
    case.sees(fixed, cu=gpus, rt12=gpus)


@pytest.mark.parametrize("place", ["variable", "run"])
@pytest.mark.parametrize("written", ["", "-1"])
def test_advised_list_that_hides_all_gpus_works(case, written, place):
    steps = late_steps(written)
    result = (box.run(steps, policy="VALIDATE")
              if place == "variable" else box.launch(["--policy", "VALIDATE"], steps))
    fixed = follow(setting_in(case, advice_in(result)), "lazy")
    case.sees(fixed, nv="!9", cu="!100", rt12="!100")
    assert messages.find(fixed.err, *LATE_WRITES) == [], str(fixed)


@pytest.mark.parametrize(("machine", "written", "name", "values", "place"),
                         [("driver", "2", "entry_unknown", (1, "2", "1 GPU"), "variable"),
                          ("driver", "1", "entry_unknown", (1, "1", "1 GPU"), "run"),
                          ("lazy", "8", "entry_unknown", (1, "8", "8 GPUs"), "variable"),
                          ("lazy", "2,99", "entry_unknown", (2, "99", "8 GPUs"), "run"),
                          ("lazy", "2,2", "entry_repeated", (2, "2"), "variable"),
                          ("lazy", "nonsense", "entry_bad", (1, "nonsense"), "run")])
def test_missing_gpu_is_explained_without_advice(case, machine, written, name, values, place):
    """The same value would be refused as a list, and the message says why."""
    mistake = messages.text(name, **dict(zip(("position", "entry", "gpus"), values)))
    steps = late_steps(written)
    result = (box.run(steps, policy="VALIDATE", box=machine)
              if place == "variable" else box.launch(["--policy", "VALIDATE"], steps, box=machine))
    assert advice_in(result) == messages.text("new_value_wrong", mistake=mistake), str(result)
    # Control: that list is refused.
    refused = box.run(["cu.see"], box=machine, allow=written)
    case.sees(refused, cu="!100")
    assert messages.find(refused.err, "list_wrong", mistake=mistake), str(refused)


def test_value_with_unknown_gpus_works_from_the_start(case):
    """CUDA had counted the GPUs of an older value, or the new value is a UUID that was not read
    yet. The value works if it is set from the start."""
    for own, written in (("0,1", "5"), (None, uuid(3))):
        result = box.run(late_steps(written, "cu.see"), policy="VALIDATE", own=own)
        assert advice_in(result) == messages.text("start_later")
        fixed = box.run(["cu.see", "rt12.see"], policy="VALIDATE", own=written)
        case.silent(fixed)
        assert len(box.seen(fixed.answers["cu.see"])) == 1, str(fixed)


def test_advice_to_unset_the_variable_works(case):
    result = box.run(["nv.see", "unsetenv=CUDA_VISIBLE_DEVICES", "cu.see"], policy="VALIDATE",
                     own="0,1")
    assert advice_in(result) == messages.text("start_without")
    fixed = box.run(["nv.see", "unsetenv=CUDA_VISIBLE_DEVICES", "cu.see"], policy="VALIDATE")
    case.silent(fixed)


def test_device_named_inside_the_option_works(case):
    steps = ["nv.see", "setenv=CUDA_VISIBLE_DEVICES=5", "cu.see"]
    advice = advice_in(box.launch(["--gpus", "2,5"], steps))
    inside = messages.read("inside_list", advice)
    assert (inside["list"], inside["gpu"]) == ("--gpus 2,5", "5"), str(advice)
    steps[1] = "setenv=CUDA_VISIBLE_DEVICES=" + inside["device"]
    case.sees(box.launch(["--gpus", "2,5"], steps), cu=[5])


# The list is for a machine without a GPU, or with a broken one.

NO_GPU = messages.text("no_gpu")


@pytest.mark.parametrize(("more", "code", "reason"), [
    ({"CG_SICK": "100"}, "100", NO_GPU), ({"CG_SICK": "100", "CG_EMPTY": "1"}, "100", NO_GPU),
    ({"CG_EMPTY": "1"}, "0", NO_GPU),
    *((more, more["CG_SICK"], messages.text("driver_fails", error=more["CG_SICK"])) for more in (
        {"CG_SICK": "999"}, {"CG_SICK": "999", "CG_EMPTY": "1"}, {"CG_SICK": "802"}))])
def test_machine_without_a_working_gpu_is_reported(case, more, code, reason):
    """doctor finds the cause."""
    unguarded = box.run(["cu.init"], guard=False, **more)
    assert unguarded.answers["cu.init"] == code, str(unguarded)
    steps = ["nv.count", "cu.init", "cu.init", "cu.count", "rt12.count"]
    result = box.run(steps, allow="0,2", **more)
    assert result.answers["cu.init"] == (code if "fails" in reason else "100"), str(result)
    assert result.answers["cu.count"][:1] == "3", str(result)
    found = case.message(result, "list_in_vain", list='CUDAGUARD_VISIBLE_DEVICES="0,2"',
                         reason=reason)
    if "fails" in reason:
        doctor = box.start([launcher.LAUNCHER, *found["remedy"].split()[1:]], **more)
        assert re.search(r"\b%s\b" % code, doctor.out), doctor.out


def test_nvml_shows_no_gpu_as_well(case):
    result = box.run(["nv.see", "nv.get=0", "cu.init"], allow="0,2", CG_EMPTY="1")
    case.sees(result, nv=[])
    assert result.answers["nv.get"] == "2:null", str(result)
    case.message(result, "list_in_vain", reason=NO_GPU)


# A message names what the user has written: the option or the variable.


@pytest.mark.parametrize(("name", "named", "gpus", "more"),
                         [("list_wrong", '--gpus "9"', "9", {}),
                          ("list_not_shown", "--gpus", "2", {"box": "liar"}),
                          ("list_in_vain", '--gpus "0"', "0", {"box": "only_nvml"})])
def test_message_names_the_option(name, named, gpus, more):
    result = box.launch(["--gpus", gpus], ["cu.open", "cu.init"], **more)
    assert messages.find(box.lines(result)[0], name, list=named), str(result)
    assert "CUDAGUARD_" not in result.err, str(result)


@pytest.mark.parametrize("allow", ["", "-1"])
def test_option_without_a_gpu_is_named(case, allow):
    result = box.launch(["--gpus", allow], ["cu.see"])
    case.sees(result, cu="!100")
    case.message(result, "no_cuda", cause=messages.text("no_gpu_allowed", list="--gpus"))


def test_fork_message_advises_spawn_or_a_later_init(case):
    steps = ["cu.init", "fork=c", "cu.init", "end"]
    case.message(box.run(steps, policy="VALIDATE"), "fork")
    for fixed in (["cu.init", "spawn=c", "cu.init", "end"],
                  ["fork=c", "cu.init", "end", "cu.init"]):
        result = box.run(fixed, policy="VALIDATE")
        case.silent(result)
        assert (result.answers["cu.init"], result.answers["c.cu.init"]) == ("0", "0")


def test_advised_first_process_works():
    more = {"policy": "VALIDATE", "CUDAGUARD_CHILDREN": "FORCE_CPU"}
    steps = ["cu.init", "spawn=c", "cu.init", "end"]
    result = box.run(steps, **more)
    assert result.answers["cu.init"] == "100", str(result)
    remedy = messages.find(result.err, "first_missing")[0]["remedy"]
    words = shlex.split(remedy)
    program = shlex.join([box.program("open"), *steps])
    words[2] = words[2].replace("APP", program)
    fixed = box.start(words, guard=True, **more)
    assert (fixed.answers["cu.init"], fixed.answers["c.cu.init"]) == ("0", "100"), str(fixed)
    assert messages.find(fixed.err, "first_missing") == [], str(fixed)


def test_suggested_device_works(case):
    found = case.message(box.run(["rt12.set=5"], allow="2,5"), "bad_index")
    fixed = box.run(["rt12.set=" + found["meant"]], allow="2,5")
    case.silent(fixed)
    assert fixed.answers["rt12.set"] == "0", str(fixed)
