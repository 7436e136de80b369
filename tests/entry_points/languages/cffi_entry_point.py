# SPDX-License-Identifier: Apache-2.0
"""cffi_entry_point.py cuda|nvml LIBRARY opens the driver as cffi does and prints its answers."""

import sys

import cffi

ffi = cffi.FFI()
ffi.cdef("""
int cuInit(unsigned int flags);
int cuDeviceGetCount(int* count);
int nvmlInit_v2(void);
int nvmlDeviceGetCount_v2(int* count);
""")
api, library = sys.argv[1:]
handle = ffi.dlopen(library)
count = ffi.new("int*", -7)
if api == "cuda":
    print("cuInit=%d countRc=%d" % (handle.cuInit(0), handle.cuDeviceGetCount(count)))
else:
    init = handle.nvmlInit_v2()
    rc = handle.nvmlDeviceGetCount_v2(count)
    print("nvmlInit=%d countRc=%d count=%d" % (init, rc, count[0]))
