# SPDX-License-Identifier: Apache-2.0
"""The guard blocks bypasses that once worked, and programs keep their own state under the guard."""

import os
import shutil
import subprocess
import tempfile

import pytest

from support import box, harness, policies
from support.box import ALL, PROXIES, FASTEST

DRIVER, NVML = (os.path.basename(path) for path in PROXIES)
NOTHING = "!100"
# This call loads a library through the guard's hooks, but nothing of CUDA.
HOOK_CALL = "lib.open=libm.so.6"


class Copy:
    """The guard and its libraries in a separate directory, where a test may break them."""

    def __init__(self, case, how="whole", name=""):
        self.directory = tempfile.mkdtemp(prefix="cg-bypass-")
        case.addCleanup(shutil.rmtree, self.directory)
        self.guard = harness.copy_install(os.path.join(self.directory, "lib"))
        if how != "whole":
            getattr(self, how)(name)

    def proxy(self, name):
        return os.path.join(self.directory, "lib", "cudaguard", name)

    def corrupt(self, name):
        """Byte 16 is the kind of an ELF file. This value means a relocatable file, which ld.so does
        not load."""
        with open(self.proxy(name), "r+b") as stream:
            stream.seek(16)
            stream.write(b"\1")

    def remove(self, name):
        os.remove(self.proxy(name))

    def run(self, steps, name="open", **more):
        return box.run(steps, name, guard=False, preload=(self.guard,), **more)


# If the proxy cannot be loaded, the program sees no GPU rather than all GPUs.

WAYS = [
    ("open", ["cu.see"], "cu"),
    ("open", ["linked.cu.see"], "linked.cu"),
    ("open", ["deep.cu.see"], "deep.cu"),
    ("cuda", ["cu.route=dlsym", "cu.see"], "cu"),
]


def no_gpu(result, key):
    assert result.rc == 0, str(result)
    assert box.seen(result.answers[key + ".see"]) == "!100", str(result)
    assert "cuInit" not in result.fake_calls, str(result)
    named = [line for line in box.lines(result) if DRIVER in line]
    assert len(named) == 1, str(result)


# Under VALIDATE alone, a deep-bound plug-in calls the driver itself.
@pytest.mark.parametrize(("name", "steps", "key", "settings", "gpus"), [
    *((*way, {"allow": "2,5"}, [2, 5]) for way in WAYS),
    *((*way, {"policy": "VALIDATE"}, FASTEST) for way in WAYS if "deep" not in way[2])])
def test_broken_driver_proxy_shows_no_gpu(case, name, steps, key, settings, gpus):
    """The proxy is corrupt or missing."""
    keys = {key.replace(".", "_"): FASTEST}
    case.sees(box.run(steps, name, guard=False, **settings), **keys)
    case.sees(Copy(case).run(steps, name, **settings), **dict.fromkeys(keys, gpus))
    for how in ("corrupt", "remove"):
        no_gpu(Copy(case, how, DRIVER).run(steps, name, **settings), key)


@pytest.mark.parametrize("files", ["64", "3"])
@pytest.mark.parametrize("route", ["dlsym", "linked"])
def test_linked_program_needs_no_free_descriptor(case, route, files):
    """The proxies are loaded when such a program starts."""
    steps = ["nofile=" + files, "cu.route=" + route, "cu.see"]
    case.sees(box.run(steps, "cuda", guard=False, allow="2,5"), cu=FASTEST)
    case.sees(box.run(steps, "cuda", allow="2,5"), cu=[2, 5])


@pytest.mark.parametrize(("name", "steps", "nvml"), [("open", ["nv.see", "cu.see"], "!-999"),
                                                     ("open", ["cu.see", "nv.see"], "!-999"),
                                                     ("mixed", ["nv.see", "cu.see"], "!9")])
@pytest.mark.parametrize("how", ["corrupt", "remove"])
def test_broken_nvml_proxy_refuses_nvml_and_keeps_the_list_for_cuda(case, how, name, steps, nvml):
    # A program that uses dlopen gets no library; a linked program gets FORCE_CPU's answer.
    copy = Copy(case, how, NVML)
    case.sees(box.run(steps, name, guard=False), cu=FASTEST, nv=ALL)
    for settings, gpus in (({"allow": "2,5"}, [2, 5]), ({"policy": "VALIDATE"}, FASTEST)):
        result = copy.run(steps, name, **settings)
        case.sees(result, cu=gpus, nv=nvml)
        case.message(result, "file_broken", file=copy.proxy(NVML), library="NVML")


