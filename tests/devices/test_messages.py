# SPDX-License-Identifier: Apache-2.0
"""tests/golden/messages.txt has the words that the guard prints, for each name."""

import os
import shutil
import sys
import tempfile

import pytest

from support import box, harness, launcher, messages, policies

RUN = [launcher.LAUNCHER, "run"]
LATE = ["nv.see", "setenv=CUDA_VISIBLE_DEVICES=%s", "cu.see"]
ALL = {"CUDAGUARD_LOG": "all"}
VARIABLE = "CUDAGUARD_VISIBLE_DEVICES"
CELL = """exec(compile("import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)",
             "/tmp/ipykernel_7/1.py", "exec"), {})"""
# These are compared with the guard's output in tests/guest/test_unreachable.py (as root),
# tests/guest/test_bad_input.py, test_other_build.py, test_stub.py and test_machine_file.py.
ELSEWHERE = {"conf_not_used", "file_unreachable", "proxy_unreachable", "unreadable", "other_version", "other_machine",
             "not_a_library", "not_loadable", "other_build", "stub", "stub_refused",
             "unknown_name"}


def late(value):
    return [step.replace("%s", value) for step in LATE]


def run(*words):
    """The steps of the program `open` under `cudaguard run`."""
    options, steps = words[:-1], words[-1]
    return harness.run([*RUN, *options, "--", box.program("open"), *steps], world="none",
                       guard=False, trace=False, env=box.environment())


