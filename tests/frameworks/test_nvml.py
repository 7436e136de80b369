# SPDX-License-Identifier: Apache-2.0
"""nvidia-ml-py from PyPI runs under the guard."""

from support import framework

ANSWERS = """\
nvmlInit=NVMLError_DriverNotLoaded
nvmlInitWithFlags=NVMLError_DriverNotLoaded
count=NVMLError_Uninitialized
byIndex=NVMLError_Uninitialized
byUuid=NVMLError_Uninitialized
bySerial=NVMLError_Uninitialized
byPciBusId=NVMLError_Uninitialized
nvmlShutdown=None
"""


class NvidiaMl(framework.Case):
    environment = "nvml"

    def test_finds_no_gpu(self):
        self.compare(self.argv("nvml_devices.py", "count"), expect="gpus=0\n")

    def test_answers_as_without_a_device(self):
        self.answers(self.argv("nvml_devices.py", "answers"), ANSWERS)
