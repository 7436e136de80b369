# SPDX-License-Identifier: Apache-2.0
"""The committed table of API names is the one that its generator makes."""

import os
import shutil
import subprocess
import sys
import tempfile

from support import harness

HEADER_SETS = ("cuda-11", "cuda-12.2", "cuda-12", "cuda-13")


class Table(harness.Case):

    def setUp(self):
        super().setUp()
        for name in HEADER_SETS:
            if not os.path.exists(os.path.join(harness.DEPS, name, "include", "cuda.h")):
                harness.skip(self, "no headers: run scripts/fetch-cuda %s all" % harness.DEPS)

    def command(self, checkout=harness.SOURCE):
        return [sys.executable, os.path.join(checkout, "scripts", "generate-api"), "--verify",
                "--deps", harness.DEPS]

    def test_committed_table_is_up_to_date(self):
        worlds = ["none"] + (["real"] if harness.have_real_driver() else [])
        for world in worlds:  # without the driver, the committed facts replace it
            result = harness.run(self.command(), world=world, guard=False, trace=False)
            self.assertEqual((result.rc, result.out, result.err), (0, "", ""), str(result))

    def test_control_each_change_is_reported(self):
        # Control: the check reports a change in each kind of file.
        with tempfile.TemporaryDirectory(prefix="cg-") as checkout:
            api = os.path.join(checkout, "shim", "api")
            shutil.copytree(os.path.join(harness.SOURCE, "shim", "api"), api)
            os.mkdir(os.path.join(checkout, "scripts"))
            shutil.copy(os.path.join(harness.SOURCE, "scripts", "generate-api"),
                        os.path.join(checkout, "scripts"))
            # The errors' texts come from the driver, so their rows cannot be made without it.
            errors = ["errors.csv"] if harness.have_reference_driver() else []
            missing = []
            for name in ("driver.csv", "nvml.csv", *errors, "generated/driver.map",
                         "generated/driver_lookup.inc", "generated/nvml_entries.inc"):
                path = os.path.join(api, name)
                with open(path, encoding="utf-8") as stream:
                    lines = stream.readlines()
                missing.append((name, "+" + lines.pop(5)))
                with open(path, "w", encoding="utf-8") as stream:
                    stream.writelines(lines)
            with open(os.path.join(api, "generated", "left_over.inc"), "w", encoding="utf-8"):
                pass
            done = subprocess.run(self.command(checkout), capture_output=True, text=True)
            self.assertEqual(done.returncode, 1, done.stderr)
            for name, line in missing:
                diff = done.stdout.partition("--- committed/%s\n" % name)[2].partition("\n--- ")[0]
                self.assertIn(line, diff, name)
            self.assertIn("left_over.inc", done.stdout)
