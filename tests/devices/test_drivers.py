# SPDX-License-Identifier: Apache-2.0
"""A driver that breaks the guard's assumptions never shows more GPUs than were allowed, and a
message explains it."""

import os

from support import box, harness, messages
from support.box import ALL, FASTEST, uuid


class Drivers(box.Case):
    """Each driver breaks one assumption of the guard and must never show more GPUs than were
    allowed."""

    STEPS = ["cu.see", "rt12.see", "nv.see"]

    def test_control_each_fake_driver_shows_gpus_without_the_guard(self):
        self.sees(box.run(self.STEPS, guard=False, box="noslot", own="1"), cu=[0], rt12=[0], nv=ALL)
        self.sees(box.run(self.STEPS, guard=False, box="liar", own="1"), cu=FASTEST, nv=ALL)
        self.sees(box.run(self.STEPS, guard=False, box="bypass", own="1"), cu=[0], nv=ALL)
        self.sees(box.run(self.STEPS, guard=False, CG_GONE="5", own=uuid(5)), cu="!100", nv=ALL)
        self.sees(box.run(["cu.see"], guard=False, box="no_nvml"), cu=FASTEST)

    def test_driver_without_a_getenv_import_shows_no_gpu(self):
        for steps in (["cu.see", "rt12.see"], ["rt13.see", "cu.see"]):
            result = box.run(steps, box="noslot", allow="2,5")
            self.sees(result, cu="!100")
            self.refused(result, name="list_no_getenv")
        result = box.run(self.STEPS, box="noslot", allow="2,5")
        self.assertNotIn(box.seen(result.answers["nv.see"]), (ALL, FASTEST), result)

    def test_driver_that_reads_the_list_without_getenv_is_refused(self):
        """The driver imports getenv, and reads this one variable without it."""
        for own in (None, uuid(2) + "," + uuid(5)):
            result = box.run(["cu.see", "rt12.see"], box="bypass", allow="2,5", own=own)
            self.assertEqual(result.answers["cu.see"].split(":")[0], "100", result)
            self.sees(result, rt12="!100")
            self.explained(result, name="list_not_read")

    def test_names_that_an_old_driver_lacks_are_not_found(self):
        """dlsym finds nothing for these names, as without the guard."""
        names = ("cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4", "cuLibraryLoadData",
                 "cuLibraryLoadFromFile", "cuModuleLoadData")
        steps = ["cu.where=" + name for name in names] + ["cu.context=v4,0", "nv.initflags"]
        steps += ["nv.init", "nv.uuidtext=" + uuid(2)]
        unguarded = box.run(steps, guard=False, box="old")
        result = box.run(steps, box="old", policy="VALIDATE")
        self.silent(result)
        for without, within in zip(unguarded.out.splitlines(), result.out.splitlines()):
            if "libcudaguard-driver.so" in within:
                self.assertIn("=libcuda.so.1+", without)
            else:
                self.assertEqual(within, without, result)
        self.assertEqual(unguarded.answers["nv.initflags"], "-999", unguarded)
        self.assertEqual(unguarded.out.count("=null"), 4, unguarded)
        result = box.run(["cu.see", "nv.see", "rt12.count"], box="old", allow="5,2")
        self.sees(result, cu=[5, 2], nv=[5, 2])

    def test_driver_that_ignores_the_list_is_refused(self):
        for how in (None, "others"):
            with self.subTest(how=how):
                result = box.run(["cu.see", "rt12.see"], box="liar", allow="2,5", CG_LIE=how)
                self.assertEqual(result.answers["cu.see"].split(":")[0], "100", result)
                self.sees(result, rt12="!100")
                self.explained(result)

    def test_gpu_that_the_driver_no_longer_knows_is_refused(self):
        """NVML still lists the GPU."""
        for allow, own in (("2,5", None), ("5", None), ("5,2", "0,1"), (uuid(5), None)):
            with self.subTest(allow=allow, own=own):
                result = box.run(["cu.see", "rt12.see"], allow=allow, own=own, CG_GONE="5")
                self.sees(result, cu="!100", rt12="!100")
                self.explained(result)
        result = box.run(self.STEPS, allow="2,6", CG_GONE="5")
        self.silent(result)
        self.sees(result, cu=[2, 6], rt12=[2, 6], nv=[2, 6])

    def test_list_of_one_kind_works_without_nvml(self):
        """The driver itself counts the GPUs."""
        steps = ["cu.see", "rt12.see"]
        for allow, own, gpus in (("2,5", None, [2, 5]), ("5,2", "1", [2]),
                                 (uuid(3) + "," + uuid(0, 8), None, [3, 0]), ("7", "0,0", "!100")):
            with self.subTest(allow=allow, own=own):
                result = box.run(steps, box="no_nvml", allow=allow, own=own)
                self.sees(result, cu=gpus, rt12=gpus)
                if gpus == "!100":
                    self.message(result, "late_write_empty", now="0,0", advice=messages.text(
                        "inside_list", list="CUDAGUARD_VISIBLE_DEVICES=7"))
                else:
                    self.silent(result)
        for allow in ("2," + uuid(5), "8", "2,8", uuid(5, 20), "GPU-ffff", "1,1"):
            with self.subTest(allow=allow):
                result = box.run(steps, box="no_nvml", allow=allow)
                self.sees(result, cu="!100", rt12="!100")
                self.explained(result)

    def test_missing_driver_keeps_ld_sos_own_message(self):
        """Only NVML is there, and the program gets ld.so's own message about the driver."""
        steps = ["cu.open", "lib.open=libcuda.so.1", "rt12.count", "rt12.set=0", "rt12.last"]
        unguarded = box.run(steps, guard=False, box="only_nvml")
        self.assertIn("lib.open=libcuda.so.1: cannot open shared object file", unguarded.out)
        for allow, policy in (("2,5", None), (None, "VALIDATE"), (None, "CLAMP")):
            result = box.run(steps, box="only_nvml", allow=allow, policy=policy)
            self.assertEqual(result.out, unguarded.out, result)
            if allow is None:
                self.silent(result)
            else:
                self.message(result, "list_in_vain", reason=messages.text("driver_missing"))
        result = box.run(["cu.open", "nv.see"], box="only_nvml", allow="2,5")
        self.sees(result, nv=[2, 5])


class OpenCl(box.Case):
    """NVIDIA's OpenCL opens the device by itself, so it is refused under a list."""

    def test_opencl_is_refused_under_a_list(self):
        steps = ["lib.open=" + os.path.join(harness.FAKE_DRIVER, "libnvidia-opencl.so.1")]
        for more in ({"guard": False}, {"policy": "VALIDATE"}, {"policy": "OFF", "allow": "2"}):
            with self.subTest(more=more):
                result = box.run(steps, **more)
                self.assertEqual(result.answers["lib.open"], "set", result)
                self.silent(result)
        result = box.run(steps, allow="2,5")
        self.assertNotEqual(result.answers["lib.open"], "set", result)
        self.message(result, "opencl_refused")
