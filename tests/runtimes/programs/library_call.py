# SPDX-License-Identifier: Apache-2.0
"""library_call.py DIRECTORY NAME makes the first call to one of NVIDIA's libraries in
DIRECTORY/*/lib."""

import ctypes
import glob
import sys

directory, name = sys.argv[1:]
handle = ctypes.c_void_p()


def library(pattern):
    return ctypes.CDLL(sorted(glob.glob("%s/*/lib/%s" % (directory, pattern)))[0], ctypes.RTLD_GLOBAL)


def cufft_plan():
    plan = ctypes.c_int()
    c2c = 0x29
    return library("libcufft.so.[0-9]*").cufftPlan1d(ctypes.byref(plan), 8, c2c, 1)


def cupti_subscribe():
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)(
        lambda *_: None)
    return library("libcupti.so.[0-9]*").cuptiSubscribe(ctypes.byref(handle), callback, None)


def create(pattern, function):
    return lambda: getattr(library(pattern), function)(ctypes.byref(handle))


CALLS = {
    "cublasCreate": create("libcublas.so.[0-9]*", "cublasCreate_v2"),
    "cublasLtCreate": create("libcublasLt.so.[0-9]*", "cublasLtCreate"),
    "cufftPlan1d": cufft_plan,
    "curandCreateGenerator": lambda: library("libcurand.so.[0-9]*").curandCreateGenerator(
        ctypes.byref(handle), 100),
    "cusparseCreate": create("libcusparse.so.[0-9]*", "cusparseCreate"),
    "cusolverDnCreate": create("libcusolver.so.[0-9]*", "cusolverDnCreate"),
    "cudnnCreate": create("libcudnn.so.[0-9]*", "cudnnCreate"),
    "cuptiSubscribe": cupti_subscribe,
    "ncclCommInitAll": lambda: library("libnccl.so.[0-9]*").ncclCommInitAll(
        ctypes.byref(handle), 1, None),
    "ncclGetUniqueId": lambda: library("libnccl.so.[0-9]*").ncclGetUniqueId(
        ctypes.create_string_buffer(128)),
}

# The libraries that they are linked to are in other wheels' directories, which ld.so does not
# search.
for needed in ("libnvJitLink", "libcublasLt", "libcublas", "libcusparse"):
    library(needed + ".so.[0-9]*")
print("%s=%d" % (name, CALLS[name]()))
