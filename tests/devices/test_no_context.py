# SPDX-License-Identifier: Apache-2.0
"""Under NO_CONTEXT, a program counts the GPUs and reads what they are, but makes no context and
takes no memory. The control is VALIDATE, under which each call reaches the fake driver."""

import re

import pytest

from devices.test_children import FIRST
from support import box, cuda_headers, harness, messages, policies

CONTEXTS = sorted(harness.guarded("CONTEXT"))
REFUSED = "46"
QUERIES = ["cu.init", "cu.list", "cu.insist=0", "nv.see", "rt12.see"]
MAKE = ["cu.init", "cu.context=v2,0"]
NONE = {"cause": "NO_CONTEXT", "asked_by": "open", "remedy": "CUDAGUARD_POLICY=VALIDATE"}
# The functions that have a device or a location, or whose name says that they make or import
# something, and that have no mark, by the reason that cuda.h gives.
UNMARKED = {
    "a query": (
        "cuArrayGetMemoryRequirements cuCheckpointProcessGetRestoreThreadId cuCtxGetDevice "
        "cuDeviceCanAccessPeer cuDeviceComputeCapability cuDeviceGet "
        "cuDeviceGetAttribute cuDeviceGetByPCIBusId cuDeviceGetCliqueCount cuDeviceGetCliqueInfo "
        "cuDeviceGetDefaultMemPool cuDeviceGetDevResource cuDeviceGetExecAffinitySupport "
        "cuDeviceGetFabricClusterUuid cuDeviceGetGraphMemAttribute "
        "cuDeviceGetHostAtomicCapabilities cuDeviceGetLuid cuDeviceGetMemPool cuDeviceGetName "
        "cuDeviceGetNvSciSyncAttributes cuDeviceGetP2PAtomicCapabilities cuDeviceGetP2PAttribute "
        "cuDeviceGetPCIBusId cuDeviceGetProperties cuDeviceGetTexture1DLinearMaxWidth "
        "cuDeviceGetUuid cuDevicePrimaryCtxGetState cuDeviceTotalMem cuGLGetDevices "
        "cuGraphMemAllocNodeGetParams cuGraphNodeGetParams cuLogicalEndpointGetLimits "
        "cuMemGetAllocationGranularity cuMemGetAllocationPropertiesFromHandle "
        "cuMemGetDefaultMemPool cuMemGetLocationInfo cuMemGetMemPool "
        "cuMipmappedArrayGetMemoryRequirements cuStreamGetDevice cuVDPAUGetDevice cuWGLGetDevice"),
    "gives back or forgets": (
        "cuDeviceGraphMemTrim cuDevicePrimaryCtxRelease cuDevicePrimaryCtxReset "
        "cuDeviceUnregisterAsyncNotification cuLogicalEndpointUnbind cuMulticastUnbind"),
    "sets what a later context or allocation finds": (
        "cuDevicePrimaryCtxSetFlags cuDeviceRegisterAsyncNotification cuDeviceSetGraphMemAttribute "
        "cuDeviceSetMemPool cuMemSetMemPool cuMemPoolSetAccess"),
    "needs memory or an object that another function makes": (
        "cuGraphAddMemAllocNode cuGraphAddNode cuGraphExecNodeSetParams cuGraphNodeSetParams "
        "cuGraphRetainUserObject cuGreenCtxStreamCreate cuLogicalEndpointAddDevice "
        "cuLogicalEndpointBindAddr cuLogicalEndpointBindMem "
        "cuMemGetAccess cuMemPoolGetAccess cuMemPoolImportPointer cuMemRetainAllocationHandle "
        "cuMemSetAccess cuMulticastAddDevice "
        "cuMulticastBindAddr cuMulticastBindMem cuUserObjectRetain"),
    "needs a current context, a stream, or code that is loaded": (
        "cuArray3DCreate cuArrayCreate cuCtxAttach cuEGLStreamConsumerConnect "
        "cuEGLStreamConsumerConnectWithFlags cuEGLStreamProducerConnect cuEventCreate "
        "cuEventCreateFromEGLSync cuFabricCpyBatchAsync cuImportExternalMemory "
        "cuImportExternalSemaphore cuIpcOpenEventHandle cuIpcOpenMemHandle "
        "cuKernelGetAttribute cuKernelSetAttribute cuKernelSetCacheConfig cuLinkCreate cuMemAdvise "
        "cuMemAlloc cuMemAllocAsync cuMemAllocFromPoolAsync cuMemAllocHost cuMemAllocManaged "
        "cuMemAllocPitch cuMemDiscardAndPrefetchBatchAsync cuMemHostAlloc cuMemPrefetchAsync "
        "cuMemPrefetchBatchAsync cuMemcpy3DBatchAsync cuMemcpy3DWithAttributesAsync "
        "cuMemcpyBatchAsync cuMemcpyWithAttributesAsync cuMipmappedArrayCreate "
        "cuStreamAttachMemAsync cuStreamCreate cuStreamCreateWithPriority cuSurfObjectCreate "
        "cuTexObjectCreate cuTexRefCreate"),
    "makes an object or reserves a number in this process's own memory": (
        "cuGraphConditionalHandleCreate cuGraphCreate cuLogicalEndpointIdReserve "
        "cuMemAddressReserve cuTensorMapSetAllocationClass cuUserObjectCreate"),
    "gives memory back to another process, which had it": "cuCheckpointProcessRestore",
}
MAKERS = re.compile("Create|Alloc|Import|Open|Retain|Attach|Restore|Connect|Reserve")


