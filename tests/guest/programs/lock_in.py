# SPDX-License-Identifier: Apache-2.0
"""lock_in.py LIBRARY [NUMBER]...: locks itself in (without a number: not), then asks the driver."""

import ctypes
import os
import sys

library = ctypes.CDLL(sys.argv[1])
calls = [number.encode() for number in sys.argv[2:]]
if calls and library.lock_in(len(calls), (ctypes.c_char_p * len(calls))(*calls)) != 0:
    sys.exit("not locked in")


def ask():
    return ctypes.CDLL("libcuda.so.1").cuInit(0)


os.write(1, b"locked\n")
os.write(1, b"cuInit=%d\n" % ask())
os._exit(0)
