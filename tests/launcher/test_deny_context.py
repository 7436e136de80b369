# SPDX-License-Identifier: Apache-2.0
"""verify --deny=context on the machine with eight fake GPUs: queries reach the driver and pass, and
whatever makes a context is refused and fails the run. The control is VALIDATE, under which the fake
driver makes the context."""

import json
import os
import sys

import pytest

from support import fixtures, harness, launcher, verified
from support.observed import box

DENY = ["--deny=context"]
QUERIES = ["cu.init", "cu.list", "nv.see", "rt12.see"]
REFUSED = "46"
TRAIN = """import ctypes, os
cuda = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int()
answers = [cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count))]
def make():
    return cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0)
print("answers=%d:%d:%d" % (*answers, count.value), flush=True)
"""
MEMORY = """properties = (ctypes.c_int * 16)(1, 0, 1, 0)  # on device 0
print("made=%d" % cuda.cuMemCreate(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(1 << 21), properties,
                                   ctypes.c_uint64(0)))
"""


class Context(verified.Case):
    def block(self, result, rc, *wanted):
        """The result, which must have these texts. Unlike ends(), the driver was entered."""
        self.assertEqual(result.rc, rc, result)
        word = {0: "PASS", 1: "FAIL", 2: "FAIL", 3: "INCOMPLETE"}[rc]
        block = result.err[result.err.index("cudaguard: " + word):]
        self.assertLessEqual(max(map(len, block.splitlines())), 100, block)
        for text in wanted:
            self.assertIn(text, block)
        return block

    def denied(self, words, options=(), **more):
        return self.verify(words, [*DENY, *options], **more)

    def made(self, words, run):
        """How many contexts the fake driver makes in these runs."""
        holders = self.path("contexts")
        os.makedirs(holders, exist_ok=True)
        before = len(os.listdir(holders))
        result = run(words, env={"KEPT_CONTEXTS": holders})
        return len(os.listdir(holders)) - before, result

    def allowed(self, words, env):
        """The control."""
        return harness.run(words, world="none", trace=False,
                           env=box.environment(policy="VALIDATE", **env))


make_case = fixtures.lent("case", Context)


def test_queries_pass_and_have_the_drivers_answers(case):
    control = box.run(QUERIES, policy="VALIDATE")
    assert box.seen(control.answers["rt12.see"]) == box.FASTEST, str(control)
    result = case.steps(QUERIES, DENY)
    assert result.answers == control.answers, str(result)
    block = case.block(result, 0, "PASS: no use of a CUDA context (1 process checked)\n",
                       "  CUDA was asked by 1 process: open (not denied)\n",
                       "  NVML was asked by 1 process: open (not denied)\n")
    assert "in doubt" not in block and "init,nvml" not in block, block


@pytest.mark.parametrize(("name", "steps", "call"), [
    ("open", ["cu.init", "cu.context=v2,1"], "cuCtxCreate_v2 by open"),
    ("open", ["cu.init", "cu.context=v4,1"], "cuCtxCreate_v4 by open"),
    ("open", ["cu.init", "cu.context=primary,0"], "cuDevicePrimaryCtxRetain by open"),
    ("cuda", ["cu.init", "cu.context=primary,0"], "cuDevicePrimaryCtxRetain by cuda"),
    ("open", ["linked.cu.init", "linked.cu.context=v2,0"], "cuCtxCreate_v2 by "),
    ("open", ["rt12.sync"], "cuDevicePrimaryCtxRetain by libcudart.so.12"),
    ("open", ["rt13.set=1"], "cuDevicePrimaryCtxRetain by libcudart.so.13"),
    ("runtime12", ["rt.sync"], "cuDevicePrimaryCtxRetain by libcudart.so.12")])
def test_each_context_is_refused_and_fails(case, name, steps, call):
    """Explicit, primary, and the runtime's implicit one."""
    words = [box.program(name), *steps]
    assert case.made(words, case.allowed)[0] == 1
    count, result = case.made(words, case.denied)
    case.block(result, 1, " asked for a CUDA context, in 1 of 1 process\n", "asked    " + call)
    assert count == 0, str(result)


@pytest.mark.parametrize(("steps", "processes"), [
    (["fork=f", "cu.init", "cu.context=v2,0", "end", "cu.init"], 2),
    (["spawn=s", "cu.init", "cu.context=v2,0", "end", "cu.init"], 2),
    (["cu.init", "spawn=s", "cu.init", "end", "cu.context=v2,0"], 2)])
