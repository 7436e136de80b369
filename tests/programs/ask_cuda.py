# SPDX-License-Identifier: Apache-2.0
import ctypes

driver = ctypes.CDLL("libcuda.so.1")
print("works on the", "CPU" if driver.cuInit(0) else "GPU")
