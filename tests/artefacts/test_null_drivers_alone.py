# SPDX-License-Identifier: Apache-2.0
"""The null drivers work alone in a process without the guard, report each CUDA attempt to a guard,
and take over the dev names."""

import os
import sys

from support import harness

FAKE_GUARD = os.path.join(harness.BUILD, "tests", "artefacts", "libcudaguard.so")
ATTEMPT_PROGRAM = os.path.join(harness.BUILD, "tests", "artefacts", "attempts")

CLAIM = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.dlopen.restype = ctypes.c_void_p
libc.dlopen.argtypes = [ctypes.c_char_p, ctypes.c_int]
path, dev_name, claims = sys.argv[1].encode(), sys.argv[2].encode(), sys.argv[3] == "claim"
handle = libc.dlopen(path, 1)
if claims:
    function = ctypes.CDLL(sys.argv[1]).cudaguard_null_driver_claim_v1
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    print("claim", "same" if function(ctypes.cast(libc.dlopen, ctypes.c_void_p), dev_name) == handle else "other")
found = libc.dlopen(dev_name, 1)
print(sys.argv[2], "same" if found == handle else "other" if found else "none")
"""


class Alone(harness.Case):

    def run_linked(self, program, **options):
        return harness.run([harness.program(program), "plt"], world="none", guard=False, **options)

    def check(self, program, expected):
        # Control: a program linked to the driver does not start on a machine without one.
        unguarded = self.run_linked(program)
        self.assertEqual(unguarded.rc, 127, str(unguarded))
        self.assertIn("cannot open shared object file", unguarded.err)
        alone = self.run_linked(program, env={"LD_LIBRARY_PATH": harness.NULL_DRIVER_DIR})
        self.assertEqual(alone.rc, 0, str(alone))
        self.assertEqual(alone.err, "")
        for word in expected:
            self.assertIn(word, alone.out.split(), str(alone))
        alone.assert_untouched(self)

    def test_linked_cuda_program_runs_without_a_driver(self):
        for program in ("linked_cuda", "linked_cuda_now"):
            self.check(program, ["cuInit=100", "version=99990", "countRc=3"])

    def test_linked_nvml_program_runs_without_a_driver(self):
        for program in ("linked_nvml", "linked_nvml_now"):
            self.check(program, ["nvmlInit=9", "nvmlInitOld=0", "countRc=0", "count=0", "shutdown=0"])


class Attempts(harness.Case):
    ANSWERS = ["cuDeviceGetCount 3 0", "cuInit(1) 1", "cuInit(0) 100", "cuInit(0) 100",
               "nvmlInit 0", "nvmlInit_v2 9", "nvmlInitWithFlags 9", "nvmlShutdown 0"]
    ATTEMPTS = ["touch 1 cuInit program", "touch 1 cuInit program", "touch 1 nvmlInit program",
                "touch 1 nvmlInit_v2 program", "touch 1 nvmlInitWithFlags program"]

    def lines(self, way, loader=(), **options):
        result = harness.run(
            [*loader, ATTEMPT_PROGRAM, way, harness.NULL_DRIVER_CUDA, harness.NULL_DRIVER_NVML],
            world="none", guard=False, **options)
        self.assertEqual(result.rc, 0, str(result))
        self.assertEqual(result.err, "")
        printed = result.out.splitlines()
        self.assertEqual([line for line in printed if not line.startswith("touch")], self.ANSWERS)
        return [line for line in printed if line.startswith("touch")]

    def test_attempts_without_a_guard_are_not_reported(self):
        for way in ("dlopen", "dlmopen"):
            self.assertEqual(self.lines(way), [])

    def test_each_attempt_is_reported_to_the_guard(self):
        self.assertEqual(self.lines("dlopen", preload=[FAKE_GUARD]), self.ATTEMPTS)

    def test_attempts_in_another_namespace_are_reported(self):
        # In that namespace the weak name is unbound, so the null driver finds the guard in the base
        # namespace.
        self.assertEqual(self.lines("dlmopen", preload=[FAKE_GUARD]), self.ATTEMPTS)

    def test_attempts_under_an_explicit_loader_are_reported(self):
        # The kernel's auxiliary vector then describes ld.so, until ld.so corrects it.
        interpreter = "/lib64/ld-linux-x86-64.so.2"
        if not os.path.exists(interpreter):
            interpreter = "/lib/ld-linux-aarch64.so.1"
        self.assertEqual(self.lines("dlmopen", loader=[interpreter], preload=[FAKE_GUARD]),
                         self.ATTEMPTS)


class Claim(harness.Case):

    def lines(self, null_driver, dev_name, word, **options):
        result = harness.run([sys.executable, "-c", CLAIM, null_driver, dev_name, word], guard=False,
                             **options)
        self.assertEqual(result.rc, 0, str(result))
        return result.out.splitlines(), result

    def test_claimed_dev_name_leads_to_the_null_driver(self):
        for null_driver, dev_name in ((harness.NULL_DRIVER_CUDA, "libcuda.so"),
                                  (harness.NULL_DRIVER_NVML, "libnvidia-ml.so")):
            # Control: without the claim, the name leads to no library or to the installed driver.
            printed, _ = self.lines(null_driver, dev_name, "leave", world="none")
            self.assertEqual(printed, [dev_name + " none"])
            printed, _ = self.lines(null_driver, dev_name, "leave", world="fake")
            self.assertEqual(printed, [dev_name + " other"])
            for world in ("none", "fake"):
                printed, result = self.lines(null_driver, dev_name, "claim", world=world)
                self.assertEqual(printed, ["claim same", dev_name + " same"])
                self.assertEqual(result.driver_files, [])

    def test_claimed_dev_name_replaces_the_real_drivers(self):
        self.need_real_driver()
        # NVML is left out because Debian has no dev name for it.
        printed, result = self.lines(harness.NULL_DRIVER_CUDA, "libcuda.so", "leave", world="real")
        self.assertEqual(printed, ["libcuda.so other"])
        self.assertTrue(result.driver_files)
        printed, result = self.lines(harness.NULL_DRIVER_CUDA, "libcuda.so", "claim", world="real")
        self.assertEqual(printed, ["claim same", "libcuda.so same"])
        self.assertEqual(result.driver_files, [])