@pytest.mark.parametrize(("name", "steps", "key"), WAYS)
def test_second_copy_of_the_guard_changes_nothing(case, name, steps, key):
    """LD_PRELOAD names a second copy, from another directory, after the first."""
    copy = Copy(case)
    key = key.replace(".", "_")
    case.sees(box.run(steps, name, guard=False, allow="2,5"), **{key: FASTEST})
    result = box.run(steps, name, allow="2,5", preload=(copy.guard,))
    case.silent(result)
    case.sees(result, **{key: [2, 5]})


@pytest.mark.parametrize("settings", [{"allow": "2,5"}, {"policy": "VALIDATE"}], ids=str)
@pytest.mark.parametrize(("name", "steps"), [("open", ["cu.library=$ORIGIN/lib/libcuda.so.1"]),
                                             ("open", ["cu.library=${ORIGIN}/lib/libcuda.so.1"]),
                                             ("open_origin", []), ("open_lib", [])])
def test_limit_driver_that_only_the_caller_finds_is_refused(case, name, steps, settings):
    """The guard cannot load it before its caller does: ld.so replaces $ORIGIN and $LIB with the
    caller's values, and looks in the caller's run path."""
    see = steps + ["cu.see"]
    case.sees(box.run(see, name, guard=False, box="only_nvml", **settings), cu=FASTEST)
    result = box.run(see, name, box="only_nvml", **settings)
    case.sees(result, cu="!-999")
    assert (result.rc, result.fake_calls) == (0, []), str(result)


ASKS = {
    "helper": """#include <dlfcn.h>
                 const char* ask(void) { return dlopen("libcuda.so.1", RTLD_NOW) ? "opened" : "none"; }""",
    "plugin": """extern const char* ask(void); const char* pass(void) { return ask(); }""",
    "main": """#include <dlfcn.h>
               #include <stdio.h>
               int main(int argc, char** argv) {
                 const char* (*pass)(void) = dlsym(dlopen(argv[argc - 1], RTLD_NOW), "pass");
                 return puts(pass()) < 0;
               }""",
}


def test_driver_that_only_a_plug_ins_rpath_finds_is_refused(tmp_path):
    """ld.so looks in DT_RPATH of a library also for what the libraries that it needs ask for."""
    os.symlink(os.path.join(harness.FAKES, "lazy", "libcuda.so.1"), tmp_path / "libcuda.so.1")
    rpath = ["-Wl,--disable-new-dtags", "-Wl,-rpath," + str(tmp_path), "-L", tmp_path, "-lhelper"]
    for name, target, options in (("helper", "libhelper.so", ["-shared"]),
                                  ("plugin", "plugin.so", ["-shared", *rpath]),
                                  ("main", "main", ["-ldl"])):
        subprocess.run(["cc", "-x", "c", "-", "-o", tmp_path / target, "-fPIC", "-x", "none", *options],
                       input=ASKS[name], text=True, check=True)

    def answer(guard):
        return harness.run([tmp_path / "main", tmp_path / "plugin.so"], world="none", guard=guard,
                           trace=False, env={"CUDAGUARD_POLICY": "VALIDATE"}).out

    assert (answer(False), answer(True)) == ("opened\n", "none\n")


def test_driver_in_ld_library_path_gets_the_proxy_despite_a_run_path(case):
    """The remedy."""
    result = box.run(["cu.see"], "open_origin", box="lazy", allow="2,5")
    case.silent(result)
    case.sees(result, cu=[2, 5])


@pytest.mark.parametrize("steps", [["nvidia.cu.see"], ["nvidia.cu.see", "cu.see"],
                                   ["cu.see", "nvidia.cu.see"]])
def test_list_holds_for_a_library_with_nvidias_file_name(case, steps):
    """A library whose file has a name of NVIDIA's opens the driver."""
    keys = [step[:-4].replace(".", "_") for step in steps]
    case.sees(box.run(steps, guard=False), **dict.fromkeys(keys, FASTEST))
    result = box.run(steps, allow="2,5")
    case.sees(result, **dict.fromkeys(keys, [2, 5]))


def test_deep_bound_plugin_gets_no_gpu_if_the_driver_imports_no_getenv(case):
    """The proxy cannot show a list to this driver."""
    case.sees(box.run(["deep.cu.see"], guard=False, box="noslot"), deep_cu=FASTEST)
    for steps in (["deep.cu.see"], ["deep.cu.see", "cu.see"], ["cu.see", "deep.cu.see"]):
        result = box.run(steps, box="noslot", allow="2,5")
        for step in steps:
            assert result.answers[step].split(":")[0] == "100", str(result)
        assert "cuInit:initialised" not in result.fake_calls, str(result)