class Golden(box.Case):
    def setUp(self):
        self.printed = set(ELSEWHERE)

    def part(self, name, **values):
        """Returns the words of a part of a message."""
        self.printed.add(name)
        return messages.text(name, **values)

    def prints(self, result, name, also=(), **values):
        """Fails unless the guard printed exactly this message."""
        text = messages.text(name, **values)
        self.assertIn(text, [line.partition("]: ")[2] for line in box.lines(result)],
                      "%s of tests/golden/messages.txt\n%s" % (name, result))
        self.assertEqual(len(messages.find(result.err, name, **values)), 1, name)
        for generic in also:
            self.assertTrue(messages.find(result.err, generic), result)
        self.printed |= {name, *also}

    def denied(self):
        by = {"cause": "FORCE_CPU", "asked_by": "open", "remedy": "CUDAGUARD_POLICY=OFF"}
        self.prints(box.run(["cu.init"]), "no_cuda", **by)
        self.prints(box.run(["cu.init"], **ALL), "no_cuda", call="cuInit", **by)
        self.prints(box.run(["nv.init"]), "no_nvml", **by)
        self.prints(box.run(["lib.open=libnvidia-opencl.so.1"]), "no_opencl", **by)
        self.prints(box.run(["cu.init", "cu.context=v2,0"], policy="NO_CONTEXT"), "no_context",
                    cause="NO_CONTEXT", asked_by="open", remedy="CUDAGUARD_POLICY=VALIDATE")
        for allow, cause in (("", "no_gpu_allowed"), ("x", "list_not_accepted")):
            self.prints(box.run(["cu.init"], allow=allow), "no_cuda", asked_by="open",
                        cause=self.part(cause, list=VARIABLE))
        rule = self.part("rule", rule="FORCE_CPU program=open")
        self.prints(box.run(["cu.init"], CUDAGUARD_RULES="OFF; FORCE_CPU program=open"), "no_cuda",
                    asked_by="open", cause=rule)
        self.prints(run("--fence", ["cu.init"]), "no_cuda",
                    **dict(by, remedy=self.part("remedy_fence")))
        self.prints(harness.run([*RUN, "--if-healthy", "--", box.program("open"), "cu.init"],
                                world="none", guard=False, trace=False,
                                env=box.environment(CG_SICK="999")), "no_cuda",
                    **dict(by, remedy=self.part("remedy_driver")))
        result = run("--policy=VALIDATE", "--children=cpu", ["pid", "spawn=s", "cu.init", "end"])
        self.prints(result, "no_cuda", cause="--children=cpu", first=result.answers["pid"],
                    asked_by="open", remedy="cudaguard run --policy VALIDATE")
        remedy = self.part("remedy_kernel", remedy="CUDAGUARD_POLICY=OFF", key="env")
        self.prints(harness.run([sys.executable, "-c", CELL]), "no_cuda", cause="FORCE_CPU",
                    asked_by="notebook cell, line 1 through ctypes/cffi", remedy=remedy)

    def allowed(self):
        policy = {"policy": "VALIDATE"}
        use = box.run(["nv.init", "cu.init", "cu.context=v2,1", "cu.load=module"], **policy, **ALL)
        self.prints(use, "nvml_used", call="nvmlInit_v2", asked_by="open", **policy)
        self.prints(use, "cuda_initialised", call="cuInit", asked_by="open", **policy)
        self.prints(use, "context_made", device=1, call="cuCtxCreate_v2", asked_by="open", **policy)
        self.prints(use, "code_loaded", call="cuModuleLoadData", asked_by="open", **policy)
        self.prints(box.run(["rt12.set=1"], **policy, **ALL), "device_selected", device=1,
                    call="cudaSetDevice", asked_by="runtime_12.so", **policy)
        self.prints(box.run(["cu.init"], allow="5", **ALL), "cuda_initialised", call="cuInit",
                    gpus=box.uuid(5), asked_by="open", **policy)
        self.prints(box.run(["cu.init", "cu.context=v2,9"], **policy, **ALL), "context_failed",
                    device=9, error=101, call="cuCtxCreate_v2", asked_by="open", **policy)
        sick = box.run(["nv.init", "cu.init"], CG_SICK="100", **policy, **ALL)
        self.prints(sick, "cuda_failed", error=100, call="cuInit", asked_by="open", **policy)
        self.prints(sick, "nvml_failed", error=9, call="nvmlInit_v2", asked_by="open", **policy)

    def lists(self):
        for allow, part, entry in (("9", "entry_unknown", "9"), ("0,0", "entry_repeated", "0"),
                                   ("x", "entry_bad", "x")):
            more = {"gpus": "8 GPUs"} if part == "entry_unknown" else {}
            mistake = self.part(part, position=allow.count(",") + 1, entry=entry, **more)
            self.prints(box.run(["cu.init"], allow=allow), "list_wrong", ["list_refused"],
                        list='%s="%s"' % (VARIABLE, allow), mistake=mistake)
            if more:  # the launcher itself refuses the others
                self.prints(run("--gpus", allow, ["cu.init"]), "list_wrong",
                            list='--gpus "%s"' % allow, mistake=mistake)
        for name, more in (("list_no_getenv", {"box": "noslot"}), ("list_not_read", {"box": "bypass"}),
                           ("list_not_shown", {"box": "liar"}),
                           ("list_others_shown", {"box": "liar", "CG_LIE": "others"}),
                           ("list_no_uuid", {"CG_LOST": "1", "CG_GONE": "1"})):
            self.prints(box.run(["cu.init"], allow="1", **more), name, ["list_refused"],
                        list=VARIABLE)
        for part, more in (("no_gpu", {"CG_SICK": "100"}), ("driver_missing", {"box": "only_nvml"}),
                           ("driver_fails", {"CG_SICK": "999"})):
            values = {"error": "999"} if part == "driver_fails" else {}
            self.prints(box.run(["cu.open", "cu.init"], allow="1", **more), "list_in_vain",
                        list=VARIABLE + '="1"', reason=self.part(part, **values),
                        remedy="cudaguard doctor")
        self.prints(box.run(["cu.init"], allow="1", policy="FORCE_CPU"), "list_no_effect", value="1")
        self.prints(box.run(["lib.open=libnvidia-opencl.so.1"], allow="1"), "opencl_refused",
                    list=VARIABLE, asked_by="open", left_out=VARIABLE)
        self.prints(box.run(["lib.open=libnvidia-opencl.so.1"], policy="NO_CONTEXT"),
                    "opencl_refused", list="NO_CONTEXT", asked_by="open", left_out="NO_CONTEXT")

    def mistakes(self):
        visible = self.part("visible", last=1)
        by = {"call": "cuDeviceGet", "asked_by": "open", "visible": visible, "gpus": "GPUs 5,2"}
        self.prints(box.run(["cu.init", "cu.get=9"], allow="5,2"), "bad_index", device=9, **by)
        self.prints(box.run(["cu.init", "cu.get=9"], allow="5,2", policy="CLAMP"), "bad_index",
                    device=9, used=1, **by)
        self.prints(box.run(["cu.init", "cu.get=5"], allow="5,2"), "bad_index", device=5, meant=0,
                    **by)
        counted = {"was": "unset", "call": "nvmlDeviceGetCount_v2", "reported": "8 GPUs",
                   "asked_by": "open"}
        for value, sees, advice, setting in (
                ("2", 1, "start_with_one", VARIABLE + "=2"),
                ("2,5", 2, "start_with_list", VARIABLE + "=2,5"),
                ("8", 0, "new_value_wrong", None)):
            values = {"setting": setting} if setting else {"mistake": messages.text(
                "entry_unknown", position=1, entry=8, gpus="8 GPUs")}
            self.prints(box.run(late(value), policy="VALIDATE"), "late_write", sees=sees,
                        advice=self.part(advice, **values), now='"%s"' % value, **counted)
        self.prints(run("--policy=VALIDATE", late("-1")), "late_write", sees=0,
                    advice=self.part("start_with", setting="cudaguard run --cpu"), **counted,
                    now='"-1"')
        result = box.run(["nv.see", "unsetenv=CUDA_VISIBLE_DEVICES", "cu.see"], policy="VALIDATE",
                         own="0,1")
        self.prints(result, "late_write", sees=8, advice=self.part("start_without"),
                    **dict(counted, was='"0,1"'), now="unset")
        result = box.run(["cu.see", *late("5")[1:], "rt12.count"], policy="VALIDATE", own="0,1")
        self.prints(result, "late_write_unread", was='"0,1"', call="cuInit", asked_by="open",
                    advice=self.part("start_later"), now='"5"')
        inside = self.part("inside_list", list=VARIABLE + "=1", gpu=1, device=0)
        self.prints(box.run(late("1")[1:], allow="1"), "late_write_empty", advice=inside,
                    now="1")
        self.prints(box.run(["cu.init"], allow="5,1", own="1"), "late_write_less", left="GPU 1",
                    advice=messages.text("inside_list", list=VARIABLE + "=5,1", gpu=1, device=1),
                    now="1")
        result = box.run(["pid", "cu.init", "fork=c", "cu.init", "end"], policy="VALIDATE")
        seconds = messages.find(result.err, "fork")[0]["seconds"]
        self.assertRegex(seconds, r"\A\d+\.\d\Z")
        self.prints(result, "fork", call="cuInit", parent=result.answers["pid"], by="open",
                    seconds=seconds)

    def settings(self):
        self.prints(box.run(["cu.init"], policy="x"), "bad_policy", ["bad_value"], value="x",
                    accepted=policies.ACCEPTED)
        self.prints(box.run(["cu.init"], CUDAGUARD_RULES="OFF; OFF user="), "rule_wrong",
                    place="CUDAGUARD_RULES", mistake="user= needs a value")
        self.prints(box.run(["cu.init"], CUDAGUARD_LOG="x"), "bad_log", value="x")
        long = "/" + "x" * 5000
        self.prints(box.run(["cu.init"], CUDAGUARD_REPORT=long), "bad_report", value=long[:80] + "...")
        self.prints(box.run(["cu.init"], CUDAGUARD_REPORT="/dev/full"), "report_failed",
                    path="/dev/full", error=os.strerror(28), accepted=self.part("report_accepted"))
        with self.assertRaises(OSError) as failed:  # read-only in a container
            os.open("/sys/report", os.O_WRONLY | os.O_CREAT)
        self.prints(box.run(["cu.init"], CUDAGUARD_REPORT="/sys/report"), "report_failed",
                    path="/sys/report", error=os.strerror(failed.exception.errno),
                    remedy=self.part("report_forbidden"))
        self.prints(box.run(["cu.init"], policy="VALIDATE", CUDAGUARD_CHILDREN="FORCE_CPU"),
                    "first_missing", remedy="sh -c 'CUDAGUARD_ROOT=$$ exec APP'")
        result = harness.run([harness.program("linked_forbids"), "handle",
                              harness.program("middle.so")], env={"CG_FORBID": "write"})
        library = os.path.join(harness.FAKE_DRIVER, "libcuda.so.1")
        self.prints(result, "exposed", library=library)

    def files(self):
        with tempfile.TemporaryDirectory(prefix="cg-lib-") as directory:
            shutil.copytree(harness.LIB, directory, symlinks=True, dirs_exist_ok=True)
            guard = os.path.join(directory, "libcudaguard.so")
            for name, damage, part, message, more in (
                    ("libcudaguard-driver.so", os.remove, "missing", "proxy_broken",
                     {"allow": "1", "library": None}),
                    ("libcuda.so.1", lambda path: os.truncate(path, 64), "cut_short", "file_broken",
                     {"library": "CUDA"})):
                path = os.path.join(directory, "cudaguard", name)
                damage(os.path.realpath(path) if damage is not os.remove else path)
                library = more.pop("library")
                result = box.run(["cu.open"], guard=False, preload=[guard], **more)
                self.prints(result, message, file=path, why=self.part(part),
                            **({"library": library} if library else {}))

    def test_guard_prints_the_words_of_the_golden_file(self):
        for check in (self.denied, self.allowed, self.lists, self.mistakes, self.settings,
                      self.files):
            check()
        self.assertEqual(self.printed, set(messages.PATTERNS), "one of these has no check")


