# SPDX-License-Identifier: Apache-2.0
"""OFF maps no file of cudaguard except the guard, and changes nothing."""

from support import box

STEPS = {
    "open": ["nv.see", "cu.see", "rt12.see", "rt13.see", "rt12.set=9", "rt12.last", "rt13.sync",
             "cu.get=9", "cu.where=cuInit", "cu.where=cuDeviceGet", "cu.ask=cuInit,12000,0",
             "cu.ask=cuDeviceGet,13000,2", "nv.nearest=2,40", "nv.facts=3", "cu.context=v4,2",
             "lib.noload=libcuda.so.1", "setenv=CUDA_VISIBLE_DEVICES=1", "rt12.see",
             "fork=c", "cu.init", "rt12.count", "end", "spawn=s", "cu.see", "nv.see", "end"],
    "cuda": ["cu.see", "cu.get=9", "cu.ask=cuInit,12000,0"],
    "cuda_now": ["cu.see", "cu.get=9", "cu.route=dlsym", "cu.see"],
    "nvml": ["nv.see", "nv.facts=7", "nv.uuid=" + box.uuid(3), "nv.listold", "nv.shutdown"],
    "runtime12": ["rt.see", "rt.set=9", "rt.peek", "rt.attribute=2", "rt.properties2=3"],
    "runtime13": ["rt.initdevice=3", "rt.sync", "rt.properties=9", "rt.last"],
    "mixed": ["rt.see", "nv.see", "cu.see", "rt12.see", "rt13.see", "cu.get=-1"],
    "mixed_now": ["cu.see", "rt.see", "nv.see"],
}
OURS = {"libcudaguard.so"}


class Off(box.Case):

    def test_off_changes_nothing(self):
        for kind in ("lazy", "now", "noslot", "no_nvml"):
            for name, steps in STEPS.items():
                if kind == "no_nvml" and name in ("nvml", "mixed", "mixed_now"):
                    continue  # linked to NVML, so it cannot start there
                for more in ({}, {"allow": "5,2"}, {"allow": "nonsense"},
                             {"CUDAGUARD_CHILDREN": "FORCE_CPU"}):
                    with self.subTest(driver=kind, program=name, more=more):
                        unguarded = box.run(steps, name, guard=False, box=kind)
                        result = box.run(steps, name, policy="OFF", box=kind, **more)
                        self.assertEqual(result.rc, unguarded.rc, result)
                        self.assertEqual(unguarded.rc, 0, unguarded)
                        self.assertEqual(result.out, unguarded.out, result)
                        self.assertEqual(result.err, unguarded.err, result)
                        self.assertEqual(result.fake_calls, unguarded.fake_calls, result)

    def test_off_maps_only_the_guard(self):
        for name, steps in STEPS.items():
            with self.subTest(program=name):
                result = box.run(steps + ["maps"], name, policy="OFF")
                self.assertEqual(set(result.answers["maps"].split(",")), OURS, result)

    def test_control_a_list_maps_the_proxies_and_force_cpu_does_not(self):
        steps = ["cu.see", "nv.see", "maps"]
        validate = set(box.run(steps, allow="5,2").answers["maps"].split(","))
        self.assertEqual(validate, OURS | {"libcudaguard-driver.so", "libcudaguard-nvml.so"})
        cpu = box.run(steps, policy="FORCE_CPU")
        self.assertNotIn("libcudaguard-driver.so", cpu.answers["maps"], cpu)
        self.sees(cpu, cu="!100", nv="!9")
        self.assertEqual(cpu.fake_calls, [], cpu)
        unguarded = box.run(steps, guard=False)
        self.assertEqual(unguarded.answers["maps"], "", unguarded)