@pytest.mark.parametrize("steps", [["cu.see"], ["deep.cu.see"]])
@pytest.mark.parametrize(("allow", "gpus"), [
    ("1", NOTHING), ("1,3", NOTHING), ("3,1", NOTHING), ("3,0", [3, 0]), ("2,5", [2, 5])])
def test_gpu_without_an_nvml_handle_is_an_error_and_never_the_next_gpu(case, allow, gpus, steps):
    """NVML counts the GPU and does not return its handle."""
    lost = {"CG_LOST": "1", "CG_GONE": "1"}
    case.sees(box.run(["cu.see", "nv.see"], guard=False, **lost), cu=[3, 0, 2, 7, 4, 5, 6],
              nv=[0, "!15", 2, 3, 4, 5, 6, 7])
    result = box.run(steps, allow=allow, **lost)
    assert box.seen(result.answers[steps[0]]) == gpus, str(result)
    assert ("cuInit:initialised" in result.fake_calls) == (gpus != NOTHING), str(result)
    # A deep-bound plug-in calls the driver's own cuInit, which finds an empty list.
    if steps == ["cu.see"] and gpus == NOTHING:
        case.refused(result, name="list_no_uuid")


# Forked children that change the variables.

FIRST = ["setpid=CUDAGUARD_ROOT", "exec"]

CALLS = ["cu.see", "linked.cu.see", "deep.cu.see"]
BEFORE = [[HOOK_CALL], ["cu.open"], ["nv.see"]]
CHANGES = [["unsetenv=CUDAGUARD_CHILDREN"], ["clearenv"], ["setpid=CUDAGUARD_ROOT"],
           ["unsetenv=CUDAGUARD_CHILDREN", "unsetenv=CUDAGUARD_ROOT"], []]


# Each pair of two of them.
@pytest.mark.parametrize(("change", "before", "call"), [
    (change, before, CALLS[(place + other) % 3]) for place, change in enumerate(CHANGES)
    for other, before in enumerate(BEFORE)])
def test_forked_child_cannot_lift_children_force_cpu(case, change, before, call):
    steps = before + ["fork=c"] + change + [call, "end"]
    unguarded = box.run(steps, guard=False)
    assert box.seen(unguarded.answers["c." + call]) == FASTEST, str(unguarded)
    result = box.run(FIRST + steps + ["cu.see"], policy="VALIDATE", CUDAGUARD_CHILDREN="FORCE_CPU")
    assert result.answers["c." + call].split(":")[0] == "100", str(result)
    case.sees(result, cu=FASTEST)


WRITES = ["setenv=CUDAGUARD_VISIBLE_DEVICES=5", "setenv=CUDAGUARD_POLICY=OFF",
          "setenv=CUDAGUARD_POLICY=FORCE_CPU"]


@pytest.mark.parametrize(("before", "call", "write"), [
    (before, CALLS[(place + other) % 2], write) for place, before in
    enumerate([[], [HOOK_CALL], ["cu.open"]]) for other, write in enumerate(WRITES)])
def test_forked_child_cannot_change_list_or_policy(before, call, write):
    steps = before + ["fork=c", write, call, "end"]
    unguarded = box.run(steps, guard=False)
    assert box.seen(unguarded.answers["c." + call]) == FASTEST, str(unguarded)
    for allow, wanted in (("2,5", [2, 5]), (None, FASTEST)):
        result = box.run(steps, policy="VALIDATE", allow=allow)
        assert box.seen(result.answers["c." + call]) == wanted, str(result)


# The program keeps these things as without the guard.


@pytest.mark.parametrize(("guard", "allow", "policy", "wanted"), [(False, None, None, "0:0:8"),
                                                                  (True, "2,5", None, "0:0:2"),
                                                                  (True, "2,5", "CLAMP", "0:0:2"),
                                                                  (True, None, "OFF", "0:0:8")])
def test_constructor_that_waits_for_a_thread_does_not_hang(guard, allow, policy, wanted):
    """The thread asks while ld.so's lock is held, so the guard must not need that lock."""
    # VALIDATE without a list is missing, because it is a known limit. The first is the control.
    result = box.run(["lib.open=" + box.program("constructor.so")], guard=guard, allow=allow,
                     policy=policy, timeout=60)
    assert not result.timed_out, str(result)
    assert result.answers["constructor"] == wanted, str(result)
    assert result.rc == 0, str(result)


