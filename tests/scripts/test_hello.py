# SPDX-License-Identifier: Apache-2.0
"""In scripts/quickstart, a newcomer without a driver sees one GPU unguarded and none guarded."""

import os

from support import harness

HELLO = os.path.join(harness.PROGRAMS, "hello_driver")


class Hello(harness.Case):
    def test_program_sees_one_gpu_unguarded(self):
        result = harness.run([HELLO], guard=False)
        result.assert_reached(self)
        self.assertEqual((result.rc, result.out),
                         (0, "hello_driver: 1 GPU(s), copied 1 2 3 4 there and back\n"), result)

    def test_guarded_program_sees_no_gpu(self):
        result = harness.run([HELLO])
        result.assert_untouched(self)
        self.assertEqual((result.rc, result.out), (
            0, "hello_driver: no CUDA-capable device is detected (error 100); working on the CPU\n"),
            result)
