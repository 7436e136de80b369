# SPDX-License-Identifier: Apache-2.0
"""Asks a driver library what it answers without a GPU and prints the answers as JSON.

    ask_driver.py LIBCUDA LIBNVIDIA-ML < questions.json

The questions: {"exports": names, "names": names to look up, "versions": {name: versions},
"codes": CUresult codes, "nvml_codes": ...}, or {"first": {"cu": names, "nvml": names}}: what does
each function answer as the first that a process calls? test_native_answers.py runs this once for
the real driver and once for the null drivers, each in a sandbox.
"""

import ctypes
import json
import os
import signal
import sys

UNTOUCHED = 0x55
FLAGS = (0, 1, 2, 3, 4, 1 << 33)


def look_up(driver, questions):
    addresses = {}
    for name in questions["exports"]:
        addresses[ctypes.cast(getattr(driver, name), ctypes.c_void_p).value] = name

    def entry(pointer):
        return addresses.get(pointer.value, pointer.value)

    def ask(name, version, flags, form):
        pointer, status = ctypes.c_void_p(UNTOUCHED), ctypes.c_int(77)
        arguments = [name.encode(), ctypes.byref(pointer), ctypes.c_int(version),
                     ctypes.c_uint64(flags)]
        if form == "v1":
            return [driver.cuGetProcAddress(*arguments), entry(pointer)]
        arguments.append(ctypes.byref(status) if form == "v2" else None)
        return [driver.cuGetProcAddress_v2(*arguments), entry(pointer), status.value]

    return {
        "%s %d %d %s" % (name, version, flags, form): ask(name, version, flags, form)
        for name in questions["names"]
        for version in questions["versions"].get(name, questions["versions"][""])
        for flags in FLAGS
        for form in ("v1", "v2", "v2 without status")
    }


def texts(driver, nvml, questions):
    result = {}
    for function in ("cuGetErrorName", "cuGetErrorString"):
        for code in questions["codes"]:
            text = ctypes.c_char_p(b"untouched")
            answer = getattr(driver, function)(code, ctypes.byref(text))
            result["%s %d" % (function, code)] = [answer, text.value and text.value.decode()]
    nvml.nvmlErrorString.restype = ctypes.c_char_p
    for code in questions["nvml_codes"]:
        result["nvmlErrorString %d" % code] = nvml.nvmlErrorString(code).decode()
    return result


def before_init(driver):
    """Returns the few answers that are the same with and without an initialised driver."""
    count = ctypes.c_int(UNTOUCHED)
    return {
        "cuInit(1)": driver.cuInit(1),
        "cuInit(0)": driver.cuInit(0),
        "cuInit(0) again": driver.cuInit(0),
        "cuInit(1) again": driver.cuInit(1),
        "cuDriverGetVersion": driver.cuDriverGetVersion(ctypes.byref(count)),
        "cuDriverGetVersion(NULL)": driver.cuDriverGetVersion(None),
        "cuDeviceGetCount": driver.cuDeviceGetCount(ctypes.byref(count)),
        "cuDeviceGetCount(NULL)": driver.cuDeviceGetCount(None),
        "cuCtxGetCurrent": driver.cuCtxGetCurrent(ctypes.byref(ctypes.c_void_p())),
        "cuMemAlloc_v2": driver.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()),
                                              ctypes.c_size_t(16)),
    }


def without_nvml(nvml, when):
    """Returns what NVML's functions answer before an nvmlInit that succeeds, and what they write."""
    number, handle = ctypes.c_uint(UNTOUCHED), ctypes.c_void_p(UNTOUCHED)
    text = ctypes.create_string_buffer(b"U", 99)
    to_number, to_handle = ctypes.byref(number), ctypes.byref(handle)
    calls = {
        "nvmlDeviceGetCount": (to_number,), "nvmlDeviceGetCount_v2": (to_number,),
        "nvmlUnitGetCount": (to_number,), "nvmlGetExcludedDeviceCount": (to_number,),
        "nvmlDeviceGetHandleByIndex": (0, to_handle),
        "nvmlDeviceGetHandleByIndex_v2": (0, to_handle),
        "nvmlDeviceGetHandleByUUID": (b"GPU-1", to_handle),
        "nvmlDeviceGetHandleBySerial": (b"1", to_handle),
        "nvmlDeviceGetHandleByPciBusId_v2": (b"0:0:0", to_handle),
        "nvmlUnitGetHandleByIndex": (0, to_handle),
        "nvmlSystemGetCudaDriverVersion": (to_number,),
        "nvmlSystemGetCudaDriverVersion_v2": (to_number,),
        "nvmlSystemGetDriverVersion": (text, 99), "nvmlSystemGetProcessName": (1, text, 99),
        "nvmlSystemGetHicVersion": (to_number, None),
        "nvmlSystemGetTopologyGpuSet": (0, to_number, None), "nvmlEventSetCreate": (to_handle,),
        "nvmlEventSetWait": (None, None, 1), "nvmlEventSetWait_v2": (None, None, 1),
        "nvmlEventSetFree": (None,), "nvmlShutdown": (),
    }
    answers = {"%s %s" % (name, when): getattr(nvml, name)(*arguments)
               for name, arguments in calls.items()}
    answers["nvmlDeviceGetCount_v2(NULL) " + when] = nvml.nvmlDeviceGetCount_v2(None)
    answers["NVML writes " + when] = [number.value, handle.value, text.value.decode()]
    answers["nvmlSystemGetNVMLVersion " + when] = nvml.nvmlSystemGetNVMLVersion(text, 99)
    return answers


def nvml_answers(nvml):
    """NVIDIA's nvmlInit_v2 has several reasons to fail without a GPU."""
    answers = without_nvml(nvml, "first")
    answers["nvmlInit_v2 fails"] = nvml.nvmlInit_v2() != 0
    answers["nvmlInitWithFlags fails"] = nvml.nvmlInitWithFlags(0) != 0
    answers.update(without_nvml(nvml, "after the refusal"))
    return answers


def first_answer(function):
    """Returns what the function answers in a process of its own: a number, or None if it crashes.
    Each argument leads to zeros."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        zeros = [ctypes.create_string_buffer(1 << 13) for _ in range(10)]
        os.write(write, b"%d" % function(*map(ctypes.byref, zeros)))
        os._exit(0)
    os.close(write)
    answer = os.read(read, 99)
    os.close(read)
    os.waitpid(child, 0)
    return int(answer) if answer else None


def main():
    driver, nvml = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])
    questions = json.load(sys.stdin)
    if "first" in questions:
        answers = {name: first_answer(getattr(library, name))
                   for library, prefix in ((driver, "cu"), (nvml, "nvml"))
                   for name in questions["first"][prefix]}
        sys.stdout.write(json.dumps(answers))
        return
    answers = {**look_up(driver, questions), **texts(driver, nvml, questions),
               **nvml_answers(nvml), **before_init(driver)}
    sys.stdout.write(json.dumps(answers))  # one write, because the harness traces every write


main()
