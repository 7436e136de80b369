# SPDX-License-Identifier: Apache-2.0
"""The guard blocks bypasses that once worked, and programs keep their own state under the guard."""

import os
import shutil
import tempfile

from support import box, harness
from support.box import ALL, PROXIES, FASTEST

DRIVER, NVML = (os.path.basename(path) for path in PROXIES)
NOTHING = "!100"
# This call loads a library through the guard's hooks, but nothing of CUDA.
HOOK_CALL = "lib.open=libm.so.6"


class Copy:
    """The guard and its libraries in a separate directory, where a test may break them."""

    def __init__(self, case):
        self.directory = tempfile.mkdtemp(prefix="cg-bypass-")
        case.addCleanup(shutil.rmtree, self.directory)
        self.guard = harness.copy_install(os.path.join(self.directory, "lib"))

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


class Proxies(box.Case):
    """If the proxy cannot be loaded, the program sees no GPU rather than all GPUs."""

    WAYS = [
        ("open", ["cu.see"], "cu"),
        ("open", ["linked.cu.see"], "linked.cu"),
        ("open", ["deep.cu.see"], "deep.cu"),
        ("cuda", ["cu.route=dlsym", "cu.see"], "cu"),
    ]

    def no_gpu(self, result, key, code="100"):
        self.assertEqual(result.rc, 0, result)
        self.assertEqual(box.seen(result.answers[key + ".see"]), "!" + code, result)
        self.assertNotIn("cuInit", result.fake_calls, result)
        named = [line for line in box.lines(result) if DRIVER in line]
        self.assertEqual(len(named), 1, result)

    def test_broken_driver_proxy_shows_no_gpu(self):
        """The proxy is corrupt or missing."""
        whole = Copy(self)
        broken = {"corrupt": Copy(self), "missing": Copy(self)}
        broken["corrupt"].corrupt(DRIVER)
        broken["missing"].remove(DRIVER)
        for name, steps, key in self.WAYS:
            keys = {key.replace(".", "_"): FASTEST}
            self.sees(box.run(steps, name, guard=False, allow="2,5"), **keys)
            self.sees(whole.run(steps, name, allow="2,5"), **dict.fromkeys(keys, [2, 5]))
            for how, copy in broken.items():
                with self.subTest(how=how, program=name, steps=steps):
                    self.no_gpu(copy.run(steps, name, allow="2,5"), key)

    def test_linked_program_needs_no_free_descriptor(self):
        """The proxies are loaded when such a program starts."""
        for route in ("dlsym", "linked"):
            for files in ("64", "3"):
                with self.subTest(route=route, files=files):
                    steps = ["nofile=" + files, "cu.route=" + route, "cu.see"]
                    self.sees(box.run(steps, "cuda", guard=False, allow="2,5"), cu=FASTEST)
                    self.sees(box.run(steps, "cuda", allow="2,5"), cu=[2, 5])

    def test_broken_nvml_proxy_refuses_nvml_and_keeps_the_list_for_cuda(self):
        broken = {"corrupt": Copy(self), "missing": Copy(self)}
        broken["corrupt"].corrupt(NVML)
        broken["missing"].remove(NVML)
        for how, copy in broken.items():
            # A program that uses dlopen gets no library; a linked program gets FORCE_CPU's answer.
            for name, steps, nvml in (("open", ["nv.see", "cu.see"], "!-999"),
                                      ("open", ["cu.see", "nv.see"], "!-999"),
                                      ("mixed", ["nv.see", "cu.see"], "!9")):
                with self.subTest(how=how, program=name, steps=steps):
                    self.sees(box.run(steps, name, guard=False), cu=FASTEST, nv=ALL)
                    result = copy.run(steps, name, allow="2,5")
                    self.sees(result, cu=[2, 5], nv=nvml)
                    self.message(result, "file_broken", file=copy.proxy(NVML), library="NVML")

    def test_second_copy_of_the_guard_changes_nothing(self):
        """LD_PRELOAD names a second copy, from another directory, after the first."""
        copy = Copy(self)
        for name, steps, key in self.WAYS:
            with self.subTest(program=name, steps=steps):
                key = key.replace(".", "_")
                self.sees(box.run(steps, name, guard=False, allow="2,5"), **{key: FASTEST})
                result = box.run(steps, name, allow="2,5", preload=(copy.guard,))
                self.silent(result)
                self.sees(result, **{key: [2, 5]})


