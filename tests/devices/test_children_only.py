# SPDX-License-Identifier: Apache-2.0
"""With `run --children=gpu` and CUDAGUARD_CHILDREN=ONLY, the first process gets no GPU and its
descendants do: forked, spawned, forked and replaced."""

import pytest

from devices.test_children import FIRST, LABELS, SEE, WORKERS, check
from support import box, launcher, policies

ONLY = {"CUDAGUARD_CHILDREN": "ONLY"}
RUN = ["--children=gpu", "--gpus", "1,2"]
GPUS = dict.fromkeys(("cu", "nv", "rt12"), [1, 2])
NOTHING = {"cu": "!100", "rt12": "!100", "nv": "!9"}


def run(*steps, name="open"):
    return box.launch(RUN, steps, name)


def test_control_without_the_option_all_or_none_have_the_gpus(case):
    for options, wanted in ((["--gpus", "1,2"], GPUS), (["--cpu"], NOTHING)):
        result = box.launch(options, [*WORKERS, *SEE])
        check(case, result, wanted, wanted)


@pytest.mark.parametrize("before", [[], ["lib.open=libm.so.6"], ["cu.init"], SEE],
                         ids=["first", "after dlopen", "after cuInit", "after all"])
def test_descendants_have_the_gpus_and_the_first_process_has_none(case, before):
    """It does not matter whether that has loaded a library or asked for CUDA before."""
    result = run(*before, *WORKERS, *SEE)
    assert result.rc == 0, str(result)
    check(case, result, NOTHING, GPUS)
    assert result.fake_calls.count("cuInit:initialised") == len(LABELS), str(result)


def test_variables_alone_do_the_same(case):
    for policy, allow in ((name, "1,2") for name in (*policies.ALLOWING, None)):
        result = box.run(FIRST + WORKERS + SEE, policy=policy, allow=allow, **ONLY)
        check(case, result, NOTHING, GPUS)


def test_message_names_the_option_and_what_lifts_it(case):
    result = run("fork=f", "cu.init", "end", "cu.init")
    case.message(result, "no_cuda", cause="--children=gpu", asked_by="open",
                 remedy="cudaguard run --policy VALIDATE")
    result = box.run([*FIRST, "cu.init"], policy="VALIDATE", **ONLY)
    case.message(result, "no_cuda", cause="CUDAGUARD_CHILDREN=ONLY", asked_by="open",
                 remedy="CUDAGUARD_CHILDREN=")


@pytest.mark.parametrize("name", ["cuda", "nvml", "runtime13", "mixed"])
def test_linked_first_process(name):
    """ld.so maps the driver into the first process, which must not initialise it."""
    step = {"nvml": "nv.see", "runtime13": "rt.see"}.get(name, "cu.see")
    result = run(step, "fork=f", step, "end", "spawn=s", step, "end", step, name=name)
    for key, wanted in ((step, ("!100", "!9")), ("f." + step, [1, 2]), ("s." + step, [1, 2])):
        seen = box.seen(result.answers[key])
        assert seen in wanted or seen == wanted, "%s\n%s" % (key, result)


def test_limit_deep_bound_plugin_of_the_first_process_calls_the_driver(case):
    """The driver then finds no GPU. The first process's children still do."""
    steps = ["deep.cu.see", "fork=f", "deep.cu.see", "end", "spawn=s", "deep.cu.see", "end"]
    result = box.run(FIRST + steps, allow="1,2", **ONLY)
    assert box.seen(result.answers["deep.cu.see"]) == "!100", str(result)
    assert box.seen(result.answers["s.deep.cu.see"]) == [1, 2], str(result)
    assert "cuInit" in result.fake_calls, str(result)


def test_first_process_that_becomes_another_program_stays_the_first_process(case):
    result = run("exec", "cu.see", "spawn=s", "cu.see", "end")
    assert box.seen(result.answers["cu.see"]) == "!100", str(result)
    assert box.seen(result.answers["s.cu.see"]) == [1, 2], str(result)


def test_fence_contradicts_the_option():
    result = box.launch(["--children=gpu", "--fence"], ())
    assert (result.rc, result.err) == (
        125, "cudaguard: --fence and --children=gpu contradict each other; leave one out\n")


@pytest.mark.parametrize("who", ["gpu", "contexts"])
@pytest.mark.parametrize(("options", "gpus"), [
    ([], [1, 2]), (["--policy", "VALIDATE"], [1, 2]), (["--gpus", "2"], [2])])
def test_inner_run_of_a_worker_keeps_the_gpus(who, options, gpus):
    """It stays a descendant of the outer first process. A router starts its workers in this way."""
    inner = [launcher.LAUNCHER, "run", *options, "--", box.program("open"), "cu.see", "cu.context=v2,0"]
    see = "%s; %s" % (" ".join(inner), "exit $?")
    words = [launcher.LAUNCHER, "run", "--children", who, "--gpus", "1,2", "--", "sh", "-c", see]
    result = box.start(words)
    assert result.answers["cu.context"].split(":")[0] == "0", str(result)
    assert box.seen(result.answers["cu.see"]) == gpus, str(result)
