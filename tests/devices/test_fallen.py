# SPDX-License-Identifier: Apache-2.0
"""If a list cannot be enforced after the driver was initialised, the driver's calls answer as under
FORCE_CPU."""

import os

from support import box, harness
from support.box import PROXIES, uuid

# These faults show only after the real cuInit has run.
FALLS = (("list_not_read", {"box": "bypass", "allow": "2,5"}),
         ("list_not_shown", {"box": "liar", "allow": "2,5"}),
         ("list_others_shown", {"box": "liar", "allow": "2,5", "CG_LIE": "others"}),
         ("list_not_shown", {"allow": "2,5", "CG_GONE": "5"}))
# The answers of cu.insist: count, get and seven calls about a device.
ALL_WORK, ALL_REFUSED = ":".join("0" * 9), ":".join("3" * 9)


class Fallen(box.Case):

    def each(self, ways):
        for message, more in FALLS:
            for name, steps, preload in ways:
                title = {"message": message, "program": name, "steps": steps, "preload": preload}
                yield title, message, more, name, steps, preload

    def test_every_guarded_function_of_the_driver_is_refused(self):
        ways = [("open", [], ()), ("open", ["cu.route=proc"], ()), ("cuda", ["cu.route=dlsym"], ()),
                ("cuda", ["cu.route=proc"], ()), ("cuda", [], PROXIES),
                ("cuda_now", [], PROXIES), ("mixed", [], PROXIES)]
        questions = ["cu.init", "cu.insist=0", "cu.context=primary,0", "cu.init"]
        for title, message, more, name, steps, preload in self.each(ways):
            with self.subTest(**title):
                unguarded = box.run(steps + questions, name, guard=False,
                                    box=more.get("box", "lazy"))
                self.assertEqual(unguarded.answers["cu.insist"], ALL_WORK, unguarded)
                result = box.run(steps + questions, name, preload=preload, **more)
                self.assertIn("cuInit:initialised", result.fake_calls, result)
                self.assertEqual(result.answers["cu.init"], "100", result)
                self.assertEqual(result.answers["cu.insist"], ALL_REFUSED, result)
                self.assertEqual(result.answers["cu.context"][:2], "3:", result)
                self.explained(result, name=message)

    def test_count_of_a_linked_program_is_refused(self):
        """With the guard alone, cuInit, cuDeviceGetCount and cuDeviceGet lead to it."""
        ways = [("cuda", "cu.", ()), ("cuda_now", "cu.", ()), ("mixed", "cu.", ()),
                ("open", "linked.cu.", ()), ("open", "linked.cu.", PROXIES)]
        for title, message, more, name, prefix, preload in self.each(ways):
            with self.subTest(**title):
                steps = [prefix + step for step in ("init", "count", "get=0", "list")]
                unguarded = box.run(steps, name, guard=False, box=more.get("box", "lazy"))
                self.assertEqual(unguarded.answers[prefix + "count"], "0:8", unguarded)
                result = box.run(steps, name, preload=preload, **more)
                self.assertEqual([result.answers[prefix + key] for key in ("init", "count", "get")],
                                 ["100", "3:0", "3:-7"], result)
                self.explained(result, name=message)

    def test_limit_linked_program_that_ignores_errors_reads_names(self):
        """docs/limits.md: with the guard alone, the other calls reach the driver itself."""
        for name in ("cuda", "cuda_now"):
            result = box.run(["cu.init", "cu.insist=0"], name, box="liar", allow="2,5")
            self.assertEqual(result.answers["cu.insist"], "3:3:" + ":".join("0" * 7), result)

    def test_every_call_of_a_shared_runtime_is_refused(self):
        ways = [("open", "rt12.", ()), ("open", "rt13.", ()), ("runtime12", "rt.", ()),
                ("runtime13", "rt.", ()), ("mixed", "rt.", PROXIES)]
        for title, message, more, name, prefix, preload in self.each(ways):
            with self.subTest(**title):
                steps = [prefix + step for step in ("count", "set=0", "properties=0", "attribute=0",
                                                    "initdevice=0", "sync", "free=0", "count")]
                unguarded = box.run(steps, name, guard=False, box=more.get("box", "lazy"))
                self.assertEqual(unguarded.answers[prefix + "count"], "0:8", unguarded)
                result = box.run(steps, name, preload=preload, **more)
                for key in ("count", "set", "properties", "attribute", "initdevice", "sync", "free"):
                    self.assertEqual(result.answers[prefix + key].split(":")[0], "100", result)
                self.explained(result, name=message)

    def test_every_call_of_a_static_runtime_is_refused(self):
        """NVIDIA's static runtime keeps the driver's first answer."""
        for version in ("11", "12", "13") if harness.FULL else ("12", "13"):
            program = harness.program("runtime_%s_static" % version)
            if not os.path.exists(program):
                harness.skip(self, "scripts/fetch-cuda brought no static runtime " + version)
            for message, more in FALLS:
                with self.subTest(version=version, message=message):
                    result = harness.run([program, "sample"], world="none",
                                         env=box.environment(**more))
                    self.assertIn("cuInit:initialised", result.fake_calls, result)
                    self.assertIn("cudaGetDeviceCount=100", result.out, result)
                    self.assertNotRegex(result.out, r"(?m)^\w+=0 ", result)
                    self.explained(result, name=message)

    def test_nvml_shows_no_gpu_once_the_list_failed(self):
        ways = [("open", "cu.init", ()), ("mixed", "cu.init", ()), ("mixed", "cu.init", PROXIES),
                ("nvml", "rt12.count", ()), ("nvml", "rt12.count", PROXIES)]
        for title, message, more, name, first, preload in self.each(ways):
            with self.subTest(**title):
                names = ["nv.get=0", "nv.uuid=" + uuid(2), "nv.serial=" + box.GPUS[2][2],
                         "nv.bus=" + box.bus_id(2)]
                # NVML was in use before, and the program asks it again.
                steps = ["nv.init", "nv.count", first, "nv.see"] + names
                unguarded = box.run(steps, name, guard=False, box=more.get("box", "lazy"))
                self.assertEqual(unguarded.answers["nv.count"], "0:8", unguarded)
                result = box.run(steps, name, preload=preload, **more)
                self.sees(result, nv="!9")
                self.assertEqual(result.answers["nv.get"], "2:null", result)
                for key in ("nv.uuid", "nv.serial", "nv.bus"):
                    self.assertEqual(result.answers[key][:2], "6:", result)
                self.explained(result, name=message)

    def test_list_that_nvml_refuses_later_refuses_cuda_too(self):
        """CUDA was in use, and its calls are refused from then on, too."""
        steps = ["cu.init", "cu.insist=0", "setenv=CG_LOST=0", "nv.init", "cu.insist=0", "cu.count"]
        for name, preload in (("open", ()), ("mixed", PROXIES)):
            result = box.run(steps, name, preload=preload, allow=uuid(0))
            self.assertIn("cu.insist=" + ALL_WORK, result.out, result)
            self.assertEqual(result.answers["cu.insist"], ALL_REFUSED, result)
            self.assertEqual(result.answers["cu.count"], "3:0", result)

    def test_children_of_a_process_whose_list_failed_are_refused(self):
        for message, more in FALLS:
            result = box.run(["cu.init", "fork=f", "cu.init", "cu.insist=0", "nv.see", "end",
                              "spawn=s", "cu.init", "cu.insist=0", "end"], **more)
            for label in ("f.", "s."):
                self.assertEqual(result.answers[label + "cu.init"], "100", result)
                self.assertEqual(result.answers[label + "cu.insist"], ALL_REFUSED, result)
            self.sees(result, f_nv="!9")
