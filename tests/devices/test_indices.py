# SPDX-License-Identifier: Apache-2.0
"""VALIDATE and CLAMP apply to the calls that take a device index."""

import re

from support import box, messages

VIEW = [5, 2, 7]
ALLOW = "5,2,7"
# Each entry has a program, the steps before, and the prefix of its runtime's steps.
RUNTIMES = [("open", "rt12."), ("open", "rt13."), ("runtime12", "rt."), ("runtime13", "rt."),
            ("mixed", "rt."), ("mixed_now", "rt.")]
CALLS = {"set": "cudaSetDevice", "initdevice": "cudaInitDevice",
         "properties": "cudaGetDeviceProperties", "properties2": "cudaGetDeviceProperties",
         "attribute": "cudaDeviceGetAttribute"}
DRIVERS = [("open", []), ("open", ["cu.route=proc"]), ("cuda", []), ("cuda_now", []), ("mixed", [])]
VISIBLE = {"visible": messages.text("visible", last=2), "gpus": "GPUs 5,2,7"}
TOO_HIGH = ("3", "100", "2147483647")
NEGATIVE = ("-1", "-2147483648")


def good_answer(call, position):
    """Returns the step's answer for the device at this position."""
    gpu = VIEW[position]
    if call == "attribute":
        return "0:%d" % box.GPUS[gpu][1]
    if call.startswith("properties"):
        return "0:%s:Box_GPU_%d" % (box.GPUS[gpu][0], gpu)
    return "0"


def bad_answer(call):
    return {"attribute": "101:-7", "properties": "101:", "properties2": "101:"}.get(call, "101")


