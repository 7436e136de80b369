# SPDX-License-Identifier: Apache-2.0
"""Each test takes the remedy out of a message and follows it, and the remedy works."""

import os
import shlex

from support import box, harness, messages
from support.box import uuid

LAUNCHER = os.path.join(harness.BUILD, "bin", "cudaguard")
LATE_WRITES = ("late_write", "late_write_unread")


class Case(box.Case):

    def launch(self, words, steps, name="open", **more):
        """Runs the program under `cudaguard run`."""
        return harness.run([LAUNCHER, "run", *words, "--", box.program(name), *steps], world="none",
                           guard=False, trace=False, env=box.environment(**more))

    def advice(self, result):
        """Returns the advice of the only message, which is about a late write."""
        self.assertEqual(len(box.lines(result)), 1, result)
        found, = messages.find(result.err, *LATE_WRITES)
        return found["advice"]


class LateWrite(Case):
    """A program writes CUDA_VISIBLE_DEVICES after CUDA has counted the GPUs for it."""

    def steps(self, written, first="nv.see"):
        return [first, "setenv=CUDA_VISIBLE_DEVICES=" + written, "cu.see", "rt12.count"]

    def setting(self, advice):
        """Returns the setting that the message advises."""
        for name in ("start_with_one", "start_with_list", "start_with"):
            if found := messages.read(name, advice):
                return found["setting"]
        return self.fail(advice)

    def follow(self, setting, machine):
        """Starts the program as the message advises. It uses device 0 and does not write the
        variable."""
        words = shlex.split(setting)
        steps = ["nv.see", "cu.see", "rt12.see"]
        if words[0] == "cudaguard":
            return self.launch(words[2:], steps, box=machine)
        name, _, value = words[0].partition("=")
        self.assertEqual((name, len(words)), ("CUDAGUARD_VISIBLE_DEVICES", 1), setting)
        return box.run(steps, box=machine, allow=value)

    def test_advised_list_works(self):
        for machine, written in (("lazy", "2"), ("lazy", "2,5"), ("lazy", "7,0"), ("lazy", "5, 2"),
                                 ("lazy", uuid(3)), ("driver", "0")):
            for first in ("nv.see", "cu.see"):
                if first == "cu.see" and written.startswith("GPU-"):
                    continue  # a later test covers this
                for place in ("variable", "run"):
                    with self.subTest(machine=machine, written=written, first=first, place=place):
                        steps = self.steps(written, first)
                        more = {"box": machine, "own": "0,1" if machine == "lazy" else None}
                        if first == "cu.see":
                            more["own"] = None
                        result = (box.run(steps, policy="VALIDATE", **more) if place == "variable"
                                  else self.launch(["--policy", "VALIDATE"], steps, **more))
                        if machine == "driver" and first == "nv.see":
                            # The program knows of one GPU, and the machine has one.
                            self.silent(result)
                            continue
                        setting = self.setting(self.advice(result))
                        self.assertEqual(setting.startswith("cudaguard run --gpus "), place == "run",
                                         setting)
                        fixed = self.follow(setting, machine)
                        self.silent(fixed)
                        gpus = box.seen(fixed.answers["nv.see"])
                        self.assertEqual(len(gpus), written.count(",") + 1, fixed)
                        self.sees(fixed, cu=gpus, rt12=gpus)

    def test_advised_list_that_hides_all_gpus_works(self):
        for written in ("", "-1"):
            for place in ("variable", "run"):
                with self.subTest(written=written, place=place):
                    steps = self.steps(written)
                    result = (box.run(steps, policy="VALIDATE") if place == "variable" else
                              self.launch(["--policy", "VALIDATE"], steps))
                    fixed = self.follow(self.setting(self.advice(result)), "lazy")
                    self.sees(fixed, nv="!9", cu="!100", rt12="!100")
                    self.assertEqual(messages.find(fixed.err, *LATE_WRITES), [], fixed)

    def test_missing_gpu_is_explained_without_advice(self):
        """The same value would be refused as a list, and the message says why."""
        for machine, written, name, values in (
                ("driver", "2", "entry_unknown", (1, "2", "1 GPU")),
                ("driver", "1", "entry_unknown", (1, "1", "1 GPU")),
                ("lazy", "8", "entry_unknown", (1, "8", "8 GPUs")),
                ("lazy", "2,99", "entry_unknown", (2, "99", "8 GPUs")),
                ("lazy", "2,2", "entry_repeated", (2, "2")),
                ("lazy", "nonsense", "entry_bad", (1, "nonsense"))):
            mistake = messages.text(name, **dict(zip(("position", "entry", "gpus"), values)))
            for place in ("variable", "run"):
                with self.subTest(machine=machine, written=written, place=place):
                    steps = self.steps(written)
                    result = (box.run(steps, policy="VALIDATE", box=machine) if place == "variable"
                              else self.launch(["--policy", "VALIDATE"], steps, box=machine))
                    self.assertEqual(self.advice(result),
                                     messages.text("new_value_wrong", mistake=mistake), result)
                    # Control: that list is refused.
                    refused = box.run(["cu.see"], box=machine, allow=written)
                    self.sees(refused, cu="!100")
                    self.assertTrue(messages.find(refused.err, "list_wrong", mistake=mistake), refused)

    def test_value_with_unknown_gpus_works_from_the_start(self):
        """CUDA had counted the GPUs of an older value, or the new value is a UUID that was not read
        yet. The value works if it is set from the start."""
        for own, written in (("0,1", "5"), (None, uuid(3))):
            result = box.run(self.steps(written, "cu.see"), policy="VALIDATE", own=own)
            self.assertEqual(self.advice(result), messages.text("start_later"))
            fixed = box.run(["cu.see", "rt12.see"], policy="VALIDATE", own=written)
            self.silent(fixed)
            self.assertEqual(len(box.seen(fixed.answers["cu.see"])), 1, fixed)

    def test_advice_to_unset_the_variable_works(self):
        result = box.run(["nv.see", "unsetenv=CUDA_VISIBLE_DEVICES", "cu.see"], policy="VALIDATE",
                         own="0,1")
        self.assertEqual(self.advice(result), messages.text("start_without"))
        fixed = box.run(["nv.see", "unsetenv=CUDA_VISIBLE_DEVICES", "cu.see"], policy="VALIDATE")
        self.silent(fixed)

    def test_device_named_inside_the_option_works(self):
        steps = ["nv.see", "setenv=CUDA_VISIBLE_DEVICES=5", "cu.see"]
        advice = self.advice(self.launch(["--gpus", "2,5"], steps))
        inside = messages.read("inside_list", advice)
        self.assertEqual((inside["list"], inside["gpu"]), ("--gpus 2,5", "5"), advice)
        steps[1] = "setenv=CUDA_VISIBLE_DEVICES=" + inside["device"]
        self.sees(self.launch(["--gpus", "2,5"], steps), cu=[5])


