# SPDX-License-Identifier: Apache-2.0
"""The program changes CUDA_VISIBLE_DEVICES after it has counted the GPUs."""

import pytest

from support import box, messages, policies

LIST = "CUDAGUARD_VISIBLE_DEVICES="
START_WITH_1 = messages.text("start_with_one", setting=LIST + "1")
LATE_WRITES = ("late_write", "late_write_unread", "late_write_empty")
WRITE = "setenv=CUDA_VISIBLE_DEVICES=1"


def test_control_late_write_changes_the_drivers_count(case):
    """YOLOv5 did this: it kept a count of 8 although the driver then showed one GPU."""
    unguarded = box.run(["nv.see", WRITE, "rt12.see", "cu.see"], guard=False)
    case.sees(unguarded, nv=box.ALL, rt12=[0], cu=[0])


@pytest.mark.parametrize(
    ("name", "steps", "first", "policy"),
    [*(("open", ["nv.see", WRITE, "cu.see"], "nvmlDeviceGetCount_v2", policy)
       for policy in policies.ALLOWING),
     ("open", ["nv.see", WRITE, "rt12.see"], "nvmlDeviceGetCount_v2", "VALIDATE"),
     ("open", ["nv.initold", "nv.listold", WRITE, "rt13.see"], "nvmlDeviceGetCount", "CLAMP"),
     ("nvml", ["nv.see", WRITE, "cu.see"], "nvmlDeviceGetCount_v2", "VALIDATE"),
     ("mixed", ["nv.see", WRITE, "rt.see"], "nvmlDeviceGetCount_v2", "CLAMP"),
     ("runtime13", ["nv.see", WRITE, "rt.see"], "nvmlDeviceGetCount_v2", "VALIDATE")])
def test_write_after_an_nvml_count_is_reported(case, name, steps, first, policy):
    result = box.run(steps, name, policy=policy)
    unguarded = box.run(steps, name, guard=False)
    # The guard cannot undo the write, so the answers are the same as without it.
    assert result.out == unguarded.out, str(result)
    case.message(result, "late_write", was="unset", now='"1"', reported="8 GPUs",
                 call=first, sees=1, advice=START_WITH_1)


@pytest.mark.parametrize("steps",
                         [["rt12.count", WRITE, "rt12.count"], ["rt13.count", WRITE, "rt13.set=0"],
                          ["cu.see", WRITE, "rt12.see"], ["rt12.see", WRITE, "nv.see"]])
def test_write_after_cuda_is_reported_as_without_effect(case, steps):
    """The driver does not read the variable again."""
    result = box.run(steps, policy="VALIDATE")
    unguarded = box.run(steps, guard=False)
    assert result.out == unguarded.out, str(result)
    case.message(result, "late_write_unread", was="unset", now='"1"',
                 advice=START_WITH_1)


@pytest.mark.parametrize(
    ("own", "write", "before", "after", "advice"),
    [("0,1,2", "setenv=CUDA_VISIBLE_DEVICES=2", '"0,1,2"', '"2"',
      messages.text("start_with_one", setting=LIST + "2")),
     ("0,1", "unsetenv=CUDA_VISIBLE_DEVICES", '"0,1"', "unset", messages.text("start_without")),
     (None, "setenv=CUDA_VISIBLE_DEVICES=", "unset", '""',
      messages.text("start_with_list", setting=LIST)),
     (None, "setenv=CUDA_VISIBLE_DEVICES=-1", "unset", '"-1"',
      messages.text("start_with_list", setting=LIST + "-1"))])
def test_message_has_both_values_and_the_remedy(case, own, write, before, after, advice):
    result = box.run(["nv.see", write, "cu.see"], policy="VALIDATE", own=own)
    case.message(result, "late_write", was=before, now=after, advice=advice)