class Paths(box.Case):

    def test_list_holds_for_origin_and_run_paths(self):
        """ld.so replaces $ORIGIN and $LIB with the caller's values, not the guard's."""
        for name, steps in (("open", ["cu.library=$ORIGIN/lib/libcuda.so.1"]),
                            ("open", ["cu.library=${ORIGIN}/lib/libcuda.so.1"]),
                            ("open_origin", []), ("open_lib", []),
                            ("open_origin", ["cu.library=libcuda.so.1"])):
            for directory in ("only_nvml", "lazy"):
                with self.subTest(program=name, steps=steps, directory=directory):
                    see = steps + ["cu.see"]
                    self.sees(box.run(see, name, guard=False, box=directory, allow="2,5"), cu=FASTEST)
                    result = box.run(see, name, box=directory, allow="2,5")
                    self.silent(result)
                    self.sees(result, cu=[2, 5])

    def test_link_in_etc_alternatives_gets_the_proxy(self):
        """/etc/alternatives/nvidia--libcuda.so.1-x86_64-linux-gnu is the link to which the usual
        name links. If the driver is bound early, it keeps to the list, but the proxy's answers show
        which way the call took."""
        directory = tempfile.mkdtemp(prefix="cg-bypass-")
        self.addCleanup(shutil.rmtree, directory)
        link = os.path.join(directory, "nvidia--libcuda.so.1-x86_64-linux-gnu")
        os.symlink(os.path.join(harness.FAKES, "lazy", "libcuda.so.1"), link)
        steps = ["cu.library=" + link, "cu.see", "maps"]
        self.sees(box.run(steps, guard=False), cu=FASTEST)
        result = box.run(steps, allow="2,5")
        self.sees(result, cu=[2, 5])
        self.assertIn(DRIVER, result.answers["maps"])
        result = box.run(steps)
        self.sees(result, cu=NOTHING)
        self.assertEqual(result.fake_calls, [], result)

    def test_list_holds_for_a_library_with_nvidias_file_name(self):
        """A library whose file has a name of NVIDIA's opens the driver."""
        for steps in (["nvidia.cu.see"], ["nvidia.cu.see", "cu.see"], ["cu.see", "nvidia.cu.see"]):
            with self.subTest(steps=steps):
                keys = [step[:-4].replace(".", "_") for step in steps]
                self.sees(box.run(steps, guard=False), **dict.fromkeys(keys, FASTEST))
                result = box.run(steps, allow="2,5")
                self.sees(result, **dict.fromkeys(keys, [2, 5]))

    def test_deep_bound_plugin_gets_no_gpu_if_the_driver_imports_no_getenv(self):
        """The proxy cannot show a list to this driver."""
        self.sees(box.run(["deep.cu.see"], guard=False, box="noslot"), deep_cu=FASTEST)
        for steps in (["deep.cu.see"], ["deep.cu.see", "cu.see"], ["cu.see", "deep.cu.see"]):
            result = box.run(steps, box="noslot", allow="2,5")
            for step in steps:
                self.assertEqual(result.answers[step].split(":")[0], "100", result)
            self.assertNotIn("cuInit:initialised", result.fake_calls, result)

    def test_gpu_without_an_nvml_handle_is_an_error_and_never_the_next_gpu(self):
        """NVML counts the GPU and does not return its handle."""
        lost = {"CG_LOST": "1", "CG_GONE": "1"}
        unguarded = box.run(["cu.see", "nv.see"], guard=False, **lost)
        self.sees(unguarded, cu=[gpu for gpu in FASTEST if gpu != 1],
                  nv=[gpu if gpu != 1 else "!15" for gpu in ALL])
        for allow in ("1", "1,3", "3,1"):
            for steps in (["cu.see"], ["deep.cu.see"]):
                with self.subTest(allow=allow, steps=steps):
                    result = box.run(steps, allow=allow, **lost)
                    self.assertEqual(box.seen(result.answers[steps[0]]), NOTHING, result)
                    self.assertNotIn("cuInit:initialised", result.fake_calls, result)
                    # A deep-bound plug-in calls the driver's own cuInit, which finds an empty list.
                    if steps == ["cu.see"]:
                        self.refused(result, name="list_no_uuid")
        for allow, gpus in (("3,0", [3, 0]), ("2,5", [2, 5])):
            result = box.run(["cu.see"], allow=allow, **lost)
            self.sees(result, cu=gpus)


