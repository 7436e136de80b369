# SPDX-License-Identifier: Apache-2.0
"""pytest --cudaguard-deny=context under NO_CONTEXT, with the fake driver of eight GPUs: a test that
only queries passes, and one that makes a context fails. The control is VALIDATE without the plug-in,
under which the driver makes the contexts."""

import os

import pytest

from support import box, fixtures, harness, pytest_runs

DENY = (*pytest_runs.PLUGIN, "--cudaguard-deny=context")
LIBRARIES = ":".join(os.path.join(harness.FAKES, name) for name in ("lazy", "runtime"))
NO_CONTEXT = {**box.environment(policy="NO_CONTEXT"), "LD_LIBRARY_PATH": LIBRARIES}
COMMAND = "cudaguard run --policy NO_CONTEXT -- pytest --cudaguard --cudaguard-deny=context"
SUITE = """
    import ctypes, os, subprocess, sys
    import pytest

    QUERY = '''
    import ctypes
    cuda = ctypes.CDLL("libcuda.so.1")
    count = ctypes.c_int()
    assert (cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count)), count.value) == (0, 0, 8)
    '''
    CONTEXT = QUERY + "cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0)\\n"

    def query():
        exec(QUERY, globals())

    def context():
        query()
        cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0)

    def primary():
        query()
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)

    def child(text):
        subprocess.run([sys.executable, "-c", text], check=True)

    def fork(function):
        pid = os.fork()
        if pid == 0:
            function()
            os._exit(0)
        os.waitpid(pid, 0)

    def runtime():
        assert ctypes.CDLL("libcudart.so.12").cudaDeviceSynchronize() in (0, 46)

    def test_fork(): fork(context)
    def test_query(): query()
    def test_context(): context()
    def test_again(): context()
    def test_primary(): primary()
    def test_runtime(): runtime()
    def test_between(): query()
    def test_query_child(): child(QUERY)
    def test_child(): child(CONTEXT)
    @pytest.mark.cudaguard_allow
    def test_allowed(): context()
"""
FAIL = {"fork", "context", "again", "primary", "runtime", "child"}
PASS = {"query", "between", "query_child", "allowed"}


LINE = 1 + SUITE.split("\n").index("        cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0)")


make_case = fixtures.lent("case", pytest_runs.Case)


def run(case, *arguments, plugin=DENY, env=NO_CONTEXT):
    return case.pytest(*arguments, plugin=plugin, env=env, world="none")


def contexts(case, **more):
    """The run of the suite, and how many contexts the fake driver made."""
    case.make("test_all.py", SUITE)
    holders = case.path("contexts")
    os.makedirs(holders, exist_ok=True)
    env = {"KEPT_CONTEXTS": holders, **NO_CONTEXT, **more.pop("env", {})}
    return run(case, env=env, **more), len(os.listdir(holders))


def test_only_tests_that_make_a_context_fail(case):
    """The first test that makes one does not hide it from the others."""
    control, made = contexts(case, env={"CUDAGUARD_POLICY": "VALIDATE"},
                             plugin=pytest_runs.PLUGIN[:2])
    assert case.outcomes(control) == {"passed": FAIL | PASS}, str(control)
    assert made > 0, str(control)
    for holder in os.listdir(case.path("contexts")):
        os.unlink(case.path("contexts", holder))
    result, made = contexts(case)
    assert case.outcomes(result) == {"passed": PASS, "failure": FAIL}, str(result)
    assert (result.rc, made) == (1, 0), str(result)
    assert "cudaguard: a test that asks for a CUDA context fails" in result.out, str(result)
    for name in ("fork", "context", "again"):
        text = result.cases[name][1]
        assert "A CUDA context was asked for by test_all.py:%d through ctypes/cffi (cuCtxCreate_v2)" % (
            LINE) in text, str(result)
        assert "CUDA was asked" not in text, str(result)
    assert "(cuDevicePrimaryCtxRetain)" in result.cases["primary"][1], str(result)
    assert "(cuDevicePrimaryCtxRetain)" in result.cases["runtime"][1], str(result)


IN_VAIN = """
    import ctypes, os, subprocess, sys
    import pytest

    ASK = '''
    import ctypes
    try:
        ctypes.CDLL("libcuda.so.1").cuInit(0)
    except OSError:
        pass
    '''
    POLICY = os.environ["POLICY_OF_CHILDREN"]

    def child():
        subprocess.run([sys.executable, "-c", ASK], check=True,
                       env={**os.environ, "CUDAGUARD_POLICY": POLICY})

    def test_ask(): child()
    @pytest.mark.cudaguard_allow
    def test_allowed(): child()
    def test_idle(): pass
    def test_own(): exec(ASK)
"""
ASKS = {"ask", "own"}
NO_GPU = {**NO_CONTEXT, "POLICY_OF_CHILDREN": "NO_CONTEXT", "CUDA_VISIBLE_DEVICES": "-1"}


@pytest.mark.parametrize(("more", "failing", "arguments"), [
    ({"CUDA_VISIBLE_DEVICES": "-1"}, ASKS, []), ({"LD_LIBRARY_PATH": ""}, ASKS, []),
    ({"POLICY_OF_CHILDREN": "FORCE_CPU"}, {"ask"}, []), ({}, set(), []),
    pytest.param({"CUDA_VISIBLE_DEVICES": "-1"}, ASKS, ["-p", "forked"], marks=pytest.mark.all),
    pytest.param({"CUDA_VISIBLE_DEVICES": "-1"}, ASKS, ["-n", "2"], marks=pytest.mark.all)],
    ids=["no GPU", "no driver", "children without CUDA", "control", "forked", "xdist"])
