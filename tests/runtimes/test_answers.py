# SPDX-License-Identifier: Apache-2.0
"""Every call of a sample returns 100 under cudart 11, 12.2, 12 and 13, shared and static."""

import os
import re

import pytest

from support import harness, messages

CALLS = ["cudaGetDeviceCount", "cudaSetDevice", "cudaGetDevice", "cudaGetDeviceProperties",
         "cudaDeviceGetAttribute", "cudaMalloc", "cudaMallocHost", "cudaMemGetInfo",
         "cudaStreamCreate", "cudaEventCreate", "cudaLaunchKernel", "cudaDeviceSynchronize",
         "cudaFree", "cudaDeviceReset"]
TEXT = "no_CUDA-capable_device_is_detected"


def answers(result):
    """Returns [(call, answer, cudaGetLastError after it, text)]."""
    return re.findall(r"^(\w+)=(\d+) \1\.last=(\d+) text=(\S+)", result.out, re.M)


class RuntimeAnswers(harness.Case):
    """The code below adds one set of tests for each runtime."""

    def check(self, result, calls, text=TEXT):
        self.assertEqual(result.rc, 0, result)
        self.assertEqual(answers(result), [(call, "100", "100", text) for call in calls], result)
        result.assert_untouched(self)
        self.assertEqual(len(messages.find(result.err, "no_cuda")), 1, result)
        self.assertEqual(messages.without(result.err, "no_cuda"), "", result)

    def run_sample(self, version, kind):
        program = harness.program("runtime_%s_%s" % (version, kind))
        if not os.path.exists(program):
            harness.skip(self, "scripts/fetch-cuda brought no %s runtime %s" % (kind, version))
        # The program has the same list, so no call is missing in either place.
        listed = harness.run([program, "list"], world="none", guard=False, trace=False)
        self.assertEqual(listed.out.split(), CALLS)
        unguarded = harness.run([program, "sample"], world="fake", guard=False)
        unguarded.assert_reached(self)
        worlds = ["none", "fake"]
        if harness.have_real_driver():
            worlds.append("real")
            real = harness.run([program, "sample"], world="real", guard=False)
            if version == "13":
                # Driver 535 is too old for this runtime, which stops before any CUDA attempt.
                self.assertEqual({row[1] for row in answers(real)}, {"35"}, real)
            else:
                real.assert_reached(self)
                # NVIDIA's driver gives the same answers on a machine without a device.
                self.assertEqual(answers(real), [(call, "100", "100", TEXT) for call in CALLS])
        for world in worlds:
            with self.subTest(world=world):
                self.check(harness.run([program, "sample"], world=world), CALLS)
        for call in CALLS:
            with self.subTest(first=call):
                self.check(harness.run([program, "only", call], world="fake"), [call])

    def test_real_driver_is_installed(self):
        """Without the real driver half of the controls are missing, and this test reports it."""
        self.need_real_driver()


def make_test(version, kind):
    def test(self):
        self.run_sample(version, kind)

    test.__doc__ = "%s cudart %s" % (kind, version)
    return test


for version in ("11", "12.2", "12", "13"):
    for kind in ("shared", "static"):
        # NVIDIA's wheel of 12.2 has no static runtime, so that of 12 is used.
        if (version, kind) == ("12.2", "static"):
            continue
        run = make_test(version, kind)
        if (version, kind) == ("11", "static"):
            run = pytest.mark.full(run)  # needs a download of 774 MB: scripts/fetch-cuda
        setattr(RuntimeAnswers, "test_%s_%s" % (kind, version.replace(".", "_")), run)