class Children(box.Case):
    """Forked children that change the variables."""

    ROOT = ["setpid=CUDAGUARD_ROOT", "exec"]

    def test_forked_child_cannot_lift_children_force_cpu(self):
        for change in (["unsetenv=CUDAGUARD_CHILDREN"], ["clearenv"], ["setpid=CUDAGUARD_ROOT"],
                       ["unsetenv=CUDAGUARD_CHILDREN", "unsetenv=CUDAGUARD_ROOT"], []):
            for before in ([HOOK_CALL], ["cu.open"], ["nv.see"]):
                for call in ("cu.see", "linked.cu.see", "deep.cu.see"):
                    with self.subTest(change=change, before=before, call=call):
                        steps = before + ["fork=c"] + change + [call, "end"]
                        unguarded = box.run(steps, guard=False)
                        self.assertEqual(box.seen(unguarded.answers["c." + call]), FASTEST,
                                         unguarded)
                        result = box.run(self.ROOT + steps + ["cu.see"], policy="VALIDATE",
                                         CUDAGUARD_CHILDREN="FORCE_CPU")
                        self.assertEqual(result.answers["c." + call].split(":")[0], "100", result)
                        self.sees(result, cu=FASTEST)

    def check(self, change, allow, before, call, wanted):
        steps = before + ["fork=c"] + change + [call, "end"]
        with self.subTest(allow=allow, steps=steps):
            unguarded = box.run(steps, guard=False)
            self.assertEqual(box.seen(unguarded.answers["c." + call]), FASTEST, unguarded)
            result = box.run(steps, policy="VALIDATE", allow=allow)
            if wanted == NOTHING:
                self.assertEqual(result.answers["c." + call].split(":")[0], "100", result)
                self.assertNotIn("cuInit:initialised", result.fake_calls, result)
            else:
                self.assertEqual(box.seen(result.answers["c." + call]), wanted, result)

    def test_forked_child_cannot_change_list_or_policy(self):
        for before in ([], [HOOK_CALL], ["cu.open"]):
            for call in ("cu.see", "linked.cu.see"):
                for write in ("setenv=CUDAGUARD_VISIBLE_DEVICES=5", "setenv=CUDAGUARD_POLICY=OFF",
                              "setenv=CUDAGUARD_POLICY=FORCE_CPU"):
                    self.check([write], "2,5", before, call, [2, 5])
                    self.check([write], None, before, call, FASTEST)


