# SPDX-License-Identifier: Apache-2.0
"""Only the guarded names lead to the guard; every other name is the driver's own pointer."""

import csv
import os
import re

import pytest

from support import box, harness, policies

GUARDED = harness.guarded("DRIVER")
PROXY = "libcudaguard-driver.so"
DRIVER = re.compile(r"^libcuda\.so\.1\+[0-9a-f]+$")
VERSIONS = (2000, 3020, 11030, 12000, 12080, 13020, 13030)
FLAGS = (0, 1, 2)


def all_names():
    path = os.path.join(harness.SOURCE, "shim", "api", "driver.csv")
    with open(path, encoding="utf-8", newline="") as stream:
        return sorted({row["name"] for row in csv.DictReader(stream)})


def bases():
    return sorted({re.sub(r"(_v\d+)?(_ptds|_ptsz)?$", "", name) for name in all_names()})


def answers(result):
    return [line.split("=", 1)[1] for line in result.out.splitlines()]


class Names(box.Case):

    def pair(self, steps, name="open", **more):
        unguarded = box.run(steps, name, guard=False)
        guarded = box.run(steps, name, allow="5,2", **more)
        self.assertEqual(unguarded.rc, 0, unguarded)
        self.silent(guarded)
        self.assertEqual(len(answers(guarded)), len(answers(unguarded)), guarded)
        return answers(unguarded), answers(guarded)

    def test_dlsym_leads_only_guarded_names_to_the_proxy(self):
        names = all_names() + ["cuBrandNewThing"]
        self.assertGreater(len(names), 700)
        unknown = ["cuNoSuchThing", "cuInit_v2", "cuda", "", "CUINIT", "cudaSetDevice", "nvmlInit"]
        for program in ("open", "cuda"):
            steps = ["cu.where=" + name for name in names + unknown]
            unguarded, guarded = self.pair(steps, program)
            ours = set()
            for name, without, within in zip(names, unguarded, guarded):
                self.assertRegex(without, DRIVER, name)
                if within != without:
                    self.assertEqual(within.split("+")[0], PROXY, name)
                    ours.add(name)
            self.assertEqual(ours, GUARDED)
            for answers_of in unguarded, guarded:
                self.assertEqual(answers_of[len(names):], ["null"] * len(unknown))

    def test_cugetprocaddress_leads_only_guarded_names_to_proxy(self):
        """The test asks both forms of cuGetProcAddress for every name, and for the guarded ones and
        some others with every kind of version and every flag."""
        names = {re.sub(r"_v\d$", "", name) for name in GUARDED}
        questions = ["%s,%d,%d" % (name, version, flags)
                     for place, name in enumerate(bases() + ["cuBrandNewThing"])
                     for version in VERSIONS for flags in FLAGS
                     if name in names or place % 40 == 0 or
                     (version, flags) in ((2000, 0), (13030, 2))]
        questions += ["%s,%d,%d" % (name, version, flags) for name in ("cuNoSuchThing", "cuInit_v2",
                                                                       "cuMemAlloc_v2", "x")
                      for version in VERSIONS for flags in FLAGS]
        questions += ["cuInit,13020,4", "cuMemAlloc,13020,7", "cuMemAlloc,-1,0", "cuInit,0,0"]
        ours = set()
        for start in range(0, len(questions), 1000):
            asked = questions[start:start + 1000]
            unguarded, guarded = self.pair(["cu.ask=" + question for question in asked])
            for question, without, within in zip(asked, unguarded, guarded):
                if within == without:
                    continue
                # The new form returns a result, a status and a place; the old form returns a result
                # and a place.
                place = r"libcudaguard-driver\.so\+[0-9a-f]+"
                same = re.sub(place, "X", within)
                self.assertEqual(same, re.sub(r"libcuda\.so\.1\+[0-9a-f]+", "X", without), question)
                ours.add(question.split(",")[0])
        self.assertEqual(ours, names)

    def test_name_that_no_table_has_still_works(self):
        """dlsym and cuGetProcAddress both find the name."""
        for route in ("dlsym", "proc"):
            for steps in (["cu.brandnew"], ["cu.see", "cu.brandnew"]):
                result = box.run(["cu.route=" + route] + steps, allow="5,2")
                self.assertEqual(result.answers["cu.brandnew"], "0:4242", result)
                self.silent(result)

    def test_wrappers_lose_no_argument(self):
        """By every route, calls with arguments on the stack return what they return unguarded."""
        steps = ["cu.init", "cu.context=v2,1", "cu.context=v3,0", "cu.context=v4,1",
                 "cu.context=primary,1", "cu.load=library", "cu.load=module", "cu.memory",
                 "cu.error=101", "cu.version", "cu.init=1", "cu.context=v4,2"]
        for program, route in (("open", "dlsym"), ("open", "proc"), ("cuda", "linked")):
            unguarded = box.run(["cu.route=" + route] + steps, program, guard=False, own="5,2")
            result = box.run(["cu.route=" + route] + steps, program, allow="5,2")
            self.assertEqual(result.out, unguarded.out, result)
            self.assertIn("cu.load=0:set", unguarded.out)


# Programs that export cu* functions of their own, as TensorFlow does, do not recurse.


