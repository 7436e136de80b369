# SPDX-License-Identifier: Apache-2.0
"""The table of tests/lab/device_indices.md has every call that takes a device index, and the call's
outcome."""

import os
import re

import pytest

from support import box, harness, messages, policies
from support.box import uuid

ALLOW, BAD = "5,2,7", 3
HEADERS = os.path.join(harness.DEPS, "cuda-13", "include")
LOCATION = r"(?:const )?(?:struct )?(?:CU|cuda)[mM]emLocation ?(\*?) ?(?!\w+_out)\w+"
VERSION = re.compile(r"(_v\d+)?(_pt[ds][sz])?$")


def read(*path):
    with open(os.path.join(harness.SOURCE, *path), encoding="utf-8") as stream:
        return stream.read()


def rows():
    """Returns {name: layout} of tests/fakes/indexed.inc."""
    text = read("tests", "fakes", "indexed.inc")
    return dict(re.findall(r'^(?:DRIVER|RUNTIME)_INDEX\((\w+), "(.*)"\)', text, re.M))


def documented():
    """Returns {name: outcome of a bad index}."""
    text = read("tests", "lab", "device_indices.md")
    found = {}
    for names, outcome in re.findall(r"^\| (.*?`.*?) \| (.*) \|$", text, re.M):
        for name in re.findall(r"`(\w+)`", names):
            if name in found:
                raise ValueError(name + " is there twice")
            found[name] = outcome
    return found


def letter(parameter):
    """Returns the letter that indexed.inc uses for this parameter."""
    if re.fullmatch(r"CUdevice \w+|int (?:ordinal|\w*[dD]evice)", parameter):
        return "d"
    if re.fullmatch(r"int ?\* ?device_arr", parameter):
        return "v"
    location = re.fullmatch(LOCATION, parameter)
    if location:
        return "L" if location[1] else "l"
    for pattern, kind in ((r"(CUmemAllocationProp|CU\w*PoolProps|cuda\w*PoolProps)", "P"),
                          (r"(CU|cuda)[mM]emAccessDesc", "A"), (r"cudaMemcpy3DPeerParms", "M")):
        if re.match(r"const (struct )?%s ?\*" % pattern, parameter):
            return kind
    return "p" if "*" in parameter else "."


def from_header(name):
    """Returns {name: layout} of a header's calls that have an index among their parameters."""
    with open(os.path.join(HEADERS, name), encoding="utf-8", errors="replace") as stream:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", stream.read(), flags=re.S)
    prototype = r"\b(?:CUresult\s+CUDAAPI|cudaError_t\s+CUDARTAPI)\s+(cu\w+)\s*\(([^;{]*?)\)\s*;"
    found = {}
    for call, parameters in re.findall(prototype, text):
        parameters = re.sub(r"__dv\(.*?\)", "", " ".join(parameters.split()))
        layout = "".join(letter(parameter.strip()) for parameter in parameters.split(","))
        if re.search("[dvlLPAM]", layout):
            found.setdefault(call, layout)
    # The table omits an older form of a call if it has the newer form.
    return {call: layout for call, layout in found.items()
            if VERSION.sub("", call) == call or VERSION.sub("", call) not in found}


def test_table_has_every_call_with_a_device_index(case):
    if not os.path.isdir(HEADERS):
        harness.skip(case, "run scripts/fetch-cuda build/_deps 13")
    headers = {**from_header("cuda.h"), **from_header("cuda_runtime_api.h")}
    assert len(headers) > 90
    plain = {VERSION.sub("", name): layout for name, layout in headers.items()}
    assert {VERSION.sub("", name): layout for name, layout in rows().items()} == plain
    assert set(documented()) == set(plain)
    assert set(documented().values()) == {"validated, clamped", "passed on"}


def calls_of(index):
    """Returns each index parameter of each call once."""
    return ["%s,%d,%d" % (name, position, index) for name, layout in rows().items()
            for position, kind in enumerate(layout) if kind not in "p."]


def answers(index, major, **more):
    calls = calls_of(index)
    result = box.run(calls, "index_calls%d" % major, **more)
    assert result.rc == 0, str(result)
    found = dict(line.split("=") for line in result.out.splitlines())
    assert sorted(found) == sorted(calls), str(result)
    return result, {call: found[call] == "101" for call in calls}


def test_control_only_bad_indices_are_refused_unguarded():
    """Control: the runtime refuses every bad index and no good index."""
    own = ",".join(uuid(gpu) for gpu in (5, 2, 7))
    for major in (12, 13):
        for index, refused in ((2, False), (BAD, True), (-1, True)):
            _, found = answers(index, major, guard=False, own=own)
            assert {call for call, is_refused in found.items() if is_refused != refused} == set()


@pytest.mark.parametrize("policy", policies.COMPUTING)
@pytest.mark.parametrize("major", [12, 13])
def test_each_call_has_its_documented_outcome(major, policy):
    checked = {name for name, outcome in documented().items() if outcome != "passed on"}
    assert len(checked) == 5
    result, found = answers(BAD, major, allow=ALLOW, policy=policy)
    for call, refused in found.items():
        name = VERSION.sub("", call.partition(",")[0])
        clamped = policy in policies.CLAMPING and name in checked
        assert refused == (not clamped), str(call)
    found = messages.find(result.err, "bad_index", device=3)
    reported = [message["call"] for message in found]
    assert sorted(reported) == sorted(checked), str(result)
    assert [message["used"]
            for message in found] == ["2" if policy in policies.CLAMPING else None] * 5, str(result)


def test_limit_runtime_by_dlsym_is_not_checked(case):
    """tests/lab/limits.md: ctypes.CDLL("libcudart.so.12").cudaSetDevice bypasses the check."""
    for major in (12, 13):
        for policy in policies.COMPUTING:
            result, found = answers(BAD, major, allow=ALLOW, policy=policy, CG_DLSYM="1")
            for call, refused in found.items():
                if call.startswith("cuda"):
                    assert refused, str(call)
            case.message(result, "bad_index", call="cuDeviceGet", device=3)