@pytest.mark.parametrize(("steps", "more"), [
    *((steps, {"policy": "VALIDATE"}) for steps in (
        ["nv.see", "cu.see", "nv.see", "rt12.set=1"], [WRITE, "nv.see", "cu.see"],
        ["nv.see", WRITE], ["nv.init", WRITE, "cu.see"],
        ["nv.see", "setenv=CUDA_DEVICE_ORDER=PCI_BUS_ID", "cu.see"],
        ["nv.see", WRITE, "unsetenv=CUDA_VISIBLE_DEVICES", "cu.see"],
        ["nv.see", "spawn=s", WRITE, "cu.see", "end"])),  # a child, before its first call
    # The value was there before.
    (["nv.see", WRITE, "cu.see"], {"policy": "VALIDATE", "own": "1"}),
    # It hides all GPUs.
    (["setenv=CUDA_VISIBLE_DEVICES=", "cu.see"], {"allow": "1"}),
    (["setenv=CUDA_VISIBLE_DEVICES=-1", "cu.see"], {"allow": "1"}),
    (["nv.see", WRITE, "cu.see"], {"policy": "VALIDATE", "CUDAGUARD_LOG": "off"}),
    (["nv.see", WRITE, "cu.see"], {"policy": "OFF"})])
def test_no_effective_change_prints_no_message(case, steps, more):
    case.silent(box.run(steps, **more))


def test_several_late_writes_make_one_message(case):
    result = box.run(["nv.see", WRITE, "cu.see", "setenv=CUDA_VISIBLE_DEVICES=2", "rt12.see",
                      "rt13.set=0", "setenv=CUDA_VISIBLE_DEVICES=3", "nv.see"],
                     policy="VALIDATE")
    case.message(result, "late_write")


@pytest.mark.parametrize("steps",
                         [["nv.see", "cu.see", "rt12.see"],
                          ["nv.see", "setenv=CUDA_VISIBLE_DEVICES=0", "cu.see", "rt12.see"],
                          ["rt12.see", "setenv=CUDA_VISIBLE_DEVICES=0", "cu.see", "nv.see"]])
def test_list_makes_nvml_the_runtime_and_the_driver_agree(case, steps):
    """They agree whatever the program writes for the device that it was given."""
    result = box.run(steps, allow="1")
    case.sees(result, nv=[1], cu=[1], rt12=[1])
    for found in messages.find(result.err, *LATE_WRITES):
        # There is no other list to advise.
        assert messages.read("inside_list", found["advice"]), str(found)


@pytest.mark.parametrize("steps", [["nv.see", WRITE, "cu.see"], ["nv.see", WRITE, "rt12.see"],
                                   [WRITE, "cu.see"], [WRITE, "rt13.see"]])
def test_message_gives_the_device_inside_the_list(case, steps):
    """The program writes the variable for an option, such as YOLOv5's `--device 1`. The message
    says which device the same number is inside the list, and that device works. It is also
    printed if the program had not counted the GPUs before."""
    result = box.run(steps, allow="1")
    case.sees(result, **{steps[-1].partition(".")[0]: "!100"})
    assert len(box.lines(result)) == 1, str(result)
    found, = messages.find(result.err, *LATE_WRITES)
    assert found["advice"] == messages.text("inside_list", list=LIST + "1", gpu=1, device=0)
    steps[-2] = "setenv=CUDA_VISIBLE_DEVICES=0"
    assert ":1:" + box.uuid(1)[4:] in box.run(steps, allow="1").out, str(result)


def test_late_write_inside_the_list_is_reported(case):
    """Two GPUs are allowed and the program chooses one late, so NVML and CUDA disagree again.
    The message says so."""
    result = box.run(["nv.see", WRITE, "cu.see"], allow="5,2")
    case.sees(result, nv=[5, 2], cu=[2])
    case.message(result, "late_write", now='"1"', reported="2 GPUs", sees=1,
                 advice=messages.text("inside_list", list=LIST + "5,2"))
