# SPDX-License-Identifier: Apache-2.0
"""Initialises CUDA through pycuda's extension, which ld.so cannot load without a libcuda.so.1."""

import pycuda._driver

try:
    pycuda._driver.init()
    print("cuInit=0")
except pycuda._driver.Error as error:
    print("cuInit=%s" % (100 if "no CUDA-capable device is detected" in str(error) else error))