# Controls of tests/support/messages.py: it finds what was printed, and only that.


OUTPUT = "before\ncudaguard[7]: %s\nafter\ncudaguard[8]: %s\n" % (
    messages.text("no_cuda", cause="x", first=3, call="cuInit", asked_by="a (b) in c"),
    messages.text("no_cuda", cause="x", asked_by="a (b) in c", remedy="y"))


def pids_of(**values):
    return [found["pid"] for found in messages.find(OUTPUT, "no_cuda", **values)]


@pytest.mark.parametrize(("values", "pids"), [({}, ["7", "8"]), ({"asked_by": "a"}, []),
                                              ({"first": 3}, ["7"]), ({"first": 33}, []),
                                              ({"first": None}, ["8"]), ({"remedy": "y"}, ["8"]),
                                              ({"asked_by": "a (b) in c", "remedy": None}, ["7"])])
def test_values_select_the_messages(values, pids):
    assert pids_of(**values) == pids


def test_other_messages_are_not_found():
    assert messages.find(OUTPUT, "no_nvml", "no_opencl") == []
    words = messages.PATTERNS["no_cuda"].split()[0]
    assert messages.find(OUTPUT.replace(words, words.swapcase()), "no_cuda") == []
    assert messages.find(OUTPUT.replace("]: ", "]:  "), "no_cuda") == []


def test_rest_of_the_output_stays():
    assert messages.without(OUTPUT, *messages.DENIED) == "before\nafter\n"
    assert messages.without(OUTPUT, "no_nvml") == OUTPUT


def test_unknown_names_and_fields_are_errors():
    """Otherwise, a test that expects no message could not fail."""
    for values in ({"asked": "x"}, {"asked": None}):
        with pytest.raises(AssertionError):
            messages.find("", "no_cuda", **values)
    with pytest.raises(KeyError):
        messages.find("", "no_such_name")
    with pytest.raises(AssertionError):
        messages.text("no_cuda", asked="x")