class Runtime(box.Case):

    def each(self):
        for name, prefix in RUNTIMES:
            for call, api in CALLS.items():
                yield name, prefix, call, api

    def run_call(self, name, prefix, call, index, policy, after=("peek", "last", "last"), **more):
        steps = [prefix + call + "=" + index] + [prefix + step for step in after]
        return box.run(steps, name, policy=policy, allow=ALLOW, **more)

    def test_control_bad_index_is_an_error_without_the_guard(self):
        """CUDA's own variable makes a view of three GPUs."""
        own = ",".join(box.uuid(gpu) for gpu in VIEW)
        for name, prefix, call, _ in self.each():
            for index, wanted, error in (("2", good_answer(call, 2), "0"),
                                         ("3", bad_answer(call), "101"),
                                         ("-1", bad_answer(call), "101")):
                with self.subTest(program=name, call=call, index=index):
                    result = box.run([prefix + call + "=" + index, prefix + "peek",
                                      prefix + "last"], name, guard=False, own=own)
                    self.assertEqual(result.answers[prefix + call], wanted, result)
                    self.assertEqual(result.answers[prefix + "peek"], error, result)
                    self.assertEqual(result.answers[prefix + "last"], error, result)

    def test_good_index_stays_and_makes_no_message(self):
        for name, prefix, call, _ in self.each():
            for policy in ("VALIDATE", "CLAMP"):
                for position in range(3):
                    with self.subTest(program=name, call=call, policy=policy, index=position):
                        result = self.run_call(name, prefix, call, str(position), policy)
                        self.silent(result)
                        self.assertEqual(result.answers[prefix + call],
                                         good_answer(call, position), result)
                        self.assertEqual(result.answers[prefix + "peek"], "0", result)

    def test_validate_keeps_the_error_and_prints_a_message(self):
        """The answer and the error state are as without the guard."""
        for name, prefix, call, api in self.each():
            for index in TOO_HIGH + NEGATIVE:
                with self.subTest(program=name, call=call, index=index):
                    result = self.run_call(name, prefix, call, index, "VALIDATE")
                    self.assertEqual(result.rc, 0, result)
                    self.assertEqual(result.out.split(),
                                     ["%s%s=%s" % (prefix, call, bad_answer(call)),
                                      prefix + "peek=101", prefix + "last=101", prefix + "last=0"],
                                     result)
                    self.message(result, "bad_index", call=re.compile(api + "(_v2)?"), device=index,
                                 used=None, **VISIBLE)

    def test_clamp_uses_the_last_device(self):
        """The answers are as if the program had asked for the last valid device."""
        for name, prefix, call, api in self.each():
            for index in TOO_HIGH:
                with self.subTest(program=name, call=call, index=index):
                    result = self.run_call(name, prefix, call, index, "CLAMP")
                    self.assertEqual(result.rc, 0, result)
                    self.assertEqual(result.out.split(),
                                     ["%s%s=%s" % (prefix, call, good_answer(call, 2)),
                                      prefix + "peek=0", prefix + "last=0", prefix + "last=0"],
                                     result)
                    self.message(result, "bad_index", call=re.compile(api + "(_v2)?"), device=index,
                                 used=2)

    def test_refusal_names_the_index_that_the_program_gave(self):
        """The device that CLAMP uses instead may fail, too."""
        for name, prefix, call, api in self.each():
            with self.subTest(program=name, call=call):
                result = self.run_call(name, prefix, call, "9", "CLAMP", after=(), CG_FAILED="2")
                self.assertEqual(result.answers[prefix + call], bad_answer(call), result)
                self.one_line(result, api, "device 9", "device 2 is used instead")

    def test_negative_index_is_never_clamped(self):
        for name, prefix, call, api in self.each():
            for index in NEGATIVE:
                with self.subTest(program=name, call=call, index=index):
                    result = self.run_call(name, prefix, call, index, "CLAMP")
                    self.assertEqual(result.out.split(),
                                     ["%s%s=%s" % (prefix, call, bad_answer(call)),
                                      prefix + "peek=101", prefix + "last=101", prefix + "last=0"],
                                     result)
                    self.message(result, "bad_index", call=re.compile(api + "(_v2)?"), device=index,
                                 used=None)

    def test_clamped_selection_is_in_use_and_a_refused_one_is_not(self):
        for name, prefix in RUNTIMES:
            for policy, wanted in (("CLAMP", "0:2"), ("VALIDATE", "0:1")):
                with self.subTest(program=name, policy=policy):
                    steps = [prefix + step for step in ("set=1", "set=9", "current", "sync")]
                    result = box.run(steps, name, allow=ALLOW, policy=policy)
                    self.assertEqual(result.answers[prefix + "current"], wanted, result)
                    self.assertEqual(result.answers[prefix + "sync"], "0", result)

    def test_clamped_call_keeps_an_earlier_error(self):
        """A success does not clear the runtime's last error, nor does a clamped call."""
        for name, prefix in RUNTIMES:
            for call in CALLS:
                with self.subTest(program=name, call=call):
                    steps = [prefix + step for step in ("free=1", call + "=9", "peek", "last")]
                    result = box.run(steps, name, allow=ALLOW, policy="CLAMP")
                    self.assertEqual(result.answers[prefix + "free"], "1", result)
                    self.assertEqual(result.answers[prefix + call], good_answer(call, 2), result)
                    self.assertEqual(result.answers[prefix + "peek"], "1", result)
                    self.assertEqual(result.answers[prefix + "last"], "1", result)

    def test_clamp_without_a_device_keeps_the_error(self):
        for name, prefix, call, _ in self.each():
            with self.subTest(program=name, call=call):
                steps = [prefix + call + "=0", prefix + call + "=3"]
                unguarded = box.run(steps, name, guard=False, own="-1")
                result = box.run(steps, name, allow=ALLOW, own="-1", policy="CLAMP")
                self.assertEqual(result.out, unguarded.out, result)
                self.assertIn("=100", result.out, result)

    def test_policies_without_an_allow_list_check_all_gpus(self):
        """VALIDATE and CLAMP alone show all GPUs of the machine in the driver's own order."""
        for policy in ("VALIDATE", "CLAMP"):
            result = box.run(["cu.see", "nv.see", "rt12.see", "rt13.see"], policy=policy)
            self.silent(result)
            self.sees(result, cu=box.FASTEST, rt12=box.FASTEST, rt13=box.FASTEST, nv=box.ALL)
            result = box.run(["rt12.set=8", "rt12.current"], policy=policy)
            self.message(result, "bad_index", call="cudaSetDevice", device=8,
                         visible=messages.text("visible", last=7))
            self.assertEqual(result.answers["rt12.current"],
                             "0:7" if policy == "CLAMP" else "0:0", result)


