# SPDX-License-Identifier: Apache-2.0
"""UCX from PyPI patches the entries of 15 driver functions, which must also work with a null
driver.

If a patch fails, UCX continues without its registration cache and reports it only at level "diag".
"""

import os
import re

import pytest

from support import framework

pytestmark = pytest.mark.full  # needs a download

PATCHED = re.compile(r"installed bistro hook for '(cu\w+)'")
SUMMARY = re.compile(r"cuda memory hooks mode bistro: installed (\d+) on driver API")
BROKEN = re.compile(r"failed to patch|rcache failed|could not create UCP registration cache")


class Ucx(framework.Case):
    environment = "ucx"

    def info(self, *arguments):
        return [os.path.join(self.packages(), "libucx", "bin", "ucx_info")] + list(arguments)

    def env(self, level="debug"):
        return {"UCX_LOG_LEVEL": level, "UCX_MEM_LOG_LEVEL": level,
                "LD_LIBRARY_PATH": os.path.join(self.packages(), "libucx", "lib")}

    def patches(self, result):
        text = result.out + result.err
        counted = SUMMARY.findall(text)
        self.assertEqual(len(counted), 1, "UCX did not load its CUDA hooks\n%s" % result)
        return PATCHED.findall(text), int(counted[0]), BROKEN.findall(text)

    def test_ucx_patches_as_with_the_real_driver(self):
        argv = self.info("-e", "-u", "t")
        unguarded = self.control(argv, self.env())
        names, count, broken = self.patches(unguarded)
        self.assertEqual((len(names), len(set(names)), count, broken), (15, 15, 15, []),
                         str(unguarded))
        for world in ("none", "fake", "real"):
            guarded = self.guarded(argv, world, self.env())
            self.assertEqual(self.patches(guarded), (names, 15, []), str(guarded))
        print("\n  patches: unguarded %d, guarded %d; "
              "opens of /dev/nvidia*: unguarded %d, guarded 0" %
              (count, 15, len(unguarded.device_opens)))

    def test_ucx_prints_no_warning(self):
        self.control(self.info("-e", "-u", "t"), self.env("warn"))
        reference = self.run_program(self.info("-e", "-u", "t"), "none", False, self.env("warn"))
        guarded = self.guarded(self.info("-e", "-u", "t"), "real", self.env("warn"))
        self.same_words(reference, guarded, framework.same, "real")
