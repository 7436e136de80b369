# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's libraries on top of the runtime answer under the guard as with a driver without a
device."""

import glob
import os
import sys

import pytest

from support import harness, messages

pytestmark = pytest.mark.full  # needs a download

HERE = os.path.dirname(os.path.abspath(__file__))
DIRECTORIES = os.path.join(harness.DEPS, "frameworks/libraries/lib/python3*/site-packages/nvidia")
# Name -> (its answer with the real driver and no device, whether it opens the device unguarded)
NATIVE = {
    "cublasCreate": (1, True),
    "cublasLtCreate": (1, True),
    "cufftPlan1d": (11, True),
    "curandCreateGenerator": (203, True),
    "cusparseCreate": (1, True),
    "cusolverDnCreate": (1, True),
    "cudnnCreate": (1001, True),
    "cuptiSubscribe": (15, True),
    "ncclCommInitAll": (1, True),
    "ncclGetUniqueId": (0, False),  # works without a GPU
}


@pytest.mark.parametrize("name", NATIVE)
def test_first_call_answers_as_without_a_device(case, name):
    case.need_fetched("libraries")
    case.need_real_driver()
    words = [sys.executable, HERE + "/programs/library_call.py", *glob.glob(DIRECTORIES), name]
    answer, opens = NATIVE[name]
    unguarded = harness.run(words, world="real", guard=False)
    assert (unguarded.rc, unguarded.out) == (0, "%s=%d\n" % (name, answer)), str(unguarded)
    assert bool(unguarded.device_opens) == opens, "control\n%s" % unguarded
    for world in ("none", "fake", "real"):
        guarded = harness.run(words, world=world)
        guarded.assert_untouched(case)
        assert (guarded.rc, guarded.out, messages.without(guarded.err, "no_cuda")) == (
            unguarded.rc, unguarded.out, unguarded.err), str(guarded)