@pytest.mark.parametrize("name", CONTEXTS)
def test_each_function_that_makes_a_context_is_refused(case, name):
    """The fake driver refuses arguments of zero with 1."""
    steps = ["cu.init", "cu.zeros=" + name]
    control = box.run(steps, policy="VALIDATE")
    assert control.answers == {"cu.init": "0", "cu.zeros": "1"}, str(control)
    assert control.fake_calls[-1] == name, str(control)
    result, records = case.run_reported(steps, policy="NO_CONTEXT")
    assert result.answers == {"cu.init": "0", "cu.zeros": REFUSED}, str(result)
    assert name not in result.fake_calls, str(result)
    case.message(result, "no_context", **NONE)
    assert [(record["api"], record["decision"]) for record in records] == [
        ("cuInit", "allow"), (name, "deny")], str(records)


@pytest.mark.parametrize("headers", cuda_headers.SETS)
def test_every_other_function_with_a_device_has_a_reason(case, headers):
    """A device or a location can also be in a struct. A name can say what cuda.h's types do not."""
    functions = cuda_headers.functions(headers)
    if not functions:
        harness.skip(case, "run scripts/fetch-cuda build/_deps all")
    types = cuda_headers.types_with(headers, {"CUdevice", "CUmemLocation"})
    assert {"CUmemAllocationProp", "CUmemPoolProps", "CUDA_MEM_ALLOC_NODE_PARAMS"} <= types
    asked = {name for name, words in functions.items() if words & types or MAKERS.search(name)}
    assert len(asked) > 80
    named = {name for names in UNMARKED.values() for name in names.split()}
    marked = {cuda_headers.VERSION.sub("", name) for name in CONTEXTS}
    assert sorted(asked - marked - named) == []
    if headers == cuda_headers.SETS[-1]:
        assert (named & marked, named - asked) == (set(), set())


def test_function_that_the_driver_lacks_is_not_found():
    """By dlsym and by cuGetProcAddress."""
    steps = ["cu.init", "cu.zeros=cuCtxCreate_v4", "cu.ask=cuCtxCreate,13020,0",
             "cu.where=cuCtxCreate_v4"]
    control = box.run(steps, policy="VALIDATE", box="old")
    assert control.answers["cu.zeros"] == "-999", str(control)
    result = box.run(steps, policy="NO_CONTEXT", box="old")
    assert result.answers == control.answers, str(result)


def test_queries_are_answered_as_under_validate(case):
    control = box.run(QUERIES, policy="VALIDATE")
    assert box.seen(control.answers["rt12.see"]) == box.FASTEST, str(control)
    result = box.run(QUERIES, policy="NO_CONTEXT")
    assert result.answers == control.answers, str(result)
    case.silent(result)


def test_list_of_gpus_holds(case):
    result = box.run(["cu.see", "rt12.see", "nv.see", "cu.context=v2,0"], policy="NO_CONTEXT",
                     allow="5,2")
    case.sees(result, cu=[5, 2], rt12=[5, 2], nv=[5, 2])
    assert result.answers["cu.context"].split(":")[:2] == [REFUSED, "null"], str(result)


@pytest.mark.parametrize("route", ["dlsym", "proc"])
@pytest.mark.parametrize("kind", ["v2", "v3", "v4", "primary"])
def test_context_is_refused_by_every_route(kind, route):
    steps = ["cu.route=" + route, "cu.init", "cu.context=" + kind + ",1"]
    result = box.run(steps, policy="NO_CONTEXT")
    assert result.answers["cu.context"].split(":")[:2] == [REFUSED, "null"], str(result)
    control = box.run(steps, policy="VALIDATE")
    assert control.answers["cu.context"].split(":")[:2] == ["0", "set"], str(control)
    made, = {*control.fake_calls} - {*result.fake_calls}
    assert made in CONTEXTS, str(control)


