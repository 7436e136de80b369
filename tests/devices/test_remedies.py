# SPDX-License-Identifier: Apache-2.0
"""Each test takes the remedy out of a message and follows it, and the remedy works."""

import os
import re
import shlex

from support import box, harness
from support.box import uuid

LAUNCHER = os.path.join(harness.BUILD, "bin", "cudaguard")
START = re.compile(r"Start the program with ((?:CUDAGUARD_VISIBLE_DEVICES=|cudaguard run ).*?)"
                   r"(?: and use device 0|; its devices|$)")


class Case(box.Case):

    def launch(self, words, steps, name="open", **more):
        """Runs the program under `cudaguard run`."""
        return harness.run([LAUNCHER, "run", *words, "--", box.program(name), *steps], world="none",
                           guard=False, trace=False, env=box.environment(**more))

    def one(self, result):
        self.assertEqual(len(box.lines(result)), 1, result)
        return box.lines(result)[0]


class LateWrite(Case):
    """A program writes CUDA_VISIBLE_DEVICES after CUDA has counted the GPUs for it."""

    def steps(self, written, first="nv.see"):
        return [first, "setenv=CUDA_VISIBLE_DEVICES=" + written, "cu.see", "rt12.count"]

    def follow(self, line, machine):
        """Starts the program as the message advises. It uses device 0 and does not write the
        variable."""
        found = START.search(line)
        self.assertIsNotNone(found, line)
        words = shlex.split(found[1])
        steps = ["nv.see", "cu.see", "rt12.see"]
        if words[0] == "cudaguard":
            return self.launch(words[2:], steps, box=machine)
        name, _, value = words[0].partition("=")
        self.assertEqual((name, len(words)), ("CUDAGUARD_VISIBLE_DEVICES", 1), line)
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
                        line = self.one(result)
                        self.assertEqual("cudaguard run --gpus" in line, place == "run", line)
                        fixed = self.follow(line, machine)
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
                    fixed = self.follow(self.one(result), "lazy")
                    self.sees(fixed, nv="!9", cu="!100", rt12="!100")
                    self.assertNotIn("Start the program", fixed.err, fixed)

    def test_missing_gpu_is_explained_without_advice(self):
        """The same value would be refused as a list, and the message says why."""
        for machine, written, words in (
                ("driver", "2", 'entry 1 "2" does not exist (this machine has 1 GPU)'),
                ("driver", "1", 'entry 1 "1" does not exist (this machine has 1 GPU)'),
                ("lazy", "8", 'entry 1 "8" does not exist (this machine has 8 GPUs)'),
                ("lazy", "2,99", 'entry 2 "99" does not exist (this machine has 8 GPUs)'),
                ("lazy", "2,2", 'entry 2 "2" repeats a GPU'),
                ("lazy", "nonsense", 'entry 1 "nonsense" is not accepted')):
            for place in ("variable", "run"):
                with self.subTest(machine=machine, written=written, place=place):
                    steps = self.steps(written)
                    result = (box.run(steps, policy="VALIDATE", box=machine) if place == "variable"
                              else self.launch(["--policy", "VALIDATE"], steps, box=machine))
                    self.one_line(result, ". In the new value, " + words)
                    self.assertNotIn("Start the program", result.err, result)
                    # Control: that list is refused.
                    refused = box.run(["cu.see"], box=machine, allow=written)
                    self.sees(refused, cu="!100")
                    self.assertIn(words, refused.err, refused)

    def test_value_with_unknown_gpus_works_from_the_start(self):
        """CUDA had counted the GPUs of an older value, or the new value is a UUID that was not read
        yet. The value works if it is set from the start."""
        for own, written in (("0,1", "5"), (None, uuid(3))):
            result = box.run(self.steps(written, "cu.see"), policy="VALIDATE", own=own)
            self.assertIn("Set it before the program starts", self.one(result))
            fixed = box.run(["cu.see", "rt12.see"], policy="VALIDATE", own=written)
            self.silent(fixed)
            self.assertEqual(len(box.seen(fixed.answers["cu.see"])), 1, fixed)

    def test_advice_to_unset_the_variable_works(self):
        result = box.run(["nv.see", "unsetenv=CUDA_VISIBLE_DEVICES", "cu.see"], policy="VALIDATE",
                         own="0,1")
        self.assertIn("Start the program without CUDA_VISIBLE_DEVICES", self.one(result))
        fixed = box.run(["nv.see", "unsetenv=CUDA_VISIBLE_DEVICES", "cu.see"], policy="VALIDATE")
        self.silent(fixed)

    def test_device_named_inside_the_option_works(self):
        steps = ["nv.see", "setenv=CUDA_VISIBLE_DEVICES=5", "cu.see"]
        line = self.one(self.launch(["--gpus", "2,5"], steps))
        found = re.search(r"Inside --gpus 2,5, devices are numbered from 0: "
                          r"GPU 5 is device (\d)$", line)
        self.assertIsNotNone(found, line)
        steps[1] = "setenv=CUDA_VISIBLE_DEVICES=" + found[1]
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
                    self.assertTrue(self.one(result).endswith(
                        named + ": this machine shows no GPU; to find the cause: cudaguard doctor"))

    def test_nvml_shows_no_gpu_as_well(self):
        for named, result in self.each(["nv.see", "nv.get=0", "cu.init"], CG_EMPTY="1"):
            self.sees(result, nv=[])
            self.assertEqual(result.answers["nv.get"], "2:null", result)
            self.assertIn(named + ": this machine shows no GPU", self.one(result))

    def test_broken_driver_is_reported_and_doctor_finds_it(self):
        for more in ({"CG_SICK": "999"}, {"CG_SICK": "999", "CG_EMPTY": "1"}, {"CG_SICK": "802"}):
            code = more["CG_SICK"]
            for named, result in self.each(["cu.init", "cu.init", "rt12.count"], **more):
                with self.subTest(named=named, **more):
                    self.assertEqual(result.answers["cu.init"], code, result)
                    line = self.one(result)
                    remedy = re.search(r"; to find the cause: (cudaguard doctor)$", line)
                    self.assertIn(named + ": the driver fails with error %s;" % code, line)
                    self.assertIsNotNone(remedy, line)
                    doctor = harness.run([LAUNCHER, *remedy[1].split()[1:]], world="none",
                                         guard=False, trace=False, env=box.environment(**more))
                    self.assertRegex(doctor.out, r"\b%s\b" % code)

    def test_healthy_machine_prints_nothing(self):
        for _, result in self.each(["cu.see"]):
            self.silent(result)
            self.sees(result, cu=[0, 2])


