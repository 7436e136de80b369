# SPDX-License-Identifier: Apache-2.0
"""ctypes_entry_point.py LIBRARY opens the driver by ctypes and prints its answers."""

import ctypes
import sys

handle = ctypes.CDLL(sys.argv[1])
count = ctypes.c_int(-7)
print("cuInit=%d countRc=%d" % (handle.cuInit(0), handle.cuDeviceGetCount(ctypes.byref(count))))