class Native(box.Case):
    """The program keeps these things as without the guard."""

    def test_constructor_that_waits_for_a_thread_does_not_hang(self):
        """The thread asks while ld.so's lock is held, so the guard must not need that lock."""
        steps = ["lib.open=" + box.program("constructor.so")]
        unguarded = box.run(steps, guard=False, timeout=60)
        self.assertEqual(unguarded.answers["constructor"], "0:0:8", unguarded)
        # VALIDATE without a list is missing, because it is a known limit.
        for allow, policy, wanted in (("2,5", None, "0:0:2"), ("2,5", "CLAMP", "0:0:2"),
                                      (None, "OFF", "0:0:8")):
            with self.subTest(allow=allow, policy=policy):
                result = box.run(steps, allow=allow, policy=policy, timeout=60)
                self.assertFalse(result.timed_out, result)
                self.assertEqual(result.answers["constructor"], wanted, result)
                self.assertEqual(result.rc, 0, result)

    def test_name_that_an_older_driver_lacks_returns_500(self):
        """The preloaded proxy has names that the driver lacks, and these calls return 500."""
        unguarded = box.run(["context=cuCtxCreate_v4"], "cuda", guard=False, box="old")
        self.assertEqual(unguarded.answers["context"], "null", unguarded)
        for policy in ("VALIDATE", "OFF"):
            result = box.run(["context=cuCtxCreate_v4", "cu.see"], "cuda", box="old", policy=policy,
                             preload=PROXIES)
            self.assertEqual(result.rc, 0, result)
            self.assertEqual(result.answers["context"], "500", result)
            self.sees(result, cu=FASTEST)
        # With a driver that has the function, the same step creates a context.
        result = box.run(["cu.init", "context=cuCtxCreate_v4"], "cuda", policy="VALIDATE",
                         preload=PROXIES)
        self.assertEqual(result.answers["context"], "0", result)

    def test_hooks_of_another_preload_are_called(self):
        """A profiler's hooks, before or after the guard, are called as without the guard."""
        hook = (box.program("hook.so"),)
        both = ("OFF", "VALIDATE")
        # A known limit: under VALIDATE, a hook of the driver's functions is not called.
        for name, steps, policies in (("runtime12", ["rt.set=1"], both),
                                      ("cuda", ["cu.init"], ("OFF",)),
                                      ("runtime13", ["rt.set=1", "rt.set=0"], both),
                                      ("runtime12", ["rt.set=99"], both)):
            unguarded = box.run(steps, name, guard=False, preload=hook)
            self.assertEqual(unguarded.out.count("hook."), len(steps), unguarded)
            for policy in policies:
                with self.subTest(program=name, steps=steps, policy=policy):
                    result = box.run(steps, name, policy=policy, preload=hook)
                    self.assertEqual(result.out, unguarded.out, result)
                    result = box.run(steps, name, policy=policy, guard=False,
                                     preload=(*hook, harness.GUARD))
                    self.assertEqual(result.out, unguarded.out, result)

    def test_first_call_keeps_dlerror_and_errno(self):
        """The program is linked to the driver."""
        for steps in (["kept=cu.init"], [HOOK_CALL, "kept=cu.init"],
                      ["lib.open=libcuda.so.1", "kept=cu.init"]):
            unguarded = box.run(steps, "cuda", guard=False)
            self.assertIn("1:0:77:no-such-library.so:", unguarded.answers["kept"], unguarded)
            for more in ({"policy": "VALIDATE"}, {"allow": "2,5"}, {"policy": "OFF"},
                         {"allow": "2,5", "preload": PROXIES}):
                with self.subTest(steps=steps, **more):
                    result = box.run(steps, "cuda", **more)
                    self.assertEqual(result.answers["kept"], unguarded.answers["kept"], result)


class Versions(box.Case):
    """The list holds for programs that look dlopen up by glibc's versions (dlvsym), as overlays and
    tracers do."""

    STEPS = ["cu.see", "nv.see", "rt12.see", "linked.cu.see"]
    HOOK = harness.program("dlopen_hook.so")

    def test_list_holds_with_hooks_that_use_dlvsym(self):
        for where in ("next", "default"):
            for version in ("old", "new"):
                more = {"CG_HOOK": where, "CG_HOOK_VERSION": version}
                for about, name, preload in (
                        ("before", "open", (self.HOOK, harness.GUARD)),
                        ("after", "open", (harness.GUARD, self.HOOK)),
                        ("the program's own", "open_own", (harness.GUARD,))):
                    with self.subTest(hook=about, **more):
                        unguarded = [path for path in preload if path != harness.GUARD]
                        result = box.run(self.STEPS, name, guard=False, preload=unguarded, **more)
                        self.sees(result, cu=FASTEST, nv=ALL)
                        result = box.run(self.STEPS, name, guard=False, preload=preload,
                                         allow="5,2", **more)
                        self.silent(result)
                        self.sees(result, cu=[5, 2], nv=[5, 2], rt12=[5, 2], linked_cu=[5, 2])