class NoGpu(Case):
    """The list is for a machine without a GPU, or with a broken one."""

    def each(self, steps, **more):
        """Returns how a message names the list, and the run: once with the variable and once with
        the option."""
        yield 'CUDAGUARD_VISIBLE_DEVICES="0,2"', box.run(steps, allow="0,2", **more)
        yield '--gpus "0,2"', self.launch(["--gpus", "0,2"], steps, **more)

    def test_missing_gpu_is_reported(self):
        for more in ({"CG_SICK": "100"}, {"CG_SICK": "100", "CG_EMPTY": "1"}, {"CG_EMPTY": "1"}):
            unguarded = box.run(["cu.init"], guard=False, **more)
            self.assertEqual(unguarded.answers["cu.init"], more.get("CG_SICK", "0"), unguarded)
            for named, result in self.each(["nv.count", "cu.init", "cu.count", "rt12.count"], **more):
                with self.subTest(named=named, **more):
                    self.assertEqual(result.answers["cu.init"], "100", result)
                    self.assertEqual(result.answers["cu.count"][:1], "3", result)
                    self.message(result, "list_in_vain", list=named, reason=messages.text("no_gpu"))

    def test_nvml_shows_no_gpu_as_well(self):
        for named, result in self.each(["nv.see", "nv.get=0", "cu.init"], CG_EMPTY="1"):
            self.sees(result, nv=[])
            self.assertEqual(result.answers["nv.get"], "2:null", result)
            self.message(result, "list_in_vain", list=named, reason=messages.text("no_gpu"))

    def test_broken_driver_is_reported_and_doctor_finds_it(self):
        for more in ({"CG_SICK": "999"}, {"CG_SICK": "999", "CG_EMPTY": "1"}, {"CG_SICK": "802"}):
            code = more["CG_SICK"]
            for named, result in self.each(["cu.init", "cu.init", "rt12.count"], **more):
                with self.subTest(named=named, **more):
                    self.assertEqual(result.answers["cu.init"], code, result)
                    found = self.message(result, "list_in_vain", list=named,
                                         reason=messages.text("driver_fails", error=code))
                    doctor = harness.run([LAUNCHER, *found["remedy"].split()[1:]], world="none",
                                         guard=False, trace=False, env=box.environment(**more))
                    self.assertRegex(doctor.out, r"\b%s\b" % code)

    def test_healthy_machine_prints_nothing(self):
        for _, result in self.each(["cu.see"]):
            self.silent(result)
            self.sees(result, cu=[0, 2])


