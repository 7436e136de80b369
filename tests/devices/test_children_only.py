# SPDX-License-Identifier: Apache-2.0
"""With `run --children=gpu` and CUDAGUARD_CHILDREN=ONLY, the first process gets no GPU and its
descendants do: forked, spawned, forked and replaced."""

import sys

import pytest

from devices.test_children import FIRST, LABELS, SEE, WORKERS, check
from support import box, harness, launcher, messages, policies

ONLY = {"CUDAGUARD_CHILDREN": "ONLY"}
RUN = [launcher.LAUNCHER, "run", "--children=gpu"]
GPUS = dict.fromkeys(("cu", "nv", "rt12"), [1, 2])
NOTHING = {"cu": "!100", "rt12": "!100", "nv": "!9"}
# Each worker calls cuInit. The parent asks before and after it starts them.
POOL = """import ctypes, multiprocessing, sys


def ask(_):
    return ctypes.CDLL("libcuda.so.1").cuInit(0)


if __name__ == "__main__":
    before = [ask(0)] if sys.argv[2] == "asks" else []
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        print("workers=%d" % max(pool.map(ask, range(4), 1)), flush=True)
    print("parent=%d" % max(before + [ask(0)]))
"""


def run(*steps, options=("--gpus", "1,2"), **more):
    return harness.run([*RUN, *options, "--", box.program("open"), *steps], world="none",
                       guard=False, trace=False, env=box.environment(**more))


def test_control_without_the_option_all_or_none_have_the_gpus(case):
    for options, wanted in ((["--gpus", "1,2"], GPUS), (["--cpu"], NOTHING)):
        result = harness.run([launcher.LAUNCHER, "run", *options, "--", box.program("open"),
                              *WORKERS, *SEE], world="none", guard=False, trace=False,
                             env=box.environment())
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


def test_option_alone_allows_all_gpus(case):
    result = run("cu.see", "spawn=s", "cu.see", "end", options=())
    assert box.seen(result.answers["s.cu.see"]) == box.FASTEST, str(result)
    assert box.seen(result.answers["cu.see"]) == "!100", str(result)


@pytest.mark.parametrize("name", ["cuda", "nvml", "runtime13", "mixed"])
def test_linked_first_process(name):
    """ld.so maps the driver into the first process, which must not initialise it."""
    step = {"nvml": "nv.see", "runtime13": "rt.see"}.get(name, "cu.see")
    steps = [step, "fork=f", step, "end", "spawn=s", step, "end", step]
    words = [box.program(name), *steps]
    result = harness.run([*RUN, "--gpus", "1,2", "--", *words], world="none", guard=False,
                         trace=False, env=box.environment())
    for key, wanted in ((step, ("!100", "!9")), ("f." + step, [1, 2]), ("s." + step, [1, 2])):
        seen = box.seen(result.answers[key])
        assert seen in wanted or seen == wanted, "%s\n%s" % (key, result)


@pytest.mark.parametrize("first", ["1", "4194304", "abc", "0"])
def test_wrong_first_process_gives_no_process_more(case, first):
    """If no process is the first one, no process is known to be a descendant."""
    result = box.run(WORKERS + SEE, allow="1,2", CUDAGUARD_ROOT=first, **ONLY)
    if first in ("abc", "0"):
        check(case, result, NOTHING, NOTHING)
    else:  # another process is
        check(case, result, GPUS, GPUS)


def test_missing_first_process_gives_no_process_a_gpu(case):
    result = box.run(WORKERS + SEE, allow="1,2", **ONLY)
    check(case, result, NOTHING, NOTHING)
    assert len(messages.find(result.err, "first_missing")) >= 1, str(result)


def test_opencl_is_refused_in_the_first_process(case):
    opened = ["lib.open=libnvidia-opencl.so.1"]
    result = run(*opened)
    assert len(messages.find(result.err, "no_opencl")) == 1, str(result)


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


@pytest.mark.parametrize("first", ["asks", "waits"])
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_pool_of_multiprocessing(tmp_path, method, first):
    program = tmp_path / "pool.py"
    program.write_text(POOL, encoding="utf-8")
    words = [sys.executable, str(program), method, first]
    control = harness.run([launcher.LAUNCHER, "run", "--policy", "VALIDATE", "--", *words],
                          guard=False, trace=False)
    # A forked child cannot use CUDA if its parent has initialised it.
    workers = "3" if (method, first) == ("fork", "asks") else "0"
    assert control.answers == {"workers": workers, "parent": "0"}, str(control)
    result = harness.run([*RUN, "--", *words], guard=False)
    assert result.answers == {"workers": "0", "parent": "100"}, str(result)
    # NVIDIA's own driver would have opened a device in the workers alone.
    assert result.device_opens == [], str(result)


def test_fence_contradicts_the_option():
    result = harness.run([launcher.LAUNCHER, "run", "--children=gpu", "--fence", "--", "true"],
                         guard=False, trace=False)
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
    result = harness.run(words, world="none", guard=False, trace=False, env=box.environment())
    assert result.answers["cu.context"].split(":")[0] == "0", str(result)
    assert box.seen(result.answers["cu.see"]) == gpus, str(result)
