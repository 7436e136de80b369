# SPDX-License-Identifier: Apache-2.0
"""With CUDAGUARD_CHILDREN=FORCE_CPU, the first process keeps the GPUs and its children get none."""

import os
import shlex

import pytest

from support import box, harness, messages

SEE = ["cu.see", "nv.see", "rt12.see"]
CPU = {"CUDAGUARD_CHILDREN": "FORCE_CPU"}
# Workers of every kind: forked, spawned, forked and replaced, and a worker's worker.
WORKERS = (["fork=f"] + SEE + ["end", "spawn=s"] + SEE + ["end"] +
           ["fork=x", "exec", "label", "x"] + SEE + ["end"] +
           ["spawn=ss", "spawn=deep"] + SEE + ["end", "end"] +
           ["fork=ff", "fork=deeper"] + SEE + ["end", "end"])
# The process sets CUDAGUARD_ROOT to its own id and executes a program, as a launcher does.
FIRST = ["setpid=CUDAGUARD_ROOT", "exec"]
LABELS = ("f", "s", "x", "deep", "deeper")


def check(case, result, first, workers):
    for label in LABELS:
        for key, wanted in workers.items():
            assert box.seen(
                result.answers["%s.%s.see" %
                               (label, key)]) == wanted, "%s of %s\n%s" % (key, label, result)
    case.sees(result, **first)


def test_control_without_the_variable_every_worker_has_the_gpus(case):
    """Every worker initialises a driver of its own."""
    result = box.run(WORKERS + SEE, allow="1,2")
    case.silent(result)
    check(case, result, dict.fromkeys(("cu", "nv", "rt12"), [1, 2]),
          dict.fromkeys(("cu", "nv", "rt12"), [1, 2]))
    assert result.fake_calls.count("cuInit:initialised") == 6, str(result)


NOTHING = {"cu": "!100", "rt12": "!100", "nv": "!9"}


@pytest.mark.parametrize(("policy", "allow", "gpus"), [("VALIDATE", "1,2", [1, 2]),
                                                       ("CLAMP", "2", [2]), (None, "1", [1]),
                                                       ("VALIDATE", None, box.FASTEST)])
def test_first_process_keeps_the_gpus_and_its_children_have_none(case, policy, allow, gpus):
    result = box.run(FIRST + WORKERS + SEE, policy=policy,
                     allow=allow, **CPU)
    assert result.rc == 0, str(result)
    check(case, result, {"cu": gpus, "rt12": gpus, "nv": gpus if allow else box.ALL}, NOTHING)
    assert result.fake_calls.count("cuInit:initialised") == 1, str(result)


@pytest.mark.parametrize("steps",
                         [["spawn=s", "cu.init", "end"], ["fork=f", "cu.init", "end"],
                          ["spawn=s", "lib.open=libm.so.6", "fork=f", "cu.init", "end", "end"]])
def test_message_names_the_process_that_has_the_gpu(case, steps):
    """The refused child may also be the child of a fork server."""
    result = box.run(FIRST + ["pid"] + steps + ["cu.init"], allow="1,2", **CPU)
    assert result.answers["cu.init"] == "0", str(result)
    case.message(result, "no_cuda", cause="CUDAGUARD_CHILDREN=FORCE_CPU",
                 first=result.answers["pid"], asked_by="open",
                 remedy="CUDAGUARD_CHILDREN=")


def test_first_process_may_initialise_before_its_workers(case):
    """There is no error 3 and no message about forks."""
    result = box.run(FIRST + SEE + WORKERS, allow="1,2", **CPU)
    check(case, result, dict.fromkeys(("cu", "nv", "rt12"), [1, 2]), {"cu": "!100", "nv": "!9"})
    assert messages.find(result.err, "fork") == [], str(result)


def test_first_process_keeps_the_gpus_in_threads_and_after_exec(case):
    """The process executes another program, and it starts threads."""
    result = box.run(FIRST + ["exec", "label", "e", "thread=t"] + SEE +
                     ["end"] + SEE, allow="1,2", **CPU)
    assert box.seen(result.answers["e.cu.see"]) == [1, 2], str(result)
    assert box.seen(result.answers["t.cu.see"]) == [1, 2], str(result)
    case.silent(result)


@pytest.mark.parametrize(("name", "steps"), [("cuda", ["cu.see"]), ("nvml", ["nv.see"]),
                                             ("runtime13", ["rt.see"]),
                                             ("mixed", ["rt.see", "nv.see", "cu.see"])])
