# SPDX-License-Identifier: Apache-2.0
"""CUDAGUARD_LOG=all reports the caller that initialises, selects, makes contexts, loads code or
asks NVML."""

from support import box, messages

ALL_LINES = {"CUDAGUARD_LOG": "all"}


class LogAll(box.Case):

    def count(self, result, name, **values):
        return len(messages.find(result.err, name, **values))

    def test_each_use_of_cuda_makes_a_message_and_a_record(self):
        steps = ["pid", "nv.init", "nv.count", "rt12.set=1", "cu.context=v4,0", "cu.load=library"]
        result, records = self.run_reported(steps, allow="5,2", **ALL_LINES)
        self.assertEqual(self.count(result, "cuda_initialised", asked_by="libcudart.so.12 in open"), 1, result)
        self.assertEqual(self.count(result, "nvml_used", asked_by="open"), 1, result)
        selected = self.count(result, "device_selected", device=1, call="cudaSetDevice",
                              asked_by="runtime_12.so")
        self.assertEqual(selected, 1, result)
        self.assertEqual(self.count(result, "context_made", device=1,
                                    call="cuDevicePrimaryCtxRetain"), 1, result)
        self.assertEqual(self.count(result, "context_made", device=0, call="cuCtxCreate_v4",
                                    asked_by="open"), 1, result)
        self.assertEqual(self.count(result, "code_loaded", call="cuLibraryLoadData"), 1, result)
        events = {(record.get("event"), record["api"], record.get("device"))
                  for record in records}
        for wanted in (("init", "cuInit", None), ("select", "cudaSetDevice", 1),
                       ("context", "cuDevicePrimaryCtxRetain", 1), ("context", "cuCtxCreate_v4", 0),
                       ("work", "cuLibraryLoadData", None)):
            self.assertIn(wanted, events, records)
        self.assertIn("nvml", {event for event, _, _ in events}, records)
        for record in records:
            self.assertEqual(record["v"], 1, record)
            self.assertEqual(str(record["pid"]), result.answers["pid"], record)
            self.assertEqual(record["argv"][1], "pid", record)
            self.assertTrue(record["exe"].endswith("/programs/open"), record)
            self.assertRegex(record["caller"], r"/(open|libcudart\.so\.12|runtime_12\.so)\+0x",
                             record)

    def test_work_is_reported_only_if_code_is_loaded(self):
        """A process may hold a context and never load code."""
        for steps, works in ((["rt12.free=0"], False), (["rt12.set=0"], False),
                             (["cu.init", "cu.context=v2,0"], False), (["rt12.sync"], True),
                             (["cu.init", "cu.context=v2,0", "cu.load=module"], True)):
            with self.subTest(steps=steps):
                result, records = self.run_reported(steps, allow="5,2", **ALL_LINES)
                events = [record.get("event") for record in records]
                self.assertIn("context", events, records)
                self.assertEqual("work" in events, works, records)
                self.assertEqual(self.count(result, "code_loaded"), int(works), result)

    def test_every_kind_of_context_is_reported(self):
        for step, api in (("v2,1", "cuCtxCreate_v2"), ("v3,1", "cuCtxCreate_v3"),
                          ("v4,1", "cuCtxCreate_v4"), ("primary,1", "cuDevicePrimaryCtxRetain")):
            for route in ("dlsym", "proc"):
                with self.subTest(api=api, route=route):
                    result, records = self.run_reported(
                        ["cu.route=" + route, "cu.init", "cu.context=" + step], allow="5,2",
                        **ALL_LINES)
                    self.assertEqual(self.count(result, "context_made", device=1, call=api), 1, result)
                    self.assertEqual([record["device"] for record in records
                                      if record.get("event") == "context"], [1], records)

    def test_clamped_selection_reports_the_device_in_use(self):
        """The record has the device that was selected instead of the requested one."""
        result, records = self.run_reported(["rt12.set=9"], allow="5,2", policy="CLAMP",
                                            **ALL_LINES)
        self.assertEqual(self.count(result, "device_selected", device=1), 1, result)
        self.assertEqual([record["device"] for record in records
                          if record.get("event") == "select"], [1], records)

    def test_many_wrong_indices_hide_no_event(self):
        """The number of messages about wrong indices is limited, and they do not hide other events.
        """
        steps = ["cu.init"] + ["cu.get=%d" % index for index in range(2, 302)]
        result, records = self.run_reported(steps + ["nv.init", "rt12.set=1", "cu.context=v4,0"],
                                            allow="5,2", **ALL_LINES)
        self.assertEqual(self.count(result, "bad_index", call="cuDeviceGet"), 256)
        events = {record.get("event") for record in records}
        self.assertLessEqual({"nvml", "select", "context"}, events)
        for name, values in (("nvml_used", {}), ("device_selected", {"device": 1}),
                             ("context_made", {"device": 0})):
            self.assertEqual(self.count(result, name, **values), 1, name)

    def test_refused_context_is_not_reported(self):
        result, records = self.run_reported(["cu.init", "cu.context=v4,7"], allow="5,2",
                                            **ALL_LINES)
        self.assertEqual(result.answers["cu.context"][:4], "101:", result)
        self.assertEqual(self.count(result, "context_made"), 0, result)
        self.assertNotIn("context", [record.get("event") for record in records], records)

    def test_linked_programs_are_reported(self):
        result, records = self.run_reported(["cu.init"], "cuda", allow="5,2", **ALL_LINES)
        self.assertEqual(self.count(result, "cuda_initialised", asked_by="cuda"), 1, result)
        self.assertIn("init", [record.get("event") for record in records], records)
        result, records = self.run_reported(["nv.init"], "nvml", allow="5,2", **ALL_LINES)
        self.assertEqual(self.count(result, "nvml_used", asked_by="nvml"), 1, result)
        result, _ = self.run_reported(["rt.set=1"], "runtime13", allow="5,2", **ALL_LINES)
        self.assertEqual(self.count(result, "device_selected", device=1,
                                    asked_by="runtime13"), 1, result)

    def test_use_without_an_allow_list_is_reported(self):
        result, records = self.run_reported(["rt12.sync"], policy="VALIDATE", **ALL_LINES)
        self.assertEqual(self.count(result, "cuda_initialised"), 1, result)
        self.assertIn("work", [record.get("event") for record in records], records)

    def test_each_process_reports_its_own_use(self):
        steps = ["fork=a", "rt12.sync", "end", "spawn=b", "cu.init", "end", "nv.init"]
        result, records = self.run_reported(steps, allow="5,2", **ALL_LINES)
        by_process = {}
        for record in records:
            by_process.setdefault(record["pid"], set()).add(record.get("event"))
        self.assertEqual(len(by_process), 3, records)
        self.assertEqual(sum("work" in events for events in by_process.values()), 1, records)
        self.assertEqual(sum("init" in events for events in by_process.values()), 2, records)
        self.assertEqual(self.count(result, "cuda_initialised"), 2, result)

    def test_default_log_is_silent_about_allowed_use(self):
        """The default, CUDAGUARD_LOG=deny, prints nothing about what is allowed."""
        result, _ = self.run_reported(["nv.init", "rt12.set=1", "rt12.sync"], allow="5,2")
        self.silent(result)

    def test_answers_are_the_same_as_with_log_off(self):
        steps = ["nv.see", "rt12.see", "rt12.set=1", "rt12.set=9", "rt12.last", "cu.context=v4,1",
                 "cu.load=library", "cu.memory"]
        quiet = box.run(steps, allow="5,2", CUDAGUARD_LOG="off")
        self.silent(quiet)
        loud, _ = self.run_reported(steps, allow="5,2", **ALL_LINES)
        self.assertEqual(loud.out, quiet.out, loud)