@pytest.mark.parametrize(("name", "prefix", "preload"), [
    ("cuda", "cu.", ()), ("cuda_now", "cu.", ()), ("cuda", "cu.", box.PROXIES),
    ("open", "linked.cu.", ()), ("open", "linked.cu.", box.PROXIES)])
@pytest.mark.parametrize("kind", ["v2", "v4", "primary"])
def test_context_of_linked_code_is_refused(name, prefix, preload, kind):
    """A program that is linked to the driver, and a plug-in: ld.so binds them without a look-up."""
    steps = [prefix + "init", prefix + "context=" + kind + ",1", prefix + "count"]
    control = box.run(steps, name, policy="VALIDATE", preload=preload)
    assert control.answers[prefix + "context"].split(":")[:2] == ["0", "set"], str(control)
    result = box.run(steps, name, policy="NO_CONTEXT", preload=preload)
    assert result.answers[prefix + "context"].split(":")[:2] == [REFUSED, "null"], str(result)
    assert result.answers[prefix + "count"] == control.answers[prefix + "count"], str(result)
    assert len(messages.find(result.err, "no_context")) == 1, str(result)


@pytest.mark.parametrize(("name", "prefix"), [("open", "rt12."), ("open", "rt13."),
                                              ("runtime12", "rt."), ("runtime13", "rt.")])
def test_runtime_counts_and_makes_no_context(name, prefix):
    counts = ["count", "properties=1", "attribute=1"]
    contexts = ["set=1", "initdevice=1", "sync", "free=0"]
    steps = [prefix + step for step in counts + contexts]
    control = box.run(steps, name, policy="VALIDATE")
    result = box.run(steps, name, policy="NO_CONTEXT")
    for step in counts:
        key = prefix + step.partition("=")[0]
        assert result.answers[key] == control.answers[key], str(result)
    for step in contexts:
        key = prefix + step.partition("=")[0]
        assert (control.answers[key], result.answers[key]) == ("0", REFUSED), str(result)
    assert len(messages.find(result.err, "no_context")) == 1, str(result)


@pytest.mark.parametrize("preload", [(), box.PROXIES])
def test_compute_mode_is_prohibited_for_all_who_ask(preload):
    """docs/devices.md says why. The fakes answer 0, the default mode."""
    steps = ["cu.init", "cu.mode=1", "nv.init", "nv.mode=1", "rt12.mode=1", "rt13.mode=1"]
    keys = ("cu.mode", "nv.mode", "rt12.mode", "rt13.mode")
    for policy in policies.ALLOWING:
        mode = "0:0" if policy in policies.COMPUTING else "0:2"
        result = box.run(steps, policy=policy, preload=preload)
        assert {key: result.answers[key] for key in keys} == dict.fromkeys(keys, mode), str(result)


def test_message_is_printed_once_and_every_place_is_recorded(case):
    steps = [*MAKE, "cu.context=v2,1", "cu.context=primary,0", "cu.zeros=cuMemCreate"]
    result, records = case.run_reported(steps, policy="NO_CONTEXT")
    case.message(result, "no_context", **NONE)
    denied = [record["api"] for record in records if record["decision"] == "deny"]
    assert denied == ["cuCtxCreate_v2", "cuDevicePrimaryCtxRetain", "cuMemCreate"], str(records)
    loud = box.run(steps, policy="NO_CONTEXT", CUDAGUARD_LOG="all")
    assert [found["call"] for found in messages.find(loud.err, "no_context")] == denied, str(loud)


@pytest.mark.parametrize(("options", "cause", "remedy"), [
    (["--policy", "no-context"], "NO_CONTEXT", "cudaguard run --policy VALIDATE"),
    (["--rule", "NO_CONTEXT program=open"], 'rule "NO_CONTEXT program=open"', None)])
def test_option_and_rule_choose_it_and_the_message_advises_what_lifts_it(options, cause, remedy):
    result = box.launch(options, MAKE)
    assert result.answers["cu.context"].split(":")[0] == REFUSED, str(result)
    found = messages.find(result.err, "no_context", cause=cause, asked_by="open")
    assert [message["remedy"] for message in found] == [remedy], str(result)


# The first process and its descendants: which of them makes a context.
ROLES = [("FORCE_CPU", "cpu", "0", "100"), ("NO_CONTEXT", "query", "0", REFUSED),
         ("ONLY", "gpu", "100", "0"), ("ONLY_CONTEXTS", "contexts", REFUSED, "0")]
FAMILY = ["fork=f", *MAKE, "end", "spawn=s", *MAKE, "end", *MAKE]


