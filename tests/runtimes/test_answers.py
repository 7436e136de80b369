# SPDX-License-Identifier: Apache-2.0
"""Every call of a sample returns 100 under cudart 11, 12.2, 12 and 13, shared and static."""

import os
import re

import pytest

from support import harness, messages

CALLS = ["cudaGetDeviceCount", "cudaSetDevice", "cudaGetDevice", "cudaGetDeviceProperties",
         "cudaDeviceGetAttribute", "cudaMalloc", "cudaMallocHost", "cudaMemGetInfo",
         "cudaStreamCreate", "cudaEventCreate", "cudaLaunchKernel", "cudaDeviceSynchronize",
         "cudaFree", "cudaDeviceReset"]
TEXT = "no_CUDA-capable_device_is_detected"
# NVIDIA's wheel of 12.2 has no static runtime, so that of 12 is used. That of 11 needs a download
# of 774 MB (scripts/fetch-cuda).
RUNTIMES = ["11_shared", pytest.param("11_static", marks=pytest.mark.full), "12.2_shared",
            "12_shared", "12_static", "13_shared", "13_static"]
WORLDS = ["none", "fake"] + ["real"] * harness.have_real_driver()


def answers(result):
    """Returns [(call, answer, cudaGetLastError after it, text)]."""
    return re.findall(r"^(\w+)=(\d+) \1\.last=(\d+) text=(\S+)", result.out, re.M)


def check(case, result, calls):
    assert result.rc == 0, str(result)
    assert answers(result) == [(call, "100", "100", TEXT) for call in calls], str(result)
    result.assert_untouched(case)
    assert len(messages.find(result.err, "no_cuda")) == 1, str(result)
    assert messages.without(result.err, "no_cuda") == "", str(result)


@pytest.fixture(name="program", scope="module", params=RUNTIMES)
def make_program(request):
    """The sample with this runtime. The controls: unguarded, it reaches the driver."""
    case = harness.Case()
    case.setUp()
    program = harness.program("runtime_" + request.param)
    if not os.path.exists(program):
        harness.skip(case, "scripts/fetch-cuda brought no runtime " + request.param)
    # The program has the same list, so no call is missing in either place.
    listed = harness.run([program, "list"], world="none", guard=False, trace=False)
    assert listed.out.split() == CALLS
    unguarded = harness.run([program, "sample"], world="fake", guard=False)
    unguarded.assert_reached(case)
    if harness.have_real_driver():
        real = harness.run([program, "sample"], world="real", guard=False)
        if request.param.startswith("13"):
            # Driver 535 is too old for this runtime, which stops before any CUDA attempt.
            assert {row[1] for row in answers(real)} == {"35"}, str(real)
        else:
            real.assert_reached(case)
            # NVIDIA's driver gives the same answers on a machine without a device.
            assert answers(real) == [(call, "100", "100", TEXT) for call in CALLS]
    return program


@pytest.mark.parametrize("world", WORLDS)
def test_every_call_returns_100(case, program, world):
    check(case, harness.run([program, "sample"], world=world), CALLS)


@pytest.mark.parametrize("call", CALLS)
def test_first_call_returns_100(case, program, call):
    check(case, harness.run([program, "only", call], world="fake"), [call])


def test_real_driver_is_installed(case):
    """Without the real driver half of the controls are missing, and this test reports it."""
    case.need_real_driver()
