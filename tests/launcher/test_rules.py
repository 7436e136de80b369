# SPDX-License-Identifier: Apache-2.0
"""`run --rule` with a router and its workers, and with runs inside runs."""

import os
import shutil

import pytest

from support import fixtures, harness, launcher, messages

RUN = [launcher.LAUNCHER, "run"]
# The router asks, and then starts the worker that its arguments name.
ROUTER = """import ctypes, subprocess, sys
print("router=%d" % ctypes.CDLL("libcuda.so.1").cuInit(0), flush=True)
sys.exit(subprocess.call(sys.argv[1:]))
"""
PYTHON = "/usr/bin/python3"


class Case(launcher.Case):
    def setUp(self):
        super().setUp()
        self.router = self.make("router.py", ROUTER)
        # A program with this name; it is not the interpreter of a script.
        steps = os.path.join(harness.BUILD, "tests", "guest", "steps")
        self.worker = shutil.copy(steps, self.path("worker-7"))

    def launch(self, *options, words=(), **run):
        return harness.run([*RUN, *options, "--", *words, PYTHON, self.router, self.worker, "ask"],
                           guard=False, trace=False, **run)


make_case = fixtures.lent("case", Case)


def test_control_without_a_rule_both_or_none_reach_the_driver(case):
    assert case.launch("--policy", "OFF").answers == {"router": "0", "cuInit": "0"}
    assert case.launch().answers == {"router": "100", "cuInit": "100"}


@pytest.mark.parametrize("rule", ["VALIDATE program=worker-*", "VALIDATE program=*/worker-7",
                                  'CLAMP program=worker* args="*-7 ask"', "OFF program=worker-?"])
def test_only_the_worker_reaches_the_driver(case, rule):
    result = case.launch("--rule", rule)
    assert result.answers == {"router": "100", "cuInit": "0"}, str(result)
    assert result.init_calls().count("cuInit") == 1, str(result)
    # The message advises what lifts it.
    assert len(messages.find(result.err, "no_cuda", remedy="cudaguard run --policy OFF")) == 1


def test_only_the_router_is_refused(case):
    rule = 'FORCE_CPU args="*router*"'
    result = case.launch("--policy", "VALIDATE", "--rule", rule)
    # The worker's command line has no "router".
    assert result.answers == {"router": "100", "cuInit": "0"}, str(result)
    cause = messages.text("rule", rule=rule)
    assert len(messages.find(result.err, "no_cuda", cause=cause)) == 1, str(result)


def test_rule_refuses_although_the_environment_says_off(case):
    said = "cudaguard: CUDAGUARD_POLICY=OFF in the environment: %s (--cpu overrides it)"
    result = case.launch(env={"CUDAGUARD_POLICY": "OFF"})  # the control
    assert result.answers == {"router": "0", "cuInit": "0"}, str(result)
    assert said % "nothing is guarded" in result.err, str(result)
    result = case.launch("--rule", "FORCE_CPU program=worker*", env={"CUDAGUARD_POLICY": "OFF"})
    assert result.answers == {"router": "0", "cuInit": "100"}, str(result)
    assert said % "only rules apply" in result.err, str(result)


@pytest.mark.parametrize("outer", [["--cpu"], [], ["--rule", "VALIDATE program=other"],
                                   ["--gpus", "1"], ["--policy=OFF", "--rule", "FORCE_CPU"]])
def test_rule_never_widens_an_outer_run(case, outer):
    inner = [*RUN, "--rule", "OFF", "--rule", "VALIDATE gpus=0 program=worker*", "--"]
    control = case.launch("--policy", "VALIDATE", words=inner)
    assert control.answers["cuInit"] == "0", str(control)
    result = case.launch(*outer, words=inner)
    assert result.answers == {"router": "100", "cuInit": "100"}, str(result)
    # NVML is asked for the UUIDs of a list.
    assert "cuInit" not in result.fake_calls, str(result)


@pytest.mark.parametrize(("outer", "router", "worker"), [
    (["--policy=VALIDATE", "--children=cpu"], "0", "100"), (["--children=gpu"], "100", "0")])
