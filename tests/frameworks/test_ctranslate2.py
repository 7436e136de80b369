# SPDX-License-Identifier: Apache-2.0
"""CTranslate2 from PyPI, which contains a static CUDA 12 runtime, runs under the guard."""

import pytest

from support import framework

pytestmark = pytest.mark.full  # needs a download


class Ctranslate2(framework.Case):
    environment = "ctranslate2"

    def test_finds_no_gpu_and_works_on_the_cpu(self):
        self.compare(self.argv("ctranslate2_devices.py"), expect=(
            "gpus=0\ncpu=True\nview=[0.0, 1.0, 2.0, 3.0] on cpu\ncuda=no\n"))
