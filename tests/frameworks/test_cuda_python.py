# SPDX-License-Identifier: Apache-2.0
"""cuda-python from PyPI runs under the guard with the CUDA 12 runtime and with the newest."""

from support import framework, harness

# Driver and runtime answer as on a machine whose driver finds no device.
ANSWERS = """\
cuInit=100
cuDeviceGetCount=3,None
cuDriverGetVersion=0,99990
text=no CUDA-capable device is detected
cudaGetDeviceCount=100,None
cudaMalloc=100,None
cudaGetLastError=100
"""
WORLDS = harness.sample(("real", "fake", "none"), 1)


class CudaPython12(framework.Case):
    environment = "cuda-python-12"

    def test_finds_no_gpu(self):
        self.compare(self.argv("cuda_python.py", "count"), expect="driver=0 runtime=0\n")

    def test_answers_as_without_a_device(self):
        self.answers(self.argv("cuda_python.py", "answers"), ANSWERS, WORLDS)


class CudaPython13(CudaPython12):
    environment = "cuda-python-13"

    def test_nvml_answers_as_without_a_driver(self):
        self.answers(self.argv("cuda_python.py", "nvml"), "nvml=DriverNotLoadedError\n", WORLDS)