def test_test_that_gets_no_cuda_proves_nothing(case, more, failing, arguments):
    """As under `verify --deny=context`, whose result is then INCOMPLETE. The short summary begins
    with it, not with a query, which may be asked."""
    case.make("test_all.py", IN_VAIN)
    case.make("forked.py", pytest_runs.FORKED)
    result = run(case, *arguments, env={"POLICY_OF_CHILDREN": "NO_CONTEXT", **NO_CONTEXT, **more})
    outcomes = {"passed": {"allowed", "idle"} | ASKS - failing}
    outcomes.update({"failure": failing} if failing else {})
    assert case.outcomes(result) == outcomes, str(result)
    assert "after test_all.py" not in result.out, str(result)
    for name in failing:
        first = result.cases[name][1].strip().split("\n")[0]
        assert "got no CUDA (" in first and "), so it could make no context" in first, str(result)


@pytest.mark.all  # several pytests
def test_import_without_cuda_is_one_error_in_all_workers(case):
    case.make("test_all.py", IN_VAIN.replace("    def test_own", "    exec(ASK)\n    def test_own"))
    result = run(case, "-n", "2", env=NO_GPU)
    assert " 1 error" in result.out, str(result)


def test_fixture_gives_an_allowed_test_its_attempts(case):
    case.make("test_all.py", IN_VAIN + """
    @pytest.fixture
    def asked(): child()
    @pytest.mark.cudaguard_allow
    def test_reads(asked, cudaguard_attempts): assert len(cudaguard_attempts) >= 0
""")
    result = run(case, "-k", "reads", env=NO_GPU)
    assert case.outcomes(result) == {"passed": {"reads"}}, str(result)


@pytest.mark.parametrize("options", [(), ("--cudaguard-allow=line:later.py:3",)], ids=["", "allowed"])
def test_success_after_a_failure_is_no_doubt(case, options):
    """NVML fails first. Control: a process in which no cuInit follows. The allowed code's counts,
    too."""
    case.make("later.py", "import ctypes\ncuda = ctypes.CDLL('libcuda.so.1')\ncuda.cuInit(0)\n")
    case.make("test_all.py", """
    import subprocess, sys
    FAILS = '''
    import ctypes, os
    os.environ["CG_SICK"] = "100"
    assert ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2() == 9
    del os.environ["CG_SICK"]
    '''
    def child(more): subprocess.run([sys.executable, "-c", FAILS + more], check=True, cwd=%r)
    def test_later(): child("import later\\n")
    def test_never(): child("")
""" % case.path("."))
    result = run(case, *options)
    assert case.outcomes(result) == {"passed": {"later"}, "failure": {"never"}}, str(result)


def test_later_process_with_the_same_id_answers_for_itself_alone(case):
    """Process ids are reused, and those of PID namespaces are often the same."""
    case.make("test_all.py", """
    import json, os
    def process(since, result):
        one = {"v": 1, "ts": 1.5, "pid": 7, "api": "cuInit", "asked": "cuda", "event": "init",
               "decision": "allow", "result": result, "library": "x", "since": since}
        with open(os.environ["CUDAGUARD_REPORT"], "a") as stream:
            stream.write(json.dumps(one, separators=(",", ":")) + "\\n")
    def test_same(): process(1, 100); process(1, 0)
    def test_reused(): process(2, 100); process(3, 0)
    def test_later(): process(4, 100)
""")
    result = run(case)
    assert case.outcomes(result) == {"passed": {"same"}, "failure": {"reused", "later"}}, str(result)
    assert "process 7 got no CUDA (cuInit)" in result.cases["reused"][1], str(result)


def test_allowed_line_passes(case):
    case.make("test_all.py", SUITE)
    result = run(case, "--cudaguard-allow=line:test_all.py:%d" % LINE)
    assert case.outcomes(result)["failure"] == {"primary", "runtime", "child"}, str(result)


@pytest.mark.parametrize(("policy", "options", "text"), [
    ("FORCE_CPU", ["--cudaguard-deny=context"],
     "--cudaguard: --cudaguard-deny=context needs the policy NO_CONTEXT; start the tests with " + COMMAND),
    ("VALIDATE", ["--cudaguard-deny=context"], "start the tests with " + COMMAND),
    ("NO_CONTEXT", [], "--cudaguard: queries are allowed in this process: its policy is NO_CONTEXT"),
    ("NO_CONTEXT", ["--cudaguard-deny=context,init"],
     "--cudaguard-deny: context and init contradict each other; leave one out"),
    ("NO_CONTEXT", ["--cudaguard-deny=opencl,context"],
     "--cudaguard-deny: context and opencl contradict each other; leave one out")])
def test_policy_that_cannot_tell_contexts_from_queries_is_refused(case, policy, options, text):
    case.make("test_all.py", "def test_1(): pass\n")
    result = run(case, *options, plugin=pytest_runs.PLUGIN, env=box.environment(policy=policy))
    assert result.rc == 4, str(result)
    assert text in result.err + result.out, str(result)


def test_marker_without_the_option_for_all(case):
    case.make("test_all.py", SUITE + """
    @pytest.mark.no_cuda
    def test_marked(): context()
    @pytest.mark.no_cuda
    def test_marked_query(): query()
    def test_listed(cudaguard_attempts):
        context()
        assert [one.kind for one in cudaguard_attempts] == ["context"]  # cuInit came before
""")
    result = run(case, "--cudaguard-deny=context", plugin=pytest_runs.PLUGIN[:2])
    assert case.outcomes(result) == {
        "passed": FAIL | PASS | {"marked_query", "listed"}, "failure": {"marked"}}, str(result)
    assert "A CUDA context was asked for by" in result.cases["marked"][1], str(result)
