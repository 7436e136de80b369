# SPDX-License-Identifier: Apache-2.0
"""On a machine without a GPU, the null drivers give the same answers as NVIDIA's driver 535. Only
names and codes that are newer than that driver are left out."""

import collections
import csv
import json
import os
import re
import sys

from support import harness

# These functions initialise the driver or NVML. So do some of those in the tables of the last two,
# which opens nothing itself (tests/guest/test_export_tables.py).
ASKS = {"cuInit", "nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags", "cuGetExportTable",
        "nvmlInternalGetExportTable"}
# NVIDIA's functions that succeed as the first call, some of them with some arguments only, but ours
# fail: they take or give a handle that is of no use without a GPU.
FAIL_IN_OURS = {"cuEGLApiInit", "cuGraphKernelNodeGetParams", "cuGraphKernelNodeGetParams_v2",
                "cuLinkDestroy", "cuUserObjectRelease", "cuUserObjectRetain"}

API = os.path.join(harness.SOURCE, "shim", "api")
HERE = os.path.dirname(os.path.abspath(__file__))
REFERENCE = 12020  # driver 535 is CUDA 12.2


def rows(name):
    with open(os.path.join(API, name), encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def questions():
    """Returns every name that driver 535 has or that a program may request, at the versions where
    answers change."""
    with open(os.path.join(API, "driver-535-cuda.txt"), encoding="utf-8") as stream:
        exports = [line.strip() for line in stream if " " not in line]
    versions = collections.defaultdict(set)
    newest = {}
    for row in rows("driver.csv"):
        base = re.sub(r"(_v\d+)?(_ptds|_ptsz)?$", "", row["name"])
        first = int(row["first_version"])
        versions[base] |= {first - 1, first, first + 1}
        newest[base] = min(first, newest.get(base, first))
    names = set(versions) | {row["name"] for row in rows("driver.csv")}
    names -= {base for base, first in newest.items() if first > REFERENCE}
    names |= {"", "x", "cu", "cuI", "cuInit ", "cuInitt", "cuinit", "CUINIT", "zzz", "cuMemAlloc_v9"}
    general = {0, 2000, 11030, 12000, REFERENCE}
    return {
        "exports": exports,
        "names": sorted(names),
        "versions": {name: sorted(v for v in asked | general if 0 <= v <= REFERENCE)
                     for name, asked in {**versions, "": set()}.items()},
        "codes": known_codes("errors.csv") + [-1, 5555, 1 << 30],
        "nvml_codes": known_codes("nvml_errors.csv") + [-1, 31, 500, 998, 1000],
    }


def known_codes(name):
    return [int(row["code"]) for row in rows(name) if row["source"] == "driver-535"]


class NativeAnswers(harness.Case):

    def ask(self, world, directory, asked):
        script = os.path.join(HERE, "ask_driver.py")
        result = harness.run(
            [sys.executable, script, os.path.join(directory, "libcuda.so.1"),
             os.path.join(directory, "libnvidia-ml.so.1")],
            world=world, guard=False, stdin=json.dumps(asked))
        self.assertEqual(result.rc, 0, str(result))
        return json.loads(result.out), result

    def test_null_drivers_answer_as_driver_535(self):
        self.need_real_driver()
        asked = questions()
        real, real_run = self.ask("real", harness.real_driver_dir(), asked)
        ours, our_run = self.ask("none", harness.NULL_DRIVER_DIR, asked)
        self.assertTrue(real_run.device_opens, "the reference was not NVIDIA's driver")
        self.assertFalse(our_run.device_opens)
        self.assertGreater(len(real), 20000)
        different = ["%s: the driver says %s, the null driver %s" % (key, real[key], ours.get(key))
                     for key in real if real[key] != ours.get(key)]
        self.assertEqual(different[:20], [], "%d of %d differ" % (len(different), len(real)))
        self.assertEqual(set(ours), set(real))

    def test_only_init_and_export_tables_ask_for_a_gpu(self):
        """Each other function fails as the first call of a process, or needs no GPU. NVIDIA's open
        no device for it, so it is no attempt. The debugger's (cudbg) wait for a debugger."""
        self.need_real_driver()
        names = {}
        for prefix, name in (("cu", "driver-535-cuda.txt"), ("nvml", "driver-535-nvml.txt")):
            with open(os.path.join(API, name), encoding="utf-8") as stream:
                names[prefix] = [line.strip() for line in stream
                                 if " " not in line and not line.startswith("cudbg")]
        asks = {name for group in names.values() for name in group} & ASKS
        self.assertEqual(asks, ASKS)
        asked = {"first": {prefix: [name for name in group if not name.startswith("nvmlInit")
                                    or name == "nvmlInternalGetExportTable"]
                           for prefix, group in names.items()}}
        real, real_run = self.ask("real", harness.real_driver_dir(), asked)
        ours, our_run = self.ask("none", harness.NULL_DRIVER_DIR, asked)
        self.assertEqual((real_run.device_opens, our_run.device_opens), ([], []))
        self.assertGreater(len(real), 900)
        self.assertEqual(set(ours), set(real))
        # nvmlErrorString() returns a pointer.
        different = {name: (real[name], ours[name]) for name in real
                     if (real[name] == 0) != (ours[name] == 0) and name != "nvmlErrorString"}
        self.assertEqual(set(different) - FAIL_IN_OURS, {"nvmlInternalGetExportTable"}, different)

    def test_nvml_is_refused_as_on_a_machine_without_the_driver(self):
        asked = {"exports": [], "names": [], "versions": {}, "codes": [], "nvml_codes": []}
        ours, _ = self.ask("none", harness.NULL_DRIVER_DIR, asked)
        self.assertEqual((ours["nvmlInit_v2 fails"], ours["nvmlInitWithFlags fails"]), (True, True))
        for when in ("first", "after the refusal"):
            self.assertEqual(ours["nvmlDeviceGetCount_v2 " + when], 1)
            self.assertEqual(ours["NVML writes " + when], [0x55, 0x55, "U"])

    def test_answers_while_other_threads_unload_libraries(self):
        """The null driver looks for a guard once, instead of in a list that changes meanwhile."""
        library = harness.program("plugin_open.so")
        alone = harness.run([harness.program("asks_while_unloading"), library], world="none",
                            guard=False, env={"LD_LIBRARY_PATH": harness.NULL_DRIVER_DIR})
        self.assertEqual((alone.rc, alone.out), (0, "cuInit=100\n"), str(alone))

    def test_newer_names_follow_the_same_rules(self):
        # Names that driver 535 lacks follow the same rules.
        asked = questions()
        asked["exports"] = sorted(row["name"] for row in rows("driver.csv"))
        asked["names"] = ["cuGreenCtxCreate", "cuCtxCreate", "cuDeviceGetUuid"]
        asked["versions"] = {"": [12020, 12030, 12040, 13000, 99990]}
        asked["codes"] = [int(row["code"]) for row in rows("errors.csv")]
        ours, _ = self.ask("none", harness.NULL_DRIVER_DIR, asked)
        self.assertEqual(ours["cuGreenCtxCreate 12030 0 v2"], [0, None, 2])
        self.assertEqual(ours["cuGreenCtxCreate 12040 0 v2"], [0, "cuGreenCtxCreate", 0])
        self.assertEqual(ours["cuCtxCreate 13000 0 v2"], [0, "cuCtxCreate_v4", 0])
        self.assertEqual(ours["cuDeviceGetUuid 13000 0 v2"], [0, "cuDeviceGetUuid_v2", 0])
        for row in rows("errors.csv"):
            self.assertEqual(ours["cuGetErrorName " + row["code"]], [0, row["name"]])
            self.assertEqual(ours["cuGetErrorString " + row["code"]], [0, row["text"]])
