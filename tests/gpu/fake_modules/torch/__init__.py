# SPDX-License-Identifier: Apache-2.0
"""What check_memory.py's programs call of PyTorch. A tensor on "cuda" is a context on device 0."""

import ctypes


class Tensor(float):
    def sum(self):
        return self

    def item(self):
        return float(self)

    def __matmul__(self, _):
        return Tensor(64**3)


class cuda:
    @staticmethod
    def is_available():
        driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
        return (driver.cuInit(0), driver.cuDeviceGetCount(ctypes.byref(count))) == (0, 0) and (
            count.value > 0)


def ones(*shape, device):
    if device == "cuda":
        driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
        assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    return Tensor(shape[0])
