# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime GPU from PyPI must fall back to the CPU, as if its CUDA plug-in cannot load.

With a driver that finds no device, ONNX Runtime raises for [TensorRT, CUDA, CPU]; if the plug-in
does
not load, it falls back. The guard refuses the plug-in, so the reference is a machine without a
driver and without the CUDA libraries that the plug-in needs.
"""

import re

import pytest

from support import framework

pytestmark = pytest.mark.full  # needs a download

TENSORRT, CUDA, CPU = (name + "ExecutionProvider" for name in ("Tensorrt", "CUDA", "CPU"))


def normal(text):
    """Removes the time, and the reason why a library did not load, which names its file."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+", "TIME", text)
    return re.sub(r"(libonnxruntime_providers_\w+\.so) with error: .*", r"\1 with error", text)


class OnnxRuntime(framework.Case):
    environment = "onnxruntime"

    def session(self, *providers):
        return self.compare(
            self.argv("onnxruntime_session.py", *providers),
            env={"LD_LIBRARY_PATH": self.nvidia_libraries()}, normal=normal,
            reference_env={"LD_LIBRARY_PATH": None})

    def test_tensorrt_cuda_cpu_falls_back(self):
        unguarded, guarded = self.session(TENSORRT, CUDA, CPU)
        self.assertIn("raised: ", unguarded.out, "control: unguarded it raises\n%s" % unguarded)
        self.assertEqual(guarded.rc, 0, str(guarded))
        self.assertTrue(guarded.out.endswith("[2.0, 4.0] with ['%s']\n" % CPU), str(guarded))

    def test_cuda_cpu_falls_back(self):
        unguarded, guarded = self.session(CUDA, CPU)
        # Unguarded, it falls back, too, with many lines on stdout.
        self.assertIn("EP Error", unguarded.out, str(unguarded))
        self.assertEqual(guarded.out, "[2.0, 4.0] with ['%s']\n" % CPU, str(guarded))
