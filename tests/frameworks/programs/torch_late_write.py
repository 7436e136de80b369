# SPDX-License-Identifier: Apache-2.0
"""Does as YOLOv5 did: it asks PyTorch for the number of GPUs, writes the variable and starts CUDA.

PyTorch counts by NVML. The program asks the driver directly, in place of PyTorch's runtime.

torch_late_write.py [VALUE]     VALUE is written to CUDA_VISIBLE_DEVICES
"""

import ctypes
import os
import sys

import torch


def count_afresh():
    torch.cuda.device_count.cache_clear()
    return torch.cuda.device_count()


def ask_driver():
    """Returns "CODE" or "0:UUID,UUID"."""
    driver = ctypes.CDLL("libcuda.so.1")
    code = driver.cuInit(0)
    count = ctypes.c_int()
    if code == 0:
        code = driver.cuDeviceGetCount(ctypes.byref(count))
    uuids = []
    for index in range(count.value):
        device = ctypes.c_int()
        uuid = (ctypes.c_ubyte * 16)()
        driver.cuDeviceGet(ctypes.byref(device), index)
        driver.cuDeviceGetUuid_v2(uuid, device)
        text = bytes(uuid).hex()
        uuids.append("-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])))
    return "%d:%d:%s" % (code, count.value, ",".join(uuids))


os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
print("before=%d" % torch.cuda.device_count())
if len(sys.argv) > 1:
    os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[1]
# The assertion of PyTorch 2.3.0 compares with this remembered count.
print("remembered=%d" % torch.cuda.device_count())
print("driver=%s" % ask_driver())
print("after=%d" % count_afresh())
print("available=%d" % torch.cuda.is_available())
print("reads=%s" % os.environ.get("CUDA_VISIBLE_DEVICES"))