class Names(Case):
    """A message names what the user has written: the option or the variable."""

    def test_message_names_the_option(self):
        for name, named, gpus, more in (("list_wrong", '--gpus "9"', "9", {}),
                                        ("list_not_shown", "--gpus", "2", {"box": "liar"}),
                                        ("list_in_vain", '--gpus "0"', "0", {"box": "only_nvml"})):
            with self.subTest(name=name):
                result = self.launch(["--gpus", gpus], ["cu.open", "cu.init"], **more)
                self.assertTrue(messages.find(box.lines(result)[0], name, list=named), result)
                self.assertNotIn("CUDAGUARD_", result.err, result)

    def test_list_without_a_gpu_is_named(self):
        for allow in ("", "-1"):
            result = self.launch(["--gpus", allow], ["cu.see"])
            self.sees(result, cu="!100")
            self.message(result, "no_cuda", cause=messages.text("no_gpu_allowed", list="--gpus"))
            result = box.run(["cu.see"], allow=allow)
            self.message(result, "no_cuda", cause=messages.text("no_gpu_allowed",
                                                                list="CUDAGUARD_VISIBLE_DEVICES"))

    def test_list_that_replaces_the_option_is_named(self):
        """The run starts another program with its own value of the variable."""
        result = self.launch(["--gpus", "0,1"], ["cu.see", "setenv=CUDAGUARD_VISIBLE_DEVICES=9",
                                                 "spawn=s", "cu.init", "end"])
        self.sees(result, cu=[0, 1])
        self.assertTrue(messages.find(result.err, "list_wrong",
                                      list='CUDAGUARD_VISIBLE_DEVICES="9"'), result)

    def test_option_of_an_inner_run_is_named(self):
        inner = [LAUNCHER, "run", "--gpus", "9", "--", box.program("open"), "cu.init"]
        result = harness.run([LAUNCHER, "run", "--gpus", "0,1", "--"] + inner, world="none",
                             guard=False, trace=False, env=box.environment())
        self.assertTrue(messages.find(result.err, "list_wrong", list='--gpus "9"'), result)


class OtherRemedies(Case):

    def test_fork_message_advises_spawn_or_a_later_init(self):
        steps = ["cu.init", "fork=c", "cu.init", "end"]
        self.message(box.run(steps, policy="VALIDATE"), "fork")
        for fixed in (["cu.init", "spawn=c", "cu.init", "end"],
                      ["fork=c", "cu.init", "end", "cu.init"]):
            result = box.run(fixed, policy="VALIDATE")
            self.silent(result)
            self.assertEqual((result.answers["cu.init"], result.answers["c.cu.init"]), ("0", "0"))

    def test_advised_root_works(self):
        more = {"policy": "VALIDATE", "CUDAGUARD_CHILDREN": "FORCE_CPU"}
        steps = ["cu.init", "spawn=c", "cu.init", "end"]
        result = box.run(steps, **more)
        self.assertEqual(result.answers["cu.init"], "100", result)
        remedy = messages.find(result.err, "root_missing")[0]["remedy"]
        words = shlex.split(remedy)
        program = shlex.join([box.program("open"), *steps])
        words[2] = words[2].replace("APP", program)
        fixed = harness.run(words, world="none", trace=False, env=box.environment(**more))
        self.assertEqual((fixed.answers["cu.init"], fixed.answers["c.cu.init"]), ("0", "100"), fixed)
        self.assertEqual(messages.find(fixed.err, "root_missing"), [], fixed)

    def test_suggested_device_works(self):
        found = self.message(box.run(["rt12.set=5"], allow="2,5"), "bad_index")
        fixed = box.run(["rt12.set=" + found["meant"]], allow="2,5")
        self.silent(fixed)
        self.assertEqual(fixed.answers["rt12.set"], "0", fixed)
