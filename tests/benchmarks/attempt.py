# SPDX-License-Identifier: Apache-2.0
"""Prints how many nanoseconds the first cuInit of this process takes, a few frames deep."""

import ctypes
import time

init = ctypes.CDLL("libcuda.so.1").cuInit


def deep(frames):
    if frames:
        return deep(frames - 1)
    start = time.perf_counter_ns()
    init(0)
    return time.perf_counter_ns() - start


print(deep(12))
