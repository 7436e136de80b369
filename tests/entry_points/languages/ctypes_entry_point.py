# SPDX-License-Identifier: Apache-2.0
"""ctypes_entry_point.py cuda|nvml LIBRARY opens the driver by ctypes and prints its answers."""

import ctypes
import sys

api, library = sys.argv[1:]
handle = ctypes.CDLL(library)
count = ctypes.c_int(-7)
if api == "cuda":
    print("cuInit=%d countRc=%d" % (handle.cuInit(0), handle.cuDeviceGetCount(ctypes.byref(count))))
else:
    init = handle.nvmlInit_v2()
    rc = handle.nvmlDeviceGetCount_v2(ctypes.byref(count))
    print("nvmlInit=%d countRc=%d count=%d" % (init, rc, count.value))