def test_only_the_process_with_the_context_counts(case, steps, processes):
    words = [box.program("open"), *steps]
    assert case.made(words, case.allowed)[0] == 1
    count, result = case.made(words, case.denied)
    case.block(result, 1, "asked for a CUDA context, in 1 of %d processes\n" % processes,
               "    cuCtxCreate_v2 by open", "  CUDA was asked by 2 processes: ")
    assert count == 0, str(result)


def test_all_outputs_name_the_line_of_the_context(case):
    program = case.make("train.py", TRAIN + "make()\n")
    files = {kind: case.path("result." + kind) for kind in ("json", "junit", "html")}
    options = ["--%s=%s" % item for item in files.items()]
    result = case.denied([sys.executable, program], options)
    assert result.answers["answers"] == "0:0:8", str(result)
    line = "FAIL: 1 line asked for a CUDA context, in 1 of 1 process"
    case.block(result, 1, line, "train.py:6 in make", "cuCtxCreate_v2 by ctypes/cffi",
               "  to accept this: --allow line:train.py:6\n",
               "  CUDA was asked by 1 process: train.py:4 (not denied)\n")
    texts = {}
    for kind, path in files.items():
        with open(path, encoding="utf-8") as stream:
            texts[kind] = stream.read()
    document = json.loads(texts["json"])
    case.validates(document, "launcher", "print", "verify.schema.json")
    assert (document["verdict"], document["exit_code"], document["deny"]) == (
        "fail", 1, ["context"]), texts["json"]
    assert document["result"] == line, texts["json"]
    fails = {place["line"]: (place["asked"], place["fails"]) for place in document["places"]}
    assert fails == {"train.py:4": (["cuda"], False), "train.py:6": (["context"], True)}, fails
    assert 'name="no process asks for a CUDA context"' in texts["junit"]
    assert "cudaguard: " + line in texts["junit"]
    assert '"deny":["context"]' in texts["html"] and line in texts["html"]


def test_allowed_line_passes_but_stays_refused(case):
    program = case.make("train.py", TRAIN + "print('made=%d' % make())\n")
    result = case.denied([sys.executable, program], ["--allow=line:train.py:6"])
    case.block(result, 0, "PASS: no use of a CUDA context except in 1 allowed process")
    assert result.answers["made"] == REFUSED, str(result)


def test_all_that_takes_a_gpus_memory_counts_in_a_process_that_allows_itself_contexts(case):
    """The fake driver refuses arguments of zero with 1: a context that fails counts, too."""
    names = sorted(harness.guarded("CONTEXT"))
    steps = ["cu.init", *("cu.zeros=" + name for name in names)]
    words = [launcher.LAUNCHER, "run", "--policy", "VALIDATE", "--", box.program("open"), *steps]
    result = case.denied(words, ["--json", case.path("result.json")])
    assert set(names) <= set(result.fake_calls), str(result)
    case.block(result, 1, "asked for a CUDA context", "by open (its own policy allowed it)")
    with open(case.path("result.json"), encoding="utf-8") as stream:
        calls = json.load(stream)["calls"]
    assert sorted(call["api"] for call in calls if call["asked"] == "context") == names, str(calls)


@pytest.mark.parametrize(("policy", "answer", "count"), [("VALIDATE", "0", 1), ("NO_CONTEXT", REFUSED, 0)])
def test_memory_without_a_context_counts(case, policy, answer, count):
    program = case.make("train.py", TRAIN + MEMORY)
    words = [launcher.LAUNCHER, "run", "--policy", policy, "--", sys.executable, program]
    made, control = case.made(words, case.allowed)
    assert (made, control.answers["made"]) == (count, answer), str(control)
    made, result = case.made(words, case.denied)
    assert (made, result.answers["made"]) == (count, answer), str(result)
    case.block(result, 1, "train.py:9 in <module>", "cuMemCreate by ctypes/cffi")


def test_each_line_with_a_context_needs_its_own_pattern(case):
    """In a process that allows itself contexts: the first one hides no later one on this device."""
    program = case.make("train.py", TRAIN + "make()\n" +
                        "cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0)\n")
    words = [launcher.LAUNCHER, "run", "--policy", "VALIDATE", "--", sys.executable, program]
    result = case.denied(words, ["--allow=line:train.py:6"])
    case.block(result, 1, "FAIL: 1 line asked for a CUDA context", "train.py:9 in <module>")
    case.block(case.denied(words, ["--allow=line:train.py:6", "--allow=line:train.py:9"]), 0)


@pytest.mark.parametrize("env", [
    {"CUDAGUARD_POLICY": "OFF"}, {"CUDAGUARD_POLICY": "VALIDATE"}, {"CUDAGUARD_POLICY": "FORCE_CPU"},
    {"CUDAGUARD_CHILDREN": "FORCE_CPU"}, {"CUDAGUARD_CHILDREN": "ONLY"},
    {"CUDAGUARD_RULES": "FORCE_CPU"}, {"CUDAGUARD_VISIBLE_DEVICES": "2,5"}])
