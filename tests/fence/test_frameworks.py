# SPDX-License-Identifier: Apache-2.0
"""Frameworks without the guard ask NVIDIA's driver under the fence, find no GPU and go on. The
machine has NVIDIA's device nodes."""

import os

import pytest

from support import driver, framework, harness

class Frameworks(driver.Case):
    def finds_no_gpu(self, environment, program, *arguments, printed):
        """This program of tests/frameworks, in its virtual environment."""
        directory = os.path.join(framework.ENVIRONMENTS, environment)
        if not os.path.exists(os.path.join(directory, ".fetched")):
            harness.skip(self, "run scripts/fetch-frameworks %s %s" % (harness.DEPS, environment))
        done = self.same_but_refused(
            driver.NODES, os.path.join(directory, "bin", "python"),
            os.path.join(framework.HERE, "programs", program), *arguments, expected=[])
        self.assertEqual(done.returncode, 0)
        self.assertIn(printed, done.stdout)

    @pytest.mark.full
    def test_torch_finds_no_gpu(self):
        self.finds_no_gpu("torch", "torch_query.py", printed="is_available=False device_count=0\n")

    def test_nvml_finds_no_gpu(self):
        self.finds_no_gpu("nvml", "nvml_devices.py", "count", printed="gpus=0\n")

    def test_cuda_python_finds_no_gpu(self):
        self.finds_no_gpu("cuda-python-12", "cuda_python.py", "count",
                          printed="driver=0 runtime=0\n")