class Driver(box.Case):

    def test_control_bad_index_is_an_error_without_the_guard(self):
        for name, steps in DRIVERS:
            unguarded = box.run(steps + ["cu.init", "cu.get=2"], name, guard=False, own="5,2,7")
            self.assertEqual(unguarded.answers["cu.get"], "0:2", unguarded)
            unguarded = box.run(steps + ["cu.init", "cu.get=3"], name, guard=False, own="5,2,7")
            self.assertEqual(unguarded.answers["cu.get"], "101:-7", unguarded)

    def test_validate_keeps_the_error_and_prints_a_message(self):
        for name, steps in DRIVERS:
            for index in TOO_HIGH + NEGATIVE:
                with self.subTest(program=name, steps=steps, index=index):
                    result = box.run(steps + ["cu.init", "cu.get=" + index], name, allow=ALLOW)
                    self.assertEqual(result.answers["cu.get"], "101:-7", result)
                    self.message(result, "bad_index", call="cuDeviceGet", device=index, **VISIBLE)

    def test_clamp_uses_the_last_device_unless_the_index_is_negative(self):
        for name, steps in DRIVERS:
            for index in TOO_HIGH + NEGATIVE:
                with self.subTest(program=name, steps=steps, index=index):
                    result = box.run(steps + ["cu.init", "cu.get=" + index], name, allow=ALLOW,
                                     policy="CLAMP")
                    if index in TOO_HIGH:
                        self.assertEqual(result.answers["cu.get"], "0:2", result)
                        self.message(result, "bad_index", call="cuDeviceGet", device=index, used=2)
                    else:
                        self.assertEqual(result.answers["cu.get"], "101:-7", result)
                        self.message(result, "bad_index", call="cuDeviceGet", device=index,
                                     used=None)

    def test_call_before_cuinit_gets_error_3_and_no_message(self):
        for policy in ("VALIDATE", "CLAMP"):
            for name, steps in DRIVERS:
                result = box.run(steps + ["cu.get=9"], name, allow=ALLOW, policy=policy)
                self.assertEqual(result.answers["cu.get"], "3:-7", result)
                self.silent(result)

    def test_good_index_stays_and_makes_no_message(self):
        for name, steps in DRIVERS:
            result = box.run(steps + ["cu.init", "cu.get=2"], name, allow=ALLOW, policy="CLAMP")
            self.assertEqual(result.answers["cu.get"], "0:2", result)
            self.silent(result)


class Lines(box.Case):

    def test_each_call_and_index_makes_one_message(self):
        """Another index, or another call, makes one more message."""
        for policy in ("VALIDATE", "CLAMP"):
            with self.subTest(policy=policy):
                again = ["rt12.set=9"] * 5 + ["cu.get=9"] * 5
                result = box.run(["cu.init"] + again, allow=ALLOW, policy=policy)
                self.assertEqual(len(box.lines(result)), 2, result)
                result = box.run(again + ["rt12.set=8", "rt12.attribute=9", "rt12.set=-1"] + again,
                                 allow=ALLOW, policy=policy)
                self.assertEqual(len(box.lines(result)), 5, result)

    def test_message_suggests_the_position_in_the_view(self):
        """The program used the machine's number of a visible GPU, and the message suggests its
        position in the view."""
        for asked, meant in (("5", "0"), ("7", "2")):
            for step in ("rt12.set=", "rt13.set=", "cu.get="):
                result = box.run(["cu.init", step + asked], allow=ALLOW)
                self.message(result, "bad_index", meant=meant)
        result = box.run(["cu.init", "cu.get=4"], allow=ALLOW)
        self.message(result, "bad_index", meant=None)

    def test_message_suggests_the_position_without_a_list(self):
        """The same holds for the program's own CUDA_VISIBLE_DEVICES."""
        result = box.run(["rt12.set=6"], policy="VALIDATE", own="6,4")
        self.message(result, "bad_index", visible=messages.text("visible", last=1), meant=0,
                     gpus="CUDA_VISIBLE_DEVICES=6,4")

    def test_message_lists_the_gpus_that_the_program_sees(self):
        """The message lists the GPUs that the program sees, by the machine's numbers."""
        result = box.run(["setenv=CUDA_VISIBLE_DEVICES=2,0", "rt12.set=7"], allow=ALLOW)
        self.message(result, "bad_index", visible=messages.text("visible", last=1), meant=0,
                     gpus="GPUs 7,5")

    def test_log_off_prints_no_message_and_still_clamps(self):
        result = box.run(["rt12.set=9", "rt12.current"], allow=ALLOW, policy="CLAMP",
                         CUDAGUARD_LOG="off")
        self.silent(result)
        self.assertEqual(result.answers["rt12.current"], "0:2", result)

    def test_message_names_the_caller(self):
        result = box.run(["rt12.set=9"], allow=ALLOW)
        self.message(result, "bad_index", asked_by="runtime_12.so")
        result = box.run(["rt.set=9"], "runtime13", allow=ALLOW)
        self.message(result, "bad_index", asked_by="runtime13")
        result = box.run(["cu.init", "cu.get=9"], allow=ALLOW)
        self.message(result, "bad_index", asked_by="open")
