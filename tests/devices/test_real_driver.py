# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's own driver, without a GPU, gives the same answers through the proxy and unguarded."""

import re

import pytest

from support import box, harness, policies
from devices import test_names

pytestmark = pytest.mark.usefixtures("case")  # which skips without the driver
GUARDED = {re.sub(r"_v\d$", "", name) for name in test_names.GUARDED}
FIXED = ["cu.version", "cu.count", "cu.get=0", "cu.init=1", "cu.init", "cu.init", "cu.count",
         "cu.context=v2,0", "cu.load=library", "cu.memory", "cu.brandnew", "cu.where=cuNoSuchThing",
         "cu.where=cuInit_v2", "cu.ask=cuNoSuchThing,12000,0", "cu.ask=,12000,0",
         "cu.ask=cuMemAlloc,12000,4", "nv.count", "nv.init", "nv.initold", "nv.list", "nv.shutdown"]


@pytest.fixture(name="case")
def make_case(case):
    case.need_real_driver()
    return case


def run_real(steps, name="open", guard=True, **env):
    return harness.run([box.program(name)] + steps, world="real", guard=guard, trace=False,
                       env=env, timeout=300)


def both(steps, name="open", **env):
    unguarded = run_real(steps, name, guard=False, **env)
    guarded = run_real(steps, name, **env)
    assert (unguarded.rc, guarded.rc) == (0, 0), str(guarded)
    return unguarded, guarded


@pytest.mark.parametrize(("name", "policy", "bind"), [
    *(("open", policy, None) for policy in policies.ALLOWING), ("open", "VALIDATE", "1"),
    ("cuda", "VALIDATE", None), ("cuda", "VALIDATE", "1"), ("cuda_now", "VALIDATE", None)])
def test_calls_without_a_device_answer_as_unguarded(name, policy, bind):
    steps = FIXED + ["cu.error=%d" % code for code in list(range(0, 1000, 1)) + [-1, 5555]]
    unguarded, guarded = both(steps, name, CUDAGUARD_POLICY=policy, LD_BIND_NOW=bind)
    assert guarded.out == unguarded.out
    assert unguarded.answers["cu.version"][:2] == "0:", str(unguarded)
    assert unguarded.answers["cu.init"] == "100", str(unguarded)


def test_every_unguarded_name_has_the_same_status_and_place():
    """A guarded name has its place in the proxy."""
    names = test_names.bases()
    questions = ["%s,%d,%d" % (name, version, flags) for name in names
                 for version in (11030, 12000, 12020) for flags in (0, 2)
                 if name in GUARDED or (version, flags) in ((11030, 0), (12020, 2))]
    for bind in (None, "1"):
        ours, known = set(), set()
        for start in range(0, len(questions), 1000):
            asked = questions[start:start + 1000]
            unguarded, guarded = both(["cu.ask=" + question for question in asked],
                                      CUDAGUARD_POLICY="VALIDATE", LD_BIND_NOW=bind)
            pairs = zip(asked, test_names.answers(unguarded), test_names.answers(guarded))
            for question, without, within in pairs:
                if "libcuda.so" in without:
                    known.add(question.split(",")[0])
                if within == without:
                    continue
                assert re.sub(r"libcudaguard-driver\.so\+[0-9a-f]+", "X",
                              within) == re.sub(r"libcuda\.so[.\d]*\+[0-9a-f]+", "X",
                                                without), str(question)
                ours.add(question.split(",")[0])
        assert len(GUARDED - known) < 10  # which are newer than this driver
        assert ours == GUARDED & known


def test_allow_list_without_a_gpu_gives_100():
    """There is no GPU to choose, so the program gets 100 from the driver or from FORCE_CPU, and
    never a crash."""
    for allow in ("0", "1,0", box.uuid(1), "0,0"):
        for bind in (None, "1"):
            result = run_real(["cu.init", "cu.count", "nv.count"], LD_BIND_NOW=bind,
                              CUDAGUARD_VISIBLE_DEVICES=allow)
            assert result.rc == 0, str(result)
            assert result.answers["cu.init"] == "100", str(result)
            assert result.answers["cu.count"][:1] == "3", str(result)


def test_fake_driver_answers_as_the_real_one():
    """The tests' fake driver gives the same answers to the calls that need no device."""
    steps = ["cu.count", "cu.get=0", "cu.init=1", "cu.where=cuNoSuchThing",
             "cu.ask=cuNoSuchThing,12000,0", "cu.ask=cuMemAlloc,12000,4", "nv.count"]
    steps += ["cu.error=%d" % code for code in (0, 1, 2, 3, 100, 101, 201, 500, 999, 5555)]
    for guard in (False, True):
        real = run_real(steps, guard=guard, CUDAGUARD_POLICY="VALIDATE")
        fake = box.run(steps, guard=guard, policy="VALIDATE")
        assert fake.out == real.out, str(fake)