def check_roles(result, first, child):
    """Fails unless a forked child, a spawned one and the first process get these errors from their
    first call that is refused, and 0 if none is."""
    for label, wanted in (("f.", child), ("s.", child), ("", first)):
        answers = [result.answers[label + key].split(":")[0] for key in ("cu.init", "cu.context")]
        refused = [answer for answer in answers if answer != "0"]
        assert (refused or ["0"])[0] == wanted, "%s\n%s" % (label, result)


@pytest.mark.parametrize(("variable", "option", "first", "child"), ROLES)
def test_roles_of_a_family(variable, option, first, child):
    """docs/devices.md and docs/workers.md say so. The first process asks last, because a forked child
    of one that has called cuInit cannot use CUDA."""
    result = box.run([*FIRST, *FAMILY], policy="VALIDATE", CUDAGUARD_CHILDREN=variable)
    check_roles(result, first, child)
    result = box.launch(["--policy", "VALIDATE", "--children", option], FAMILY)
    check_roles(result, first, child)
    causes = {message["cause"] for name in ("no_cuda", "no_context")
              for message in messages.find(result.err, name)}
    assert causes == {"--children=" + option}, str(result)


@pytest.mark.parametrize("policy", [None, "FORCE_CPU", "NO_CONTEXT"])
def test_option_for_descendants_alone_lets_the_parent_count(policy):
    """An option overrides the variable that contradicts it."""
    result = box.launch(["--children=contexts"], ["spawn=s", *MAKE, "end", "cu.see", *MAKE],
                        policy=policy)
    assert box.seen(result.answers["cu.see"]) == box.FASTEST, str(result)
    assert result.answers["s.cu.context"].split(":")[0] == "0", str(result)
    assert result.answers["cu.context"].split(":")[0] == REFUSED, str(result)


@pytest.mark.parametrize("option", ["query", "contexts"])
def test_policy_without_contexts_contradicts_a_choice_of_who_makes_them(option):
    result = box.launch(["--policy", "NO_CONTEXT", "--children", option], ())
    assert result.rc == 125, str(result)
    assert "contradict each other" in result.err, str(result)


def test_forked_child_keeps_cudas_own_error(case):
    """A child of a process that has called cuInit gets 3 from CUDA, and the message about forks."""
    steps = ["pid", "cu.init", "fork=c", "cu.context=v2,0", "cu.count", "end"]
    control = box.run(steps, policy="VALIDATE")
    result = box.run(steps, policy="NO_CONTEXT")
    assert control.answers["c.cu.context"][:2] == "3:", str(control)
    assert result.answers["c.cu.context"] == control.answers["c.cu.context"], str(result)
    case.message(result, "fork", call="cuCtxCreate_v2", parent=result.answers["pid"], by="open",
                 seconds=re.compile(r"\d+\.\d"))


def test_opencl_is_refused(case):
    """NVIDIA's OpenCL makes contexts without libcuda."""
    opened = ["lib.open=libnvidia-opencl.so.1"]
    control = box.run(opened, policy="VALIDATE")
    result = box.run(opened, policy="NO_CONTEXT")
    assert len(messages.find(control.err, "opencl_refused")) == 0, str(control)
    case.message(result, "opencl_refused", list="NO_CONTEXT", left_out="NO_CONTEXT",
                 asked_by="open")


def test_limit_deep_bound_plugin_makes_a_context():
    """tests/lab/limits.md: with RTLD_DEEPBIND, ld.so binds it to the driver before the guard."""
    result = box.run(["deep.cu.init", "deep.cu.context=v2,0"], policy="NO_CONTEXT")
    assert result.answers["deep.cu.context"].split(":")[:2] == ["0", "set"], str(result)


@pytest.mark.parametrize(("name", "prefix"), [("cuda", "cu."), ("open", "linked.cu.")])
def test_limit_linked_code_reaches_functions_that_few_programs_link_to(name, prefix):
    """tests/lab/limits.md: a program or a plug-in. The driver itself answers 1 to arguments of zero."""
    steps = [prefix + "init", prefix + "zeros=cuCtxCreate_v3", prefix + "mode=0"]
    keys = (prefix + "zeros", prefix + "mode")
    for preload, answers in ((), ("1", "0:0")), (box.PROXIES, (REFUSED, "0:2")):
        result = box.run(steps, name, policy="NO_CONTEXT", preload=preload)
        assert tuple(result.answers[key] for key in keys) == answers, str(result)


def test_limit_export_tables_are_the_drivers():
    """docs/limits.md: NVIDIA's private tables stay the driver's own."""
    steps = ["cu.init", "cu.where=cuGetExportTable", "cu.ask=cuGetExportTable"]
    control = box.run(steps, policy="VALIDATE", guard=False)
    result = box.run(steps, policy="NO_CONTEXT")
    assert result.answers == control.answers, str(result)
    assert result.answers["cu.where"].startswith("libcuda.so.1+"), str(result)