@pytest.mark.parametrize("policy", policies.ALLOWING)
@pytest.mark.parametrize("name", ["trampolines", "trampolines_linked"])
def test_trampolines_do_not_recurse(case, name, policy):
    argv = [harness.program(name)]
    unguarded = box.start(argv, own="5,2")
    assert unguarded.answers["count"] == "2", str(unguarded)
    result = box.start(argv, guard=True, allow="5,2", policy=policy)
    case.silent(result)
    assert result.out == unguarded.out, str(result)
    assert result.fake_calls.count("cuInit:initialised") == 1, str(result)


# A call of a runtime reaches the caller's own runtime.

STEPS = ["count", "set=1", "properties=1", "attribute=0", "initdevice=0", "sync", "last"]


@pytest.mark.parametrize(("order", "policy"), [(("12", "13"), "VALIDATE"), (("13", "12"), "CLAMP")])
@pytest.mark.parametrize(("program", "prefixes"), [("open", {"12": "rt12.", "13": "rt13."}),
                                                   ("runtime12", {"12": "rt.", "13": "rt13."}),
                                                   ("runtime13", {"12": "rt12.", "13": "rt."})])
def test_two_runtimes_answer_their_own_callers(case, program, prefixes, policy, order):
    steps = [prefixes[major] + step for step in STEPS for major in order]
    unguarded = box.run(steps, program, guard=False, own="5,2")
    result = box.run(steps, program, allow="5,2", policy=policy)
    case.silent(result)
    for major in order:
        own = "cudart%s:" % major
        wanted = [call for call in unguarded.fake_calls if call.startswith(own)]
        called = [call for call in result.fake_calls if call.startswith(own)]
        # The guard may ask the runtime for its count or its error state.
        asked = {own + "cudaGetDeviceCount", own + "cudaPeekAtLastError",
                 own + "cudaGetLastError", own + "cudaRuntimeGetVersion"}
        assert [call for call in called
                if call not in asked] == [call for call in wanted if call not in asked], str(result)
    assert len(result.out.splitlines()) == len(steps), str(result)
    assert "=101" not in result.out, str(result)


def test_two_runtimes_have_separate_error_states():
    result = box.run(["rt12.set=9", "rt13.peek", "rt12.peek", "rt13.last", "rt12.last"],
                     allow="5,2")
    assert [line.split("=")[1]
            for line in result.out.splitlines()] == ["101", "0", "101", "0", "101"], str(result)


# ld.so answers about the driver's file as without the guard.

CASES = {
    "never loaded": ["lib.noload=LIB", "lib.noload=libnvidia-ml.so.1"],
    "loaded": ["lib.noload=LIB", "lib.open=LIB", "lib.noload=LIB"],
    "used": ["lib.open=LIB", "cu.see", "lib.noload=LIB", "lib.close=LIB", "lib.noload=LIB"],
    "closed once": ["lib.open=LIB", "lib.open=LIB", "lib.close=LIB", "lib.noload=LIB"],
    "again": ["lib.open=LIB", "lib.close=LIB", "lib.open=LIB", "lib.noload=LIB", "cu.count"],
    "both names": ["lib.open=libcuda.so", "lib.open=libcuda.so.1", "lib.noload=libcuda.so"],
    "local": ["lib.open=LIB", "lib.default=cuMemAlloc_v2", "lib.default=cuBrandNewThing"],
}


@pytest.mark.parametrize("state", CASES)
@pytest.mark.parametrize(
    "library", ["libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1",
                os.path.join(harness.FAKES, "lazy", "libcuda.so.1")])
@pytest.mark.parametrize("settings", [{"policy": "VALIDATE"}, {"policy": "FORCE_CPU"},
                                      {"policy": "OFF"}, {"allow": "0"}], ids=str)
def test_handles_are_as_without_the_guard(library, state, settings):
    steps = [step.replace("LIB", library) for step in CASES[state]]
    unguarded = box.run(steps, guard=False)
    result = box.run(steps, **settings)
    # Only what the driver answers differs.
    same = [[line for line in one.out.splitlines() if line.startswith("lib.")]
            for one in (result, unguarded)]
    assert same[0] == same[1], str(result)
    assert settings != {"policy": "VALIDATE"} or result.out == unguarded.out, str(result)
    assert ("set" if "open" in steps[-2] + steps[0] else "null") in unguarded.out


@pytest.mark.parametrize("library", [
    "libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1",
    os.path.join(harness.FAKES, "lazy", "libcuda.so.1")
])
def test_driver_stays_loaded_and_usable_after_the_last_close(case, library):
    """The driver stays loaded, because its table of addresses refers to the guard. The program
    sees this in /proc/self/maps only. The driver works when the program opens it again."""
    steps = ["lib.open=" + library, "lib.close=" + library, "lib.noload=" + library,
             "cu.see", "nv.see"]
    unguarded = box.run(steps, guard=False)
    assert unguarded.answers["lib.noload"] == "null", str(unguarded)
    result = box.run(steps, allow="5,2")
    case.silent(result)
    assert result.answers["lib.noload"] == "null", str(result)
    case.sees(result, cu=[5, 2], nv=[5, 2])
