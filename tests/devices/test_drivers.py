# SPDX-License-Identifier: Apache-2.0
"""A driver that breaks the guard's assumptions never shows more GPUs than were allowed, and a
message explains it."""

import pytest

from support import box, messages, policies
from support.box import ALL, FASTEST, uuid


# Each driver breaks one assumption of the guard and must never show more GPUs than were allowed.

STEPS = ["cu.see", "rt12.see", "nv.see"]


def test_control_each_fake_driver_shows_gpus_without_the_guard(case):
    case.sees(box.run(STEPS, guard=False, box="noslot", own="1"), cu=[0], rt12=[0], nv=ALL)
    case.sees(box.run(STEPS, guard=False, box="liar", own="1"), cu=FASTEST, nv=ALL)
    case.sees(box.run(STEPS, guard=False, box="bypass", own="1"), cu=[0], nv=ALL)
    case.sees(box.run(STEPS, guard=False, CG_GONE="5", own=uuid(5)), cu="!100", nv=ALL)
    for kind in ("no_nvml", "no_plt"):
        case.sees(box.run(["cu.see"], guard=False, box=kind), cu=FASTEST)


def test_driver_without_a_getenv_import_shows_no_gpu(case):
    for steps in (["cu.see", "rt12.see"], ["rt13.see", "cu.see"]):
        result = box.run(steps, box="noslot", allow="2,5")
        case.sees(result, cu="!100")
        case.refused(result, name="list_no_getenv")
    result = box.run(STEPS, box="noslot", allow="2,5")
    assert box.seen(result.answers["nv.see"]) not in (ALL, FASTEST), str(result)


def test_driver_that_reads_the_list_without_getenv_is_refused(case):
    """The driver imports getenv, and reads this one variable without it."""
    for own in (None, uuid(2) + "," + uuid(5)):
        result = box.run(["cu.see", "rt12.see"], box="bypass", allow="2,5", own=own)
        assert result.answers["cu.see"].split(":")[0] == "100", str(result)
        case.sees(result, rt12="!100")
        case.explained(result, name="list_not_read")


def test_names_that_an_old_driver_lacks_are_not_found(case):
    """dlsym finds nothing for these names, as without the guard."""
    names = ("cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4", "cuLibraryLoadData",
             "cuLibraryLoadFromFile", "cuModuleLoadData")
    steps = ["cu.where=" + name for name in names] + ["cu.context=v4,0", "nv.initflags"]
    steps += ["nv.init", "nv.uuidtext=" + uuid(2)]
    unguarded = box.run(steps, guard=False, box="old")
    result = box.run(steps, box="old", policy="VALIDATE")
    case.silent(result)
    for without, within in zip(unguarded.out.splitlines(), result.out.splitlines()):
        if "libcudaguard-driver.so" in within:
            assert "=libcuda.so.1+" in without
        else:
            assert within == without, str(result)
    assert unguarded.answers["nv.initflags"] == "-999", str(unguarded)
    assert unguarded.out.count("=null") == 4, str(unguarded)
    # Without NVML, this list would be refused.
    result = box.run(["cu.see", "nv.see", "rt12.count"], box="old", allow="5," + uuid(2))
    case.sees(result, cu=[5, 2], nv=[5, 2])


@pytest.mark.parametrize(("allow", "own", "gpus"), [
    ("2,5", None, "!100"), ("5", None, "!100"), ("5,2", "0,1", "!100"), (uuid(5), None, "!100"),
    ("2,6", None, [2, 6])])
def test_gpu_that_the_driver_no_longer_knows_is_refused(case, allow, own, gpus):
    """NVML still lists the GPU. The others work."""
    result = box.run(["cu.see", "rt12.see"], allow=allow, own=own, CG_GONE="5")
    case.sees(result, cu=gpus, rt12=gpus)
    if gpus == "!100":
        case.explained(result)
    else:
        case.silent(result)


@pytest.mark.parametrize(("allow", "own", "gpus"), [("2,5", None, [2, 5]), ("5,2", "1", [2]),
                                                    (uuid(3) + "," + uuid(0, 8), None, [3, 0]),
                                                    ("7", "0,0", "!100")])
def test_list_of_one_kind_works_without_nvml(case, allow, own, gpus):
    """The driver itself counts the GPUs."""
    steps = ["cu.see", "rt12.see"]
    result = box.run(steps, box="no_nvml", allow=allow, own=own)
    case.sees(result, cu=gpus, rt12=gpus)
    if gpus == "!100":
        case.message(result, "late_write_empty", now="0,0", advice=messages.text(
            "inside_list", list="CUDAGUARD_VISIBLE_DEVICES=7"))
    elif own:
        case.message(result, "late_write_less", now=own, left="GPU 2", advice=messages.text(
            "inside_list", list="CUDAGUARD_VISIBLE_DEVICES=" + allow))
    else:
        case.silent(result)


@pytest.mark.parametrize("allow", ["2," + uuid(5), "8", "2,8", uuid(5, 20), "GPU-ffff", "1,1"])
def test_other_lists_are_refused_without_nvml(case, allow):
    steps = ["cu.see", "rt12.see"]
    result = box.run(steps, box="no_nvml", allow=allow)
    case.sees(result, cu="!100", rt12="!100")
    case.explained(result)


def test_missing_driver_keeps_ld_sos_own_message(case):
    """Only NVML is there, and the program gets ld.so's own message about the driver."""
    steps = ["cu.open", "lib.open=libcuda.so.1", "rt12.count", "rt12.set=0", "rt12.last"]
    unguarded = box.run(steps, guard=False, box="only_nvml")
    assert "lib.open=libcuda.so.1: cannot open shared object file" in unguarded.out
    for allow, policy in (("2,5", None), *((None, name) for name in policies.ALLOWING)):
        result = box.run(steps, box="only_nvml", allow=allow, policy=policy)
        assert result.out == unguarded.out, str(result)
        if allow is None:
            case.silent(result)
        else:
            case.message(result, "list_in_vain", reason=messages.text("driver_missing"))
    result = box.run(["cu.open", "nv.see"], box="only_nvml", allow="2,5")
    case.sees(result, nv=[2, 5])
