# SPDX-License-Identifier: Apache-2.0
"""The guard reports and records failures: a cuInit or nvmlInit that finds no GPU, a missing driver,
a forked child's error 3."""

import json
import os
import tempfile

from support import box, harness, messages

EVERY_POLICY = ({"policy": "VALIDATE"}, {"policy": "CLAMP"}, {"allow": "0,2"})
# The machines have a driver without a GPU, the same without NVML, and no driver.
SICK = {"CG_SICK": "100"}
NO_DRIVER = {"box": "only_nvml"}


class NoGpu(box.Case):

    def results(self, records, event="init"):
        self.assertEqual({record["decision"] for record in records}, {"allow"}, records)
        return [(record["pid"], record["result"]) for record in records
                if record["event"] == event]

    def test_control_fake_drivers_fail_without_the_guard(self):
        unguarded = box.run(["pid", "cu.init", "nv.init"], guard=False, **SICK)
        self.assertEqual((unguarded.answers["cu.init"], unguarded.answers["nv.init"]), ("100", "9"),
                         unguarded)
        self.assertEqual(unguarded.fake_calls, ["cuInit", "nvmlInit_v2", "nvmlInitWithFlags"],
                         unguarded)
        unguarded = box.run(["cu.open", "cu.init"], guard=False, **NO_DRIVER)
        self.assertEqual((unguarded.answers["cu.open"], unguarded.answers["cu.init"]),
                         ("null", "-999"), unguarded)
        unguarded = box.run(["cu.init", "fork=c", "cu.init", "end"], guard=False)
        self.assertEqual(unguarded.answers["c.cu.init"], "3", unguarded)

    def test_each_result_of_an_init_is_recorded_once(self):
        """The record has the caller. A success after an error is recorded, too."""
        for more in EVERY_POLICY:
            for code in (100, 3, 999):
                with self.subTest(code=code, **more):
                    steps = ["pid", "cu.init", "cu.init", "nv.init", "nv.init"]
                    result, records = self.run_reported(steps, CG_SICK=str(code), **more)
                    own = int(result.answers["pid"])
                    self.assertEqual(result.answers["cu.init"], str(code), result)
                    self.assertEqual(self.results(records), [(own, code)])
                    self.assertEqual(self.results(records, "nvml"), [(own, 9)])
                    for record in records:
                        self.assertRegex(record["caller"], r"/programs/open\+0x", record)
        for name, steps in (("open", ["cu.init", "nv.init"]), ("cuda", ["cu.init"]),
                            ("nvml", ["nv.init"])):
            with self.subTest(program=name):
                _, records = self.run_reported(steps + ["unsetenv=CG_SICK"] + steps, name,
                                               policy="VALIDATE", **SICK)
                for step, event, failed in (("cu.init", "init", 100), ("nv.init", "nvml", 9)):
                    self.assertEqual([code for _, code in self.results(records, event)],
                                     [failed, 0] if step in steps else [], records)

    def test_list_without_a_gpu_is_reported_once(self):
        """Only CUDAGUARD_LOG=off silences the message, and every caller gets it."""
        for name, steps in (("open", ["cu.init", "cu.init", "rt12.count", "cu.see"]),
                            ("open", ["rt13.count"]), ("cuda", ["cu.init"]),
                            ("runtime13", ["rt.count"])):
            with self.subTest(program=name, steps=steps):
                result = box.run(steps, name, allow="0,2", **SICK)
                self.message(result, "list_in_vain", list='CUDAGUARD_VISIBLE_DEVICES="0,2"',
                             reason=messages.text("no_gpu"))
                self.assertLessEqual(len(box.lines(result)[0]), 120, result)
        self.silent(box.run(["cu.init", "nv.init"], allow="0,2", CUDAGUARD_LOG="off", **SICK))
        self.silent(box.run(["cu.init", "nv.init"], policy="VALIDATE", **SICK))
        # The program's own setting needs no message.
        self.silent(box.run(["cu.init"], allow="0,2", own="-1"))

    def test_missing_driver_is_reported_and_recorded_as_an_init(self):
        """Only the usual name of the driver counts."""
        for steps in (["cu.open", "cu.open"], ["rt12.count"],
                      ["cu.library=libcuda.so", "cu.open", "cu.library=libcuda.so.1", "cu.open"]):
            with self.subTest(steps=steps):
                result, records = self.run_reported(["pid"] + steps, allow="0,2", **NO_DRIVER)
                self.message(result, "list_in_vain", list='CUDAGUARD_VISIBLE_DEVICES="0,2"',
                             reason=messages.text("driver_missing"))
                self.assertEqual([(r["api"], r["event"], r["decision"], r["result"])
                                  for r in records], [("dlopen", "init", "allow", 100)])
        for steps in (["nv.init"], ["lib.open=libm.so.6"], ["cu.library=libcuda.so", "cu.open"],
                      ["cu.library=/nowhere/libcuda.so.1", "cu.open"], ["cu.noload"]):
            with self.subTest(steps=steps):
                result, records = self.run_reported(steps, allow="0,2", **NO_DRIVER)
                self.silent(result)
                self.assertNotIn("init", [record["event"] for record in records], records)
        result, records = self.run_reported(["cu.open"], policy="VALIDATE", **NO_DRIVER)
        self.silent(result)
        self.assertEqual(len(records), 1, records)

    def test_log_all_reports_a_failed_init_once(self):
        for more, call in ((SICK, "cuInit"), (NO_DRIVER, "dlopen")):
            for config in EVERY_POLICY:
                with self.subTest(call=call, **config):
                    result = box.run(["cu.init", "cu.init"], CUDAGUARD_LOG="all", **config, **more)
                    found, = messages.find(result.err, "cuda_failed")
                    self.assertEqual((found["error"], found["call"], found["asked_by"]),
                                     ("100", call, "open"), result)
        result = box.run(["nv.init"], policy="VALIDATE", CUDAGUARD_LOG="all", **SICK)
        self.message(result, "nvml_failed", error=9, policy="VALIDATE", call="nvmlInit_v2",
                     asked_by="open")

    def test_bad_variable_is_reported_at_the_first_call(self):
        """The answer of the call does not matter."""
        for more in (SICK, {"CG_SICK": "999"}, NO_DRIVER):
            for config in EVERY_POLICY:
                with self.subTest(**more, **config):
                    result = box.run(["cu.init"], CUDAGUARD_LOG="loud", **config, **more)
                    self.assertTrue(messages.find(result.err, "bad_log", value="loud"), result)
        result = box.run(["nv.init"], policy="VALIDATE", CUDAGUARD_LOG="loud", **SICK)
        self.message(result, "bad_log", value="loud")

    def test_error_3_of_a_forked_child_is_recorded(self):
        """The records also have the parent's success."""
        for name, before, call in (("open", "cu.init", "cu.init"), ("cuda", "cu.init", "cu.init"),
                                   ("open", "rt12.sync", "rt12.set=0"),
                                   ("open", "cu.init", "cu.get=0"),
                                   ("runtime13", "rt.set=1", "rt.sync")):
            with self.subTest(program=name, call=call):
                result, records = self.run_reported(
                    ["pid", before, "fork=c", "pid", call, call, "end"], name, policy="VALIDATE")
                self.assertEqual(result.answers["c." + call.partition("=")[0]][0], "3", result)
                self.assertEqual(self.results(records), [(int(result.answers["pid"]), 0),
                                                         (int(result.answers["c.pid"]), 3)])

    def test_real_driver_without_a_gpu_is_recorded(self):
        self.need_real_driver()
        for config, count in (({"CUDAGUARD_POLICY": "VALIDATE"}, 0),
                              ({"CUDAGUARD_VISIBLE_DEVICES": "0,2"}, 1)):
            with self.subTest(**config), tempfile.TemporaryDirectory(prefix="cg-") as directory:
                path = os.path.join(directory, "report.jsonl")
                result = harness.run([box.program("open"), "cu.init"], world="real", trace=False,
                                     env={"CUDAGUARD_REPORT": path, **config}, timeout=300)
                self.assertEqual(result.answers["cu.init"], "100", result)
                self.assertEqual(len(box.lines(result)), count, result)
                self.assertEqual(len(messages.find(result.err, "list_in_vain",
                                                   reason=messages.text("no_gpu"))), count)
                with open(path, encoding="utf-8") as stream:
                    self.assertEqual([json.loads(line)["result"] for line in stream], [100])
