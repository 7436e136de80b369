# SPDX-License-Identifier: Apache-2.0
"""The native stack on a glibc whose unwinder takes a lock of the loader's (before 2.35): whole, but
in a forked child the caller alone, as another thread of the parent may have held that lock."""

import os
import sys

import harness

sys.path.append(os.path.join(harness.SOURCE, "tests", "roots"))
import systems  # noqa: E402

NATIVE = os.path.join(harness.SOURCE, "tests", "stacks", "programs", "native.cpp")


class OldGlibc(systems.Case):
    def record(self, root, name, *defines):
        systems.link(root, [NATIVE, *defines], os.path.join(self.programs, name),
                     ["librt.so.1", "libstdc++.so.6", "libm.so.6", "libgcc_s.so.1"],
                     includes=[systems.CUDA_12 + "/include", systems.CUDA_13 + "/include"],
                     archives=[systems.CUDA_12 + "/lib/libcudart_static.a"])
        program = "/mnt/programs/" + name
        self.run_inside(root, [program]).assert_reached(self)
        self.run_inside(root, ["/usr/bin/env", "CUDAGUARD_REPORT=/mnt/out/report", program],
                        preload=["/mnt/lib/libcudaguard.so"]).assert_untouched(self)
        record, = harness.records(os.path.join(self.scratch, "out", "report"))
        return record

    def test_bullseye(self):
        root = self.system("bullseye")
        whole = self.record(root, "native")
        self.assertNotIn("native_missing", whole)
        self.assertGreater(len(whole["native"]), 4, whole)
        forked = self.record(root, "native_fork", "-DFORK")
        self.assertEqual(forked.get("native_missing"), "forked child", forked)
        self.assertNotIn("native", forked)
        self.assertIn("native_fork+0x", forked["caller"])


if __name__ == "__main__":
    harness.main()
