# SPDX-License-Identifier: Apache-2.0
"""NVML shows the allow-list in its count, in handles by index, UUID, serial and bus, and in the
reverse look-ups."""

import os
import tempfile

from support import box, harness
from support.box import ALL, PROXIES, uuid


class Nvml(box.Case):
    """Handles by index, UUID, serial and bus exist for listed GPUs only."""

    def test_handles_of_unlisted_gpus_are_not_found(self):
        allow = [5, 2]
        # The guard exports only the names that linked programs use; the proxy has all names.
        for name, preload in (("open", ()), ("nvml", ()), ("nvml", PROXIES)):
            for gpu in range(8):
                with self.subTest(program=name, preload=preload, gpu=gpu):
                    short = "0000:%02x:00.0" % box.GPUS[gpu][1]
                    steps = ["nv.init", "nv.uuid=" + uuid(gpu), "nv.serial=" + box.GPUS[gpu][2],
                             "nv.bus=" + box.bus_id(gpu), "nv.busold=" + short,
                             "nv.uuidtext=" + uuid(gpu), "nv.uuidbytes=" + uuid(gpu)]
                    unguarded = box.run(steps, name, guard=False)
                    result = box.run(steps, name, allow="5,2", preload=preload)
                    self.assertEqual(result.rc, 0, result)
                    for step in ("uuid", "serial", "bus", "busold"):
                        self.assertEqual(unguarded.answers["nv." + step],
                                         "0:%d:%s" % (gpu, box.GPUS[gpu][0]), unguarded)
                        found = result.answers["nv." + step]
                        if gpu in allow:
                            self.assertEqual(
                                found, "0:%d:%s" % (allow.index(gpu), box.GPUS[gpu][0]), result)
                        else:
                            self.assertEqual(found, "6:77:!6", result)
                    for step in ("uuidtext", "uuidbytes") if name == "open" or preload else ():
                        self.assertEqual(unguarded.answers["nv." + step], "0:" + box.GPUS[gpu][0],
                                         unguarded)
                        self.assertEqual(
                            result.answers["nv." + step],
                            "0:" + box.GPUS[gpu][0] if gpu in allow else "6:!6", result)

    def test_index_outside_the_list_is_an_error(self):
        steps = ["nv.get=0"]
        result = box.run(["nv.init"] + steps + ["nv.listold"], allow="5,2")
        self.assertEqual(result.answers["nv.get"], "0:set", result)
        self.assertEqual(box.seen(result.answers["nv.listold"]), [5, 2], result)
        for index in ("2", "7", "8", "4294967295"):
            result = box.run(["nv.init", "nv.get=" + index], allow="5,2")
            self.assertEqual(result.answers["nv.get"], "2:null", result)

    def test_facts_are_those_of_the_gpu_that_was_asked_for(self):
        """The facts are the index, the serial number, the bus and the name."""
        for position, gpu in enumerate([5, 2, 7]):
            wanted = "0:%d:%s:%s:Box_GPU_%d" % (position, box.GPUS[gpu][2], box.bus_id(gpu), gpu)
            steps = ["nv.init", "nv.facts=%d" % position]
            self.assertEqual(box.run(steps, allow="5,2,7").answers["nv.facts"], wanted)
            self.assertEqual(box.run(steps, "nvml", allow="5,2,7").answers["nv.facts"][:20],
                             wanted[:20])

    def test_queries_for_other_gpus_return_listed_gpus_only(self):
        cases = [("nv.nearest=0,40", [0, 1, 3], [0, 3]), ("nv.nearest=0,50", ALL[4:], [6]),
                 ("nv.set=0", [0, 1, 2, 3], [0, 2, 3]), ("nv.set=1", ALL[4:], [6])]
        for step, machine, listed in cases:
            with self.subTest(step=step):
                key = step.split("=")[0]
                # The program asks about GPU 2.
                unguarded = box.run(["nv.init", step.replace("=0,", "=2,")], guard=False)
                self.assertEqual(box.seen(unguarded.answers[key].split(":", 2)[2]), machine,
                                 unguarded)
                result = box.run(["nv.init", step], allow="2,3,6,0")
                self.assertEqual(sorted(box.seen(result.answers[key].split(":", 2)[2])), listed,
                                 result)

    def test_call_before_init_or_after_shutdown_gets_error_1(self):
        """NVML gives the same answer without the guard."""
        for guard in (False, True):
            result = box.run(["nv.count", "nv.get=0", "nv.init", "nv.shutdown", "nv.list",
                              "nv.shutdown"], guard=guard, allow="5,2")
            self.assertEqual(result.answers["nv.count"][:1], "1", result)
            self.assertEqual(result.answers["nv.get"], "1:null", result)
            self.assertEqual(result.answers["nv.list"][:1], "1", result)
            # The error does not depend on the index or on other callers that have used NVML
            # meanwhile.
            result = box.run(["nv.init", "nv.shutdown", "nv.get=7", "cu.see", "nv.count"],
                             guard=guard, allow="5,2")
            self.assertEqual(result.answers["nv.get"], "1:null", result)
            self.assertEqual(result.answers["nv.count"][:1], "1", result)
            result = box.run(["nv.init", "nv.init", "nv.shutdown", "nv.get=1"], guard=guard,
                             allow="5,2")
            self.assertEqual(result.answers["nv.get"], "0:set", result)

    def test_list_holds_with_each_init_function(self):
        for start in ("nv.initold", "nv.initflags"):
            for name in ("open", "nvml"):
                result = box.run([start, "nv.list"], name, allow="5,2")
                self.assertEqual(box.seen(result.answers["nv.list"]), [5, 2], result)
                self.silent(result)

    def test_caller_of_nvml_is_the_program(self):
        """NVIDIA's nvmlInit functions call each other through their PLT entries, which lead to the
        guard's functions."""
        starts = {"nv.initold": ["nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags"],
                  "nv.init": ["nvmlInit_v2", "nvmlInitWithFlags"],
                  "nv.initflags": ["nvmlInitWithFlags"]}
        for start, calls in starts.items():
            unguarded = box.run([start], guard=False)
            self.assertEqual(unguarded.fake_calls, calls, unguarded)
            for name, preload in (("open", ()), ("nvml", ()), ("nvml", PROXIES)):
                for more in ({"policy": "VALIDATE"}, {"policy": "CLAMP"}, {"allow": "5,2"},
                             {"policy": "VALIDATE", "CG_SICK": "100"}):
                    with self.subTest(start=start, program=name, preload=preload, **more):
                        result, records = self.run_reported([start], name, preload=preload,
                                                            CUDAGUARD_LOG="all", **more)
                        failed = 9 if "CG_SICK" in more else 0
                        self.assertEqual(result.answers[start], str(failed), result)
                        self.assertEqual([(r["api"], r["event"], r["result"]) for r in records],
                                         [(calls[0], "nvml", failed)], records)
                        self.assertRegex(records[0]["caller"], r"/programs/%s\+0x" % name)
                        self.message(result, "nvml_failed" if failed else "nvml_used",
                                     call=calls[0], asked_by=name)

    def test_caller_of_the_real_nvml_is_the_program(self):
        self.need_real_driver()
        for start, api in (("nv.initold", "nvmlInit"), ("nv.init", "nvmlInit_v2"),
                           ("nv.initflags", "nvmlInitWithFlags")):
            for name in ("open", "nvml"):
                with self.subTest(start=start, program=name), \
                        tempfile.TemporaryDirectory(prefix="cg-") as directory:
                    path = os.path.join(directory, "report.jsonl")
                    result = harness.run([box.program(name), start], world="real", trace=False,
                                         env={"CUDAGUARD_REPORT": path,
                                              "CUDAGUARD_POLICY": "VALIDATE"}, timeout=300)
                    records = harness.records(path)
                    self.assertEqual([(r["api"], r["event"]) for r in records], [(api, "nvml")],
                                     result)
                    self.assertRegex(records[0]["caller"], r"/programs/%s\+0x" % name)