def test_children_of_linked_programs_get_no_gpu(name, steps):
    blocks = ["fork=f"] + steps + ["end", "spawn=s"] + steps + ["end"] + steps
    result = box.run(FIRST + blocks, name, allow="1,2",
                     **CPU)
    for step in steps:
        assert box.seen(result.answers[step]) == [1, 2], str(result)
        for label in ("f.", "s."):
            assert box.seen(result.answers[label + step]) in ("!100", "!9"), str(result)


RECIPE = "sh -c 'CUDAGUARD_ROOT=$$ exec APP'"


@pytest.mark.parametrize(("policy", "allow"), [("VALIDATE", "1,2"), ("CLAMP", None), (None, "1")])
def test_missing_first_process_gives_no_process_a_gpu_and_prints_the_remedy(case, policy, allow):
    result = box.run(WORKERS + SEE, policy=policy, allow=allow, **CPU)
    check(case, result, NOTHING, NOTHING)
    assert result.fake_calls == [], str(result)
    lines = [line for line in box.lines(result) if RECIPE in line]
    assert len({line.split(":")[0] for line in lines}) == len(lines), str(result)
    assert messages.find(lines[0], "first_missing", remedy=RECIPE), str(result)
    assert len(lines[0]) <= 120


def test_changed_title_makes_no_first_process(case):
    """Like setproctitle, the first process changes its title and so wipes what /proc shows of its
    environment. Its spawned workers do not become first processes."""
    result = box.run(["title"] + WORKERS + SEE, allow="1,2", **CPU)
    check(case, result, NOTHING, NOTHING)
    result = box.run(FIRST + ["title"] + WORKERS + SEE, allow="1,2", **CPU)
    check(case, result, dict.fromkeys(("cu", "nv", "rt12"), [1, 2]), NOTHING)


def test_programs_of_a_script_are_first_only_if_the_script_says_so(case):
    """The variable is set for a whole script. CUDAGUARD_ROOT=$$ makes one program of the script
    the first process."""
    see = shlex.join([box.program("open"), "cu.see"])
    env = box.environment(allow="1,2", **CPU)
    result = harness.run(["sh", "-c", see + "; exit $?"], world="none", env=env, trace=False)
    case.sees(result, cu="!100")
    result = harness.run(["sh", "-c", "CUDAGUARD_ROOT=$$ exec " + see], world="none", env=env,
                         trace=False)
    case.sees(result, cu=[1, 2])


def in_a_namespace(case, first, start=()):
    """Returns the GPUs that a child sees if it has the first process's id in its own PID
    namespace. Both are process 1 of a namespace, as in a container."""
    see = lambda label: shlex.join([box.program("open"), "label", label, "cu.see"])  # noqa: E731
    nest = "unshare --pid --fork "
    inner = "%s %s%s; exec %s" % (first, nest, see("child"), see("first"))
    words = ["unshare", "--map-root-user", "--pid", "--fork", *start, "sh", "-c", inner]
    result = harness.run(words, world="none", trace=False, env=box.environment(
        allow=None if start else "1,2", **({} if start else CPU)))
    assert result.rc == 0, str(result)
    case.sees(result, first_cu=[1, 2])
    return box.seen(result.answers["child.cu.see"])


@pytest.mark.needs("process_namespaces")
def test_same_pid_in_another_namespace_is_not_the_first_process(case):
    exact = "export CUDAGUARD_ROOT=$$:$(readlink /proc/self/ns/pid);"
    assert in_a_namespace(case, exact) == "!100"
    launcher = os.path.join(os.path.dirname(harness.LIB), "bin", "cudaguard")
    assert in_a_namespace(case, "",
                          [launcher, "run", "--gpus", "1,2", "--children=cpu", "--"]) == "!100"
    # The process id alone cannot distinguish them, as tests/lab/limits.md says.
    assert in_a_namespace(case, "export CUDAGUARD_ROOT=$$;") == [1, 2]


@pytest.mark.parametrize(("before", "variable", "value"), [
    ([], "CUDAGUARD_ROOT", "1:x"), (FIRST, "CUDAGUARD_CHILDREN", "ONLYY")])
def test_bad_value_is_reported_and_gives_no_process_a_gpu(case, before, variable, value):
    """The user may have meant ONLY, so the first process gets none either. decision_test.cpp has
    more values."""
    result = box.run(before + WORKERS + SEE, allow="1,2", **{**CPU, variable: value})
    check(case, result, NOTHING, NOTHING)
    assert messages.find(result.err, "bad_value", variable=variable, value=value), str(result)
