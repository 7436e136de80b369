# SPDX-License-Identifier: Apache-2.0
"""Programs that show GPUs see none and end as they do if the driver is not loaded."""

import pytest

from support import framework

pytestmark = pytest.mark.full  # needs a download

SYSTEM = """\
with flags=not loaded
before=uninitialised
init=0
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
after=uninitialised
"""
# What gpustat prints to stderr. Version 1.0 does not print the second line.
GPUSTAT = ("Error on querying NVIDIA devices. Use --debug flag to see more details.\n"
           "Driver Not Loaded\n")
OLD_GPUSTAT = "Error on querying NVIDIA devices. Use --debug flag for details\n"
NVITOP = "NVML ERROR: Driver Not Loaded\n"


class Monitor(framework.Case):
    def sees_none(self, argv, rc=0, out="", err=""):
        """Fails unless the unguarded program enters NVIDIA's driver, and the guarded one ends with
        this code and these words. Returns the output."""
        env = {"PYTHONWARNINGS": "ignore"}  # PyPI's pynvml warns that it is old
        self.control(argv, env)
        for world in ("none", "real"):
            result = self.guarded(argv, world, env)
            self.assertEqual(result.rc, rc, result)
            self.assertIn(out, result.out, result)
            lines = [line for line in result.err.splitlines(True) if not line.startswith("[codecarbon ")]
            self.assertEqual("".join(lines), err, result)
        return result.out


class Monitors(Monitor):
    environment = "monitors"

    def test_system_queries_answer(self):
        self.sees_none(self.argv("nvml_system.py"), out=SYSTEM)

    def test_gpustat_shows_no_gpu(self):
        for option in ("--no-header", "--json"):
            self.sees_none([self.tool("gpustat"), option], rc=1, err=GPUSTAT)

    def test_nvitop_shows_no_gpu(self):
        self.sees_none([self.tool("nvitop"), "--once", "--ascii"], rc=1, err=NVITOP)

    def test_exporter_reports_that_there_is_no_gpu(self):
        self.sees_none([self.tool("nvitop-exporter"), "--bind-address", "127.0.0.1"], rc=1,
                       err=NVITOP)

    def test_codecarbon_measures_no_gpu(self):
        self.sees_none(self.argv("codecarbon_gpus.py"), out="gpus=0\n")


class OldGpustat(Monitor):
    environment = "gpustat-1.0"

    def test_old_gpustat_shows_no_gpu(self):
        for options in ([], ["--json"]):
            self.sees_none([self.tool("gpustat"), *options], rc=1, err=OLD_GPUSTAT)


del Monitor  # has no tests of its own