class Names(Case):
    """A message names what the user has written: the option or the variable."""

    def test_message_names_the_option(self):
        wrong = 'entry 1 "9" does not exist (this machine has 8 GPUs); FORCE_CPU applies'
        shows = ": the driver does not show the GPUs that were chosen"
        for words, more in (('--gpus "9": ' + wrong, {"list": "9"}),
                            ("--gpus" + shows, {"list": "2", "box": "liar"}),
                            ('--gpus "0": NVIDIA\'s driver is not installed;',
                             {"list": "0", "box": "only_nvml"})):
            with self.subTest(words=words):
                more = dict(more)
                result = self.launch(["--gpus", more.pop("list")], ["cu.open", "cu.init"], **more)
                self.assertIn(words, box.lines(result)[0], result)
                self.assertNotIn("CUDAGUARD_", result.err, result)

    def test_list_without_a_gpu_is_named(self):
        for allow in ("", "-1"):
            result = self.launch(["--gpus", allow], ["cu.see"])
            self.sees(result, cu="!100")
            self.assertIn("no CUDA here (--gpus allows no GPU; ", self.one(result))
            result = box.run(["cu.see"], allow=allow)
            self.assertIn("no CUDA here (CUDAGUARD_VISIBLE_DEVICES allows no GPU; ", self.one(result))

    def test_list_that_replaces_the_option_is_named(self):
        """The run starts another program with its own value of the variable."""
        result = self.launch(["--gpus", "0,1"], ["cu.see", "setenv=CUDAGUARD_VISIBLE_DEVICES=9",
                                                 "spawn=s", "cu.init", "end"])
        self.sees(result, cu=[0, 1])
        self.assertIn('CUDAGUARD_VISIBLE_DEVICES="9": entry 1 "9"', result.err, result)

    def test_option_of_an_inner_run_is_named(self):
        inner = [LAUNCHER, "run", "--gpus", "9", "--", box.program("open"), "cu.init"]
        result = harness.run([LAUNCHER, "run", "--gpus", "0,1", "--"] + inner, world="none",
                             guard=False, trace=False, env=box.environment())
        self.assertIn('--gpus "9": entry 1 "9" does not exist', result.err, result)


class OtherRemedies(Case):

    def test_fork_message_advises_spawn_or_a_later_init(self):
        steps = ["cu.init", "fork=c", "cu.init", "end"]
        line = self.one(box.run(steps, policy="VALIDATE"))
        self.assertIn("Start this process by spawn, or initialise CUDA after the fork", line)
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
        remedy = re.search(r"CUDAGUARD_CHILDREN needs CUDAGUARD_ROOT: (sh -c '.*');", result.err)
        self.assertIsNotNone(remedy, result)
        words = shlex.split(remedy[1])
        program = shlex.join([box.program("open"), *steps])
        words[2] = words[2].replace("APP", program)
        fixed = harness.run(words, world="none", trace=False, env=box.environment(**more))
        self.assertEqual((fixed.answers["cu.init"], fixed.answers["c.cu.init"]), ("0", "100"), fixed)
        self.assertNotIn("needs", fixed.err, fixed)

    def test_suggested_device_works(self):
        line = self.one(box.run(["rt12.set=5"], allow="2,5"))
        meant = re.search(r"did you mean (\d+)\?$", line)
        fixed = box.run(["rt12.set=" + meant[1]], allow="2,5")
        self.silent(fixed)
        self.assertEqual(fixed.answers["rt12.set"], "0", fixed)
