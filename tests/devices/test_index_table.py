# SPDX-License-Identifier: Apache-2.0
"""The table of tests/lab/device_indices.md has every call that takes a device index, and those that
the guard checks."""

import os
import re
import sys

import pytest

from devices import test_indices
from support import box, harness, policies

HEADERS = os.path.join(harness.DEPS, "cuda-13", "include")
LOCATION = r"(?:const )?(?:struct )?(?:CU|cuda)[mM]emLocation ?\*? ?(?!\w+_out)\w+"
STRUCTS = (r"const (struct )?(CUmemAllocationProp|CU\w*PoolProps|cuda\w*PoolProps|"
           r"(CU|cuda)[mM]emAccessDesc|cudaMemcpy3DPeerParms) ?\*")
INDEX = r"CUdevice \w+|int (?:ordinal|\w*[dD]evice)|int ?\* ?device_arr|" + LOCATION
VERSION = re.compile(r"(_v\d+)?(_pt[ds][sz])?$")


def documented():
    """Returns {name: outcome of a bad index}."""
    text = harness.read("tests", "lab", "device_indices.md")
    found = {}
    for names, outcome in re.findall(r"^\| (.*?`.*?) \| (.*) \|$", text, re.M):
        for name in re.findall(r"`(\w+)`", names):
            if name in found:
                raise ValueError(name + " is there twice")
            found[name] = outcome
    return found


def has_index(parameter):
    return bool(re.fullmatch(INDEX, parameter) or re.match(STRUCTS, parameter))


def from_header(name):
    """Returns a header's calls that have an index as a parameter, without their versions."""
    with open(os.path.join(HEADERS, name), encoding="utf-8", errors="replace") as stream:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", stream.read(), flags=re.S)
    prototype = r"\b(?:CUresult\s+CUDAAPI|cudaError_t\s+CUDARTAPI)\s+(cu\w+)\s*\(([^;{]*?)\)\s*;"
    return {VERSION.sub("", call) for call, parameters in re.findall(prototype, text)
            if any(has_index(one.strip()) for one in re.sub(
                r"__dv\(.*?\)", "", " ".join(parameters.split())).split(","))}


def test_table_has_every_call_with_a_device_index(case):
    if not os.path.isdir(HEADERS):
        harness.skip(case, "run scripts/fetch-cuda build/_deps 13")
    headers = from_header("cuda.h") | from_header("cuda_runtime_api.h")
    assert len(headers) > 90
    assert set(documented()) == headers
    assert set(documented().values()) == {"validated, clamped", "passed on"}


def test_table_has_the_calls_that_the_guard_checks():
    """test_indices.py tests these. test_names.py tests that other names are the driver's own."""
    checked = {name for name, outcome in documented().items() if outcome != "passed on"}
    tested = {VERSION.sub("", call) for call in test_indices.CALLS.values()}
    assert checked == {"cuDeviceGet", *tested}


@pytest.mark.parametrize("policy", policies.COMPUTING)
@pytest.mark.parametrize("major", [12, 13])
def test_limit_runtime_by_dlsym_is_not_checked(case, major, policy):
    """tests/lab/limits.md: ctypes.CDLL("libcudart.so.12").cudaSetDevice bypasses the check."""
    runtime = os.path.join(harness.FAKES, "runtime", "libcudart.so.%d" % major)
    text = "import ctypes; print(ctypes.CDLL(%r).cudaSetDevice(3))" % runtime
    result = box.start([sys.executable, "-c", text], guard=True, allow="5,2,7", policy=policy)
    assert result.out == "101\n", str(result)
    case.silent(result)
