# SPDX-License-Identifier: Apache-2.0
"""nvml_devices.py count|answers calls NVML through nvidia-ml-py."""

import sys

import pynvml


def ask(name, *arguments):
    try:
        return getattr(pynvml, name)(*arguments)
    except pynvml.NVMLError as error:
        return type(error).__name__


def devices():
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        pynvml.nvmlShutdown()
        return count
    except pynvml.NVMLError:
        return 0


if sys.argv[1] == "count":
    print("gpus=%d" % devices())
else:
    print("nvmlInit=%s" % ask("nvmlInit"))
    print("nvmlInitWithFlags=%s" % ask("nvmlInitWithFlags", 0))
    print("count=%s" % ask("nvmlDeviceGetCount"))
    print("byIndex=%s" % ask("nvmlDeviceGetHandleByIndex", 0))
    print("byUuid=%s" % ask("nvmlDeviceGetHandleByUUID", "GPU-0"))
    print("bySerial=%s" % ask("nvmlDeviceGetHandleBySerial", "1"))
    print("byPciBusId=%s" % ask("nvmlDeviceGetHandleByPciBusId", "00000000:01:00.0"))
    print("nvmlShutdown=%s" % ask("nvmlShutdown"))
