# SPDX-License-Identifier: Apache-2.0
"""Prints what NVML reports about the system, with the calls of dask, pynvml_utils and the
exporters, after an nvmlInit that succeeds. nvidia-ml-py itself calls another one."""

import ctypes
import os

import pynvml

try:
    pynvml.nvmlInit()
except pynvml.NVMLError_DriverNotLoaded:
    print("with flags=not loaded")
try:
    pynvml.nvmlDeviceGetCount()
except pynvml.NVMLError_Uninitialized:
    print("before=uninitialised")
print("init=%d" % pynvml._nvmlGetFunctionPointer("nvmlInit")())
print("driver=%s" % pynvml.nvmlSystemGetDriverVersion())
print("nvml=%s" % pynvml.nvmlSystemGetNVMLVersion())
print("cuda=%d" % pynvml.nvmlSystemGetCudaDriverVersion())
print("cuda2=%d" % pynvml.nvmlSystemGetCudaDriverVersion_v2())
cuda = ctypes.c_int()
ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(cuda))
print("libcuda=%d" % cuda.value)
print("devices=%d" % pynvml.nvmlDeviceGetCount())
print("units=%d" % pynvml.nvmlUnitGetCount())
print("hics=%d" % len(pynvml.nvmlSystemGetHicVersion()))
print("near=%d" % len(pynvml.nvmlSystemGetTopologyGpuSet(0)))
try:
    pynvml.nvmlSystemGetProcessName(os.getpid())
except pynvml.NVMLError_NotFound:
    print("process=none found")
short = ctypes.create_string_buffer(6)
function = pynvml._nvmlGetFunctionPointer("nvmlSystemGetDriverVersion")
print("short=%d" % function(short, ctypes.c_uint(6)))
events = pynvml.nvmlEventSetCreate()
try:
    pynvml.nvmlEventSetWait(events, 1)
except pynvml.NVMLError_Timeout:
    print("events=none came")
pynvml.nvmlEventSetFree(events)
pynvml._nvmlGetFunctionPointer("nvmlShutdown")()
try:
    pynvml.nvmlDeviceGetCount()
except pynvml.NVMLError_Uninitialized:
    print("after=uninitialised")