def test_no_variable_changes_what_is_refused(case, env):
    result = case.denied([box.program("open"), "spawn=s", "cu.init", "cu.context=v2,0", "end"],
                         env=env)
    case.block(result, 1, "asked for a CUDA context")
    assert result.answers["s.cu.init"] == "0", str(result)
    assert result.answers["s.cu.context"].split(":")[0] == REFUSED, str(result)


@pytest.mark.parametrize(("inner", "steps", "env", "why"), [
    ([], ["cu.init"], {"LD_LIBRARY_PATH": None}, "found no driver by open"),
    ([], ["cu.init"], {"CUDA_VISIBLE_DEVICES": "-1"}, "found no GPU by open"),
    ([], ["nv.init"], {"CG_SICK": "100"}, "NVML error 9 by open"),
    ([launcher.LAUNCHER, "run", "--cpu", "--"], ["cu.init"], {}, "was refused cuInit by open")])
def test_without_an_answer_of_the_driver_the_result_is_incomplete(case, inner, steps, env, why):
    """A program that finds no GPU does not get as far as to a context, so a PASS would mean
    nothing. One that asks nothing passes everywhere."""
    words = [*inner, box.program("open"), *steps]
    doubt = "got no CUDA (%s), so it could make no context\n" % why
    case.block(case.denied(words, env=env), 3, "INCOMPLETE: no use of a CUDA context seen", doubt)
    case.block(case.denied(words, ["--allow-incomplete"], env=env), 0, doubt)
    block = case.block(case.denied(words, ["--allow=open"], env=env), 0)
    assert "in doubt" not in block, block
    block = case.block(case.denied([*inner, box.program("open")], env=env), 0)
    assert "in doubt" not in block, block


def test_limit_nvml_that_is_not_installed_is_no_doubt(case):
    """tests/lab/limits.md: the guard records no load that fails, and the launcher sees none."""
    result = case.denied([box.program("open"), "nv.init"], env={"box": "no_nvml"})
    assert result.answers["nv.init"] == "-999", str(result)
    assert "in doubt" not in case.block(result, 0)


def test_forked_child_of_a_process_with_cuda_is_no_doubt(case):
    """CUDA does not work there without cudaguard either."""
    steps = ["cu.init", "fork=f", "cu.init", "end"]
    result = case.denied([box.program("open"), *steps])
    assert result.answers["f.cu.init"] == "3", str(result)
    assert "in doubt" not in case.block(result, 0)


def test_nvml_can_be_denied_too(case):
    words = [box.program("open"), "nv.init"]
    case.block(case.verify(words, ["--deny=context,nvml"]), 1, "asked for NVML or a CUDA context",
               "nvmlInit_v2 by open (its own policy allowed it)")
    case.block(case.verify([box.program("open"), "cu.init"], ["--deny=nvml,context"]), 0,
               "PASS: no use of NVML or a CUDA context (1 process checked)")


@pytest.mark.parametrize(("options", "other"), [
    (["--deny=context,init"], "--deny=init"), (["--deny=opencl", "--deny=context"], "--deny=opencl"),
    ([*DENY, "--fence"], "--fence"), ([*DENY, "--fence=devices"], "--fence")])
def test_options_that_would_refuse_the_queries_are_contradictions(case, options, other):
    case.refused(case.start("verify", *options, "true"), 125,
                 "--deny=context and %s contradict each other; leave one out" % other)


def test_without_a_listener_a_context_fails_and_a_query_is_incomplete(case):
    for context, code in (["cu.context=v2,0"], 1), ([], 3):
        case.block(case.denied([box.program("open"), "cu.init", *context], ["--fence=off"]), code,
                   "  in doubt: verify may miss CUDA attempts: --fence=off\n")


@pytest.mark.parametrize(("beacon", "allowed"), [(9, True), (10, False)])
def test_context_of_a_process_that_was_killed_counts(case, beacon, allowed):
    """It has announced the context, and ends before it sends the record."""
    text = ("import ctypes, os\n"
            "ctypes.CDLL(None).syscall(39, ctypes.c_ulong(0x6375646167756172), ctypes.c_ulong(%d), 0, 0)\n"
            "os.kill(os.getpid(), 9)\n" % beacon)
    block = case.block(case.denied([sys.executable, "-c", text]), 1, "cuCtxCreate or the like")
    assert ("its own policy allowed it" in block) == allowed, block