def test_rule_keeps_the_roles_of_an_outer_run(case, outer, router, worker):
    """The inner run becomes the router, which is the outer one's program. OFF knows no roles."""
    for rule in ("VALIDATE", "OFF"):
        result = case.launch(*outer, words=[*RUN, "--rule", rule, "--"])
        assert result.answers == {"router": router, "cuInit": worker}, str(result)
        assert result.fake_calls.count("cuInit") == 1, str(result)
    # A run of the child is no program of the outer run, either.
    inner = [*RUN, "--rule", "OFF", "--", PYTHON, case.router, case.worker, "ask"]
    result = harness.run([*RUN, *outer, "--", PYTHON, case.router, *inner], guard=False, trace=False)
    assert result.answers == {"router": worker, "cuInit": worker}, str(result)
    assert result.out.startswith("router=%s\n" % router), str(result)


@pytest.mark.parametrize("outer", [["--cpu"], ["--policy=VALIDATE", "--children=cpu"]])
def test_children_gpu_is_an_option_that_widens(case, outer):
    """As --gpus does, --children=gpu allows CUDA inside an outer run that does not."""
    start = [PYTHON, case.router, *RUN, "--children=gpu", "--", PYTHON, case.router, case.worker,
             "ask"]
    result = harness.run([*RUN, *outer, "--", *start], guard=False, trace=False)
    assert result.answers == {"router": "100", "cuInit": "0"}, str(result)


def test_linked_program_obeys_its_rule(case):
    """ld.so maps the driver before the guard can act, and run preloads what answers in its place."""
    program = harness.program("linked_cuda")
    for rule, wanted in (("VALIDATE program=linked_cuda", "0"), ("VALIDATE program=other", "100")):
        words = [*RUN, "--rule", rule, "--", program]
        result = harness.run(words, guard=False, trace=False)
        assert result.answers["cuInit"] == wanted, str(result)
        assert bool(result.init_calls()) == (wanted == "0"), str(result)


@pytest.mark.parametrize("cpu", [
    {"CUDAGUARD_RULES": "FORCE_CPU program=linked_middle"},
    {"CUDAGUARD_CHILDREN": "FORCE_CPU", "CUDAGUARD_ROOT": "1"}])  # it is not process 1
def test_driver_of_preloaded_proxies_is_refused_by_any_handle(cpu):
    """run preloads the proxies into a linked program, and its children inherit them. They are linked
    to the driver, in which a look-up by a handle would find the driver's own cuInit."""
    words = [harness.program("linked_middle"), "handle", harness.program("middle.so")]
    proxies = [os.path.join(harness.NULL_DRIVER_DIR, "libcudaguard-%s.so" % name)
               for name in ("driver", "nvml")]
    for env, answer in (({}, "0"), (cpu, "100")):
        result = harness.run(words, guard=False, preload=[harness.GUARD, *proxies], trace=False,
                             env={"CUDAGUARD_POLICY": "VALIDATE", **env})
        assert result.answers["cuInit"] == answer, str(result)
        assert ("cuInit" in result.fake_calls) == (answer == "0"), str(result)


def test_verify_knows_no_rule(case):
    env = {"CUDAGUARD_RULES": "VALIDATE"}
    result = harness.run([launcher.LAUNCHER, "verify", "--fence=off", "--", case.worker, "ask"],
                         guard=False, trace=False, env=env)
    assert result.answers["cuInit"] == "100", str(result)
    assert result.init_calls() == [], str(result)


@pytest.mark.parametrize("log", [None, "error", "off"])
def test_rule_that_matches_no_program_gets_a_warning(case, log):
    rule = "FORCE_CPU program=/opt/none"
    result = case.launch("--policy", "VALIDATE", "--rule", rule, *([f"--log={log}"] if log else []))
    assert result.answers == {"router": "0", "cuInit": "0"}, str(result)
    warning = 'cudaguard: --rule "%s": program="/opt/none" does not exist\n' % rule
    assert result.err == ("" if log else warning)
