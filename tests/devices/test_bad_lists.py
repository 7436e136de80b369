# SPDX-License-Identifier: Apache-2.0
"""A mistake in a list makes one clear message, and never more GPUs than were allowed."""

import pytest

from support import box, messages, policies
from support.box import uuid

STEPS = ["cu.see", "nv.see", "rt12.see", "rt13.see", "nv.get=0", "nv.uuid=" + uuid(0)]
# Each entry has a list of one kind and the entry that the message has to name.
# tests/unit/device_list_test.cpp has all kinds, and device_list_random_test.cpp makes random ones.
MISTAKES = [
    ("0,1,2,3,0", "5"),
    ("2,99,5", "99"),
    (uuid(0)[:-1] + "f", uuid(0)[:-1] + "f"),
    ("MIG-3c58f7a0", "MIG-3c58f7a0"),
    ("0,,1", "entry 2"),
    ("\uff11", "entry 1"),
    ("0\n1", "entry 1"),
]


def answers_of_force_cpu(case, result, *words):
    assert result.rc == 0, str(result)
    case.sees(result, cu="!100", rt12="!100", rt13="!100", nv="!9")
    assert result.answers["nv.get"] == "1:null", str(result)
    assert result.answers["nv.uuid"] == "1:77:!1", str(result)
    case.refused(result, *words)
    cause = messages.text("list_not_accepted", list="CUDAGUARD_VISIBLE_DEVICES")
    assert messages.find(result.err, "no_cuda", cause=cause), str(result)


def test_control_good_list_works_and_without_the_guard_all_gpus_show(case):
    result = box.run(STEPS, allow="0,1")
    case.silent(result)
    case.sees(result, cu=[0, 1], nv=[0, 1], rt12=[0, 1], rt13=[0, 1])
    unguarded = box.run(STEPS, guard=False, allow="0,0")
    case.sees(unguarded, cu=box.FASTEST, nv=box.ALL)


@pytest.mark.parametrize(("allow", "word"), MISTAKES)
def test_each_mistake_in_a_list_means_force_cpu(case, allow, word):
    answers_of_force_cpu(case, box.run(STEPS, allow=allow), word)


@pytest.mark.parametrize(
    ("name", "steps", "wanted"),
    [("cuda_now", ["cu.see"], {"cu": "!100"}), ("nvml", ["nv.see"], {"nv": "!9"}),
     ("runtime13", ["nv.see", "rt.see"], {"rt": "!100", "nv": "!9"}),
     ("mixed", ["rt.see", "nv.see", "cu.see"], {"rt": "!100", "nv": "!9", "cu": "!100"}),
     ("open", ["cu.route=proc", "cu.see"], {"cu": "!100"})])
@pytest.mark.parametrize("allow", ["0,0", "8"])
def test_bad_list_means_no_gpu_in_every_program(case, allow, name, steps, wanted):
    """The programs are linked, and either API may come first. The text alone shows one mistake, the
    other one needs the machine."""
    result = box.run(steps, name, allow=allow)
    case.sees(result, **wanted)
    case.refused(result, allow)


def test_bad_list_is_refused_in_every_process():
    result = box.run(["fork=f", "cu.see", "end", "spawn=s", "cu.see", "end", "cu.see", "fork=l",
                      "cu.see", "end"], allow="0,0")
    for label in ("", "f.", "s.", "l."):
        assert box.seen(result.answers[label + "cu.see"]) == "!100", str(result)


@pytest.mark.parametrize(("allow", "policy"), [
    ("", None), (" ", None), (" -1 ", None), *(("-1", policy) for policy in policies.ALLOWING)])
def test_empty_list_means_force_cpu_without_a_complaint(case, allow, policy):
    result = box.run(STEPS, allow=allow, policy=policy)
    case.sees(result, cu="!100", rt12="!100", rt13="!100", nv="!9")
    assert messages.find(result.err, "list_refused", "bad_value") == [], str(result)
    causes = {found["cause"] for found in
              messages.find(result.err, *messages.DENIED)}
    assert causes == {messages.text("no_gpu_allowed",
                                    list="CUDAGUARD_VISIBLE_DEVICES")}, str(result)
    assert "cuInit" not in result.fake_calls, str(result)


def test_list_under_force_cpu_is_reported_as_without_effect(case):
    for allow in ("0,1", "0,0", "nonsense"):
        result = box.run(STEPS, allow=allow, policy="FORCE_CPU")
        case.sees(result, cu="!100", rt12="!100", rt13="!100", nv="!9")
        assert messages.find(result.err, "list_no_effect", value=allow), str(result)
        assert result.fake_calls == [], str(result)


@pytest.mark.parametrize("allow", [
    ",".join(map(str, range(65))), ",".join(["1"] * 10000), "1" * 100000, "GPU-" + "a" * 100000,
    " " * 50000 + "0" + " " * 50000 + ","], ids=["65", "10000", "word", "UUID", "blanks"])
def test_too_long_lists_mean_force_cpu_and_short_messages(case, allow):
    """The lists have more than 64 entries, 10,000 entries or one entry without an end."""
    result = box.run(STEPS, allow=allow)
    answers_of_force_cpu(case, result)
    for line in box.lines(result):
        assert len(line) < 4096


def test_bad_list_without_nvml_is_explained(case):
    """Without NVML, only the driver knows the GPUs."""
    for allow in ("0,8", "0,0", "1gpu2", "all"):
        result = box.run(["cu.see", "rt12.see"], allow=allow, box="no_nvml")
        case.sees(result, cu="!100", rt12="!100")
        case.explained(result)


def test_rewrite_of_any_length_shows_listed_gpus_or_none(case):
    """The program may write a value of any kind and length, and gets GPUs of the list or none.
    """
    for own in (",".join(str(i) for i in range(10000)), "1" * 100000, uuid(5) + "," + "x" * 100000):
        result = box.run(["setenv=CUDA_VISIBLE_DEVICES=" + own, "cu.see", "nv.see"],
                         allow="5,2,7")
        gpus = box.seen(result.answers["cu.see"])
        assert gpus == "!100" or set(gpus) <= {5, 2, 7}, str(result)
        case.sees(result, nv=[5, 2, 7])
    result = box.run(["setenv=CUDA_VISIBLE_DEVICES=1," + "7" * 100000, "cu.see"], allow="5,2,7")
    case.sees(result, cu=[2])