KILLED = """import ctypes, os, time
if os.fork() == 0:
    os.mkfifo("%s/%d" % (os.environ["KEPT_CONTEXTS"], os.getpid()))  # the driver waits for a reader
    cuda = ctypes.CDLL("libcuda.so.1")
    cuda.cuInit(0)
    cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0)
    os._exit(0)
log = os.environ["CG_FAKE_LOG"]
while not (os.path.exists(log) and "cuCtxCreate_v2" in open(log).read()): time.sleep(0.02)
os.kill(int(os.listdir(os.environ["KEPT_CONTEXTS"])[0]), 9)
os.wait()
"""


def test_context_of_a_process_that_was_killed_in_the_driver_counts(case):
    words = [launcher.LAUNCHER, "run", "--policy", "VALIDATE", "--", sys.executable,
             case.make("train.py", KILLED)]
    count, result = case.made(words, case.denied)
    assert count == 1, str(result)
    case.block(result, 1, "asked for a CUDA context", "cuCtxCreate or the like",
               "(its own policy allowed it)")


@pytest.mark.parametrize("inner", [[], [launcher.LAUNCHER, "run", "--policy", "VALIDATE", "--"]])
def test_process_that_ends_in_the_drivers_cuinit_is_in_doubt(case, inner):
    """As one that was killed because the driver hangs: it has not got as far as to a context."""
    env = {"LD_LIBRARY_PATH": os.path.join(harness.FAKES, "sick")}
    words = [*inner, box.program("open"), "cu.init", "pid"]
    case.block(case.denied(words, env={**env, "CG_ANSWER": "0"}), 0)
    result = case.denied(words, env={**env, "CG_SICK": "exits"})
    assert "pid" not in result.answers, str(result)
    case.block(result, 3, "got no CUDA (cuInit or the like by ")


# The program's own seccomp filter refuses getpid with the beacon's number. The fake driver needs the
# other ones, as it compares process ids.
REFUSES_GETPID = ("import struct\n"
                  "libc = ctypes.CDLL(None)\n"
                  "number = 172 if os.uname().machine == 'aarch64' else 39\n"
                  "code = ctypes.create_string_buffer(struct.pack(\n"
                  "    'HBBI' * 6, 0x20, 0, 0, 0, 0x15, 0, 3, number, 0x20, 0, 0, 16,\n"
                  "    0x15, 0, 1, 0x67756172, 6, 0, 0, 0x50001, 6, 0, 0, 0x7fff0000))\n"
                  "assert libc.prctl(38, 1, 0, 0, 0) == 0\n"
                  "assert libc.prctl(22, 2, struct.pack('HxxxxxxP', 6, ctypes.addressof(code))) == 0\n")


@pytest.mark.parametrize("inherits", [False, True])
@pytest.mark.parametrize("inner", [[], [launcher.LAUNCHER, "run", "--policy", "VALIDATE", "--"]])
def test_context_of_a_process_whose_filter_refuses_the_beacon_counts(case, inner, inherits):
    """Also if the process has the filter from its start, so that it cannot announce this either."""
    text = TRAIN + ("" if inherits else REFUSES_GETPID) + "print('made=%d' % make())\n"
    words = [*inner, sys.executable, case.make("train.py", text)]
    if inherits:
        words = [sys.executable, case.make("starts.py", "import ctypes, os, sys\n" + REFUSES_GETPID +
                                           "os.execv(sys.argv[1], sys.argv[1:])\n"), *words]
    assert case.allowed(words, {}).answers["made"] == "0"
    result = case.denied(words)
    case.block(result, 1, "asked for a CUDA context", "cuCtxCreate or the like")
    assert result.answers["made"] == ("0" if inner else REFUSED), str(result)


ASKS = "import ctypes, os\n" + REFUSES_GETPID + "print('made=%d' % ctypes.CDLL('libcuda.so.1').cuInit(0))\n"


@pytest.mark.parametrize(("inner", "text", "env", "answer", "rc", "says"), [
    ([], TRAIN + REFUSES_GETPID + "print('made=%d' % cuda.cuInit(0))\n", {}, "0", 0, "PASS: no use of"),
    # These two have not got as far as to a context.
    ([], ASKS, {"CUDA_VISIBLE_DEVICES": "-1"}, "100", 3, "got no CUDA ("),
    ([launcher.LAUNCHER, "run", "--cpu", "--"], ASKS, {}, "100", 3, "got no CUDA (was refused RM_CONTROL ")])
def test_query_of_a_process_whose_filter_refuses_the_beacon_is_no_context(
        case, inner, text, env, answer, rc, says):
    result = case.denied([*inner, sys.executable, case.make("train.py", text)], env=env)
    assert result.answers["made"] == answer, str(result)
    assert ("in doubt" in case.block(result, rc, says)) == (rc == 3), str(result)