@pytest.mark.parametrize(("settings", "wanted"), [
    ({"guard": False}, "0:0:8"), *(({"policy": name}, "0:0:8") for name in policies.ALLOWING),
    ({"allow": "2,5"}, "0:0:2")])
def test_library_that_cuInit_loads_may_call_cuInit(settings, wanted):
    result = box.run(["cu.init"], CUDA_INJECTION64_PATH=box.program("injection.so"), timeout=60,
                     **settings)
    assert not result.timed_out, str(result)
    assert (result.answers["injection"], result.answers["cu.init"]) == (wanted, "0"), str(result)


def test_name_that_an_older_driver_lacks_returns_500(case):
    """The preloaded proxy has names that the driver lacks, and these calls return 500."""
    unguarded = box.run(["context=cuCtxCreate_v4"], "cuda", guard=False, box="old")
    assert unguarded.answers["context"] == "null", str(unguarded)
    for policy in ("VALIDATE", "OFF"):
        result = box.run(["context=cuCtxCreate_v4", "cu.see"], "cuda", box="old", policy=policy,
                         preload=PROXIES)
        assert result.rc == 0, str(result)
        assert result.answers["context"] == "500", str(result)
        case.sees(result, cu=FASTEST)
    # With a driver that has the function, the same step creates a context.
    result = box.run(["cu.init", "context=cuCtxCreate_v4"], "cuda", policy="VALIDATE",
                     preload=PROXIES)
    assert result.answers["context"] == "0", str(result)


@pytest.mark.parametrize(("name", "steps", "policies"),
                         [("runtime12", ["rt.set=1"], ("OFF", "VALIDATE")),
                          ("cuda", ["cu.init"], ("OFF", )),
                          ("runtime13", ["rt.set=1", "rt.set=0"], ("OFF", "VALIDATE")),
                          ("runtime12", ["rt.set=99"], ("OFF", "VALIDATE"))])
def test_hooks_of_another_preload_are_called(name, steps, policies):
    """A profiler's hooks, before or after the guard, are called as without the guard."""
    # A known limit: under VALIDATE, a hook of the driver's functions is not called.
    hook = (box.program("hook.so"),)
    unguarded = box.run(steps, name, guard=False, preload=hook)
    assert unguarded.out.count("hook.") == len(steps), str(unguarded)
    for policy in policies:
        result = box.run(steps, name, policy=policy, preload=hook)
        assert result.out == unguarded.out, str(result)
        result = box.run(steps, name, policy=policy, guard=False,
                         preload=(*hook, harness.GUARD))
        assert result.out == unguarded.out, str(result)


@pytest.mark.parametrize("steps", [["kept=cu.init"], [HOOK_CALL, "kept=cu.init"],
                                   ["lib.open=libcuda.so.1", "kept=cu.init"]])
def test_first_call_keeps_dlerror_and_errno(steps):
    """The program is linked to the driver."""
    unguarded = box.run(steps, "cuda", guard=False)
    assert "1:0:77:no-such-library.so:" in unguarded.answers["kept"], str(unguarded)
    for more in ({"policy": "VALIDATE"}, {"allow": "2,5"}, {"policy": "OFF"},
                 {"allow": "2,5", "preload": PROXIES}):
        result = box.run(steps, "cuda", **more)
        assert result.answers["kept"] == unguarded.answers["kept"], str(result)


# The list holds for programs that look dlopen up by glibc's versions (dlvsym), as overlays and
# tracers do.

STEPS = ["cu.see", "nv.see", "rt12.see", "linked.cu.see"]
HOOK = harness.program("dlopen_hook.so")


@pytest.mark.parametrize(("name", "preload"), [
    ("open", (HOOK, harness.GUARD)), ("open", (harness.GUARD, HOOK)),
    ("open_own", (harness.GUARD, ))], ids=["before", "after", "own"])
@pytest.mark.parametrize("version", ["old", "new"])
@pytest.mark.parametrize("where", ["next", "default"])
def test_list_holds_with_hooks_that_use_dlvsym(case, where, version, name, preload):
    more = {"CG_HOOK": where, "CG_HOOK_VERSION": version}
    unguarded = [path for path in preload if path != harness.GUARD]
    result = box.run(STEPS, name, guard=False, preload=unguarded, **more)
    case.sees(result, cu=FASTEST, nv=ALL)
    result = box.run(STEPS, name, guard=False, preload=preload, allow="5,2", **more)
    case.silent(result)
    case.sees(result, cu=[5, 2], nv=[5, 2], rt12=[5, 2], linked_cu=[5, 2])
