# SPDX-License-Identifier: Apache-2.0
"""Programs that show GPUs see none and end as they do if NVML counts none."""

import json
import os

import pytest

from support import framework

pytestmark = pytest.mark.full  # needs a download

SYSTEM = """\
driver=999.90
nvml=99.999.90
cuda=99990
cuda2=99990
libcuda=99990
devices=0
units=0
hics=0
near=0
process=none found
short=7
events=none came
"""


class Monitor(framework.Case):
    def tool(self, name, *arguments):
        return [os.path.join(framework.ENVIRONMENTS, self.environment, "bin", name), *arguments]

    def sees_none(self, argv, rc=0, out="", err=""):
        """Fails unless the unguarded program enters NVIDIA's driver, and the guarded one ends with
        this code and these words. Returns the output."""
        env = {"PYTHONWARNINGS": "ignore"}  # PyPI's pynvml warns that it is old
        self.control(argv, env)
        for world in ("none", "real"):
            result = self.guarded(argv, world, env)
            self.assertEqual(result.rc, rc, result)
            self.assertIn(out, result.out, result)
            self.assertEqual(result.err, err, result)
        return result.out


class Monitors(Monitor):
    environment = "monitors"

    def test_system_queries_answer(self):
        self.sees_none(self.argv("nvml_system.py"), out=SYSTEM)

    def test_gpustat_shows_no_gpu(self):
        self.sees_none(self.tool("gpustat", "--no-header"), out="(No GPUs are available)")
        self.assertEqual(json.loads(self.sees_none(self.tool("gpustat", "--json")))["gpus"], [])

    def test_nvitop_shows_no_gpu(self):
        self.sees_none(self.tool("nvitop", "--once", "--ascii"), out="No visible devices found")

    def test_exporter_reports_that_there_is_no_gpu(self):
        self.sees_none(self.tool("nvitop-exporter", "--bind-address", "127.0.0.1"), rc=1,
                       err="NVML ERROR: No NVIDIA devices found.\n")

    def test_codecarbon_measures_no_gpu(self):
        self.sees_none(self.argv("codecarbon_gpus.py"), out="gpus=0\n")


class OldGpustat(Monitor):
    environment = "gpustat-1.0"

    def test_old_gpustats_json_shows_no_gpu(self):
        shown = json.loads(self.sees_none(self.tool("gpustat", "--json")))
        self.assertEqual((shown["driver_version"], shown["gpus"]), ("999.90", []))

    def test_limit_old_gpustats_table_fails_without_a_gpu(self):
        """A known defect of gpustat 1.0: its table cannot show that there is no GPU
        (docs/troubleshooting.md)."""
        result = self.run_program(self.tool("gpustat"), "none", True)
        self.assertIn("ValueError: max() arg is an empty sequence", result.err, result)


del Monitor  # has no tests of its own
