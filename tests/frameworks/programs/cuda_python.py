# SPDX-License-Identifier: Apache-2.0
"""cuda_python.py count|answers|nvml calls cuda-python's driver, runtime and NVML bindings."""

import sys

from cuda.bindings import driver, runtime


def devices():
    """Returns the number of devices, asked as a careful program does."""
    try:
        (code,) = driver.cuInit(0)
    except RuntimeError:  # there is no library
        return 0
    return driver.cuDeviceGetCount()[1] if code == driver.CUresult.CUDA_SUCCESS else 0


def runtime_devices():
    code, count = runtime.cudaGetDeviceCount()
    return count if code == runtime.cudaError_t.cudaSuccess else 0


def number(answer):
    return ",".join("%s" % (int(part) if part is not None else None) for part in answer)


if sys.argv[1] == "count":
    print("driver=%d runtime=%d" % (devices(), runtime_devices()))
elif sys.argv[1] == "nvml":
    from cuda.bindings import nvml
    try:
        nvml.init_v2()
        print("nvml=%d" % nvml.device_get_count_v2())
    except nvml.NvmlError as error:
        print("nvml=%s" % type(error).__name__)
else:
    print("cuInit=%s" % number(driver.cuInit(0)))
    print("cuDeviceGetCount=%s" % number(driver.cuDeviceGetCount()))
    print("cuDriverGetVersion=%s" % number(driver.cuDriverGetVersion()))
    print("text=%s" % driver.cuGetErrorString(driver.CUresult.CUDA_ERROR_NO_DEVICE)[1].decode())
    print("cudaGetDeviceCount=%s" % number(runtime.cudaGetDeviceCount()))
    print("cudaMalloc=%s" % number(runtime.cudaMalloc(4)))
    print("cudaGetLastError=%s" % number(runtime.cudaGetLastError()))
