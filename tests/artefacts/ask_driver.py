# SPDX-License-Identifier: Apache-2.0
"""Asks a driver library what it answers without a GPU and prints the answers as JSON.

    ask_driver.py LIBCUDA LIBNVIDIA-ML < questions.json

The questions: {"exports": names, "names": names to look up, "versions": {name: versions},
"codes": CUresult codes, "nvml_codes": ...}. test_native_answers.py runs this once for the real
driver
and once for the null drivers, each in a sandbox.
"""

import ctypes
import json
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


def main():
    driver, nvml = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])
    questions = json.load(sys.stdin)
    answers = {**look_up(driver, questions), **texts(driver, nvml, questions),
               **before_init(driver)}
    sys.stdout.write(json.dumps(answers))  # one write, because the harness traces every write


main()
