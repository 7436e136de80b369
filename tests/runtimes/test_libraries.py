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


class Libraries(harness.Case):
    """The code below adds one test method for each call."""

    def call(self, name, world, guard):
        directory = glob.glob(DIRECTORIES)[0]
        return harness.run([sys.executable, HERE + "/programs/library_call.py", directory, name],
                           world=world, guard=guard)

    def check(self, name):
        if not glob.glob(DIRECTORIES):
            harness.skip(self, "run scripts/fetch-frameworks %s libraries" % harness.DEPS)
        self.need_real_driver()
        answer, opens = NATIVE[name]
        unguarded = self.call(name, "real", False)
        self.assertEqual((unguarded.rc, unguarded.out), (0, "%s=%d\n" % (name, answer)),
                         str(unguarded))
        self.assertEqual(bool(unguarded.device_opens), opens, "control\n%s" % unguarded)
        for world in ("none", "fake", "real"):
            guarded = self.call(name, world, True)
            guarded.assert_untouched(self)
            self.assertEqual((guarded.rc, guarded.out, messages.without(guarded.err, "no_cuda")),
                             (unguarded.rc, unguarded.out, unguarded.err), str(guarded))


for call_name in NATIVE:
    setattr(Libraries, "test_" + call_name, lambda self, name=call_name: self.check(name))
