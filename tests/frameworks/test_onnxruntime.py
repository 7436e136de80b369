# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime GPU from PyPI must fall back to the CPU, as if its CUDA plug-in cannot load.

With a driver that finds no device, ONNX Runtime raises for [TensorRT, CUDA, CPU]; if the plug-in
does not load, it falls back. The guard refuses the plug-in, so the reference is a machine without a
driver and without the CUDA libraries that the plug-in needs.
"""

import glob
import os
import re
import tempfile

import pytest

from support import framework, harness, stubs

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


class Release(framework.Case):
    """The oldest and the newest release that are tested."""

    environment = None
    cuda = None  # the fetched toolkit that has the release's CUDA runtime
    raises = None  # whether [CUDA, CPU] raises with a driver that finds no device

    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory(prefix="cg-")
        self.addCleanup(directory.cleanup)
        os.chmod(directory.name, 0o755)
        plugin, = glob.glob(self.packages() + "/onnxruntime/capi/libonnxruntime_providers_cuda.so")
        stubs.make_stubs(plugin, directory.name)
        self.env = {"LD_LIBRARY_PATH": directory.name + ":" +
                    os.path.join(harness.DEPS, self.cuda, "lib")}

    def with_no_device(self, argv):
        """Returns the output with a driver that finds no device, the null driver without the guard.
        """
        null = os.path.join(harness.LIB, "cudaguard")
        env = {"LD_LIBRARY_PATH": self.env["LD_LIBRARY_PATH"] + ":" + null}
        return self.run_program(argv, "none", False, env).out

    def falls_back(self, *providers, raises):
        argv = self.argv("onnxruntime_session.py", *providers)
        unguarded = self.run_program(argv, "fake", False, self.env)
        unguarded.assert_reached(self)
        reference = self.run_program(argv, "none", False)
        self.assertTrue(reference.out.endswith("[2.0, 4.0] with ['%s']\n" % CPU), reference)
        guarded = self.guarded(argv, "fake", self.env)
        self.same_words(reference, guarded, normal, "fake")
        # This is why the guard refuses the plug-in.
        self.assertEqual("raised: " in self.with_no_device(argv), raises)

    def test_cuda_cpu_falls_back(self):
        self.falls_back(CUDA, CPU, raises=self.raises)

    def test_tensorrt_cuda_cpu_falls_back(self):
        self.falls_back(TENSORRT, CUDA, CPU, raises=True)


class Old(Release):
    environment = "onnxruntime-old"
    cuda = "cuda-11"
    raises = True


class New(Release):
    environment = "onnxruntime-new"
    cuda = "cuda-13"
    raises = False

    def test_limit_registering_the_provider_raises_as_without_a_driver(self):
        argv = self.argv("onnxruntime_register.py")
        reference = self.run_program(argv, "none", False, self.env)
        self.assertIn("raised: ", reference.out, reference)
        guarded = self.guarded(argv, "fake", self.env)
        self.same_words(reference, guarded, normal, "fake")
        self.assertIn("devices: ", self.with_no_device(argv))


del Release  # has no tests of its own
