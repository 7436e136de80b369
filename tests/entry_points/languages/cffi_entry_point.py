# SPDX-License-Identifier: Apache-2.0
"""cffi_entry_point.py LIBRARY opens the driver as cffi does and prints its answers."""

import sys

import cffi

ffi = cffi.FFI()
ffi.cdef("""
int cuInit(unsigned int flags);
int cuDeviceGetCount(int* count);
""")
handle = ffi.dlopen(sys.argv[1])
count = ffi.new("int*", -7)
print("cuInit=%d countRc=%d" % (handle.cuInit(0), handle.cuDeviceGetCount(count)))
