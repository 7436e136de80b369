# SPDX-License-Identifier: Apache-2.0
"""`cudaguard verify` with real frameworks: importing them passes, and if a program asks for a GPU,
verify names its line.

CleanRL's ppo.py is the file of its wheel. YOLOv5's select_device and TorchRL's workers come from
their
packages and are called by programs of ours.
"""

import glob
import json
import os
import shutil

import pytest

from support import harness

ENVIRONMENTS = os.path.join(harness.DEPS, "frameworks")
LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(harness.LIB)), "bin", "cudaguard")
PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs")
# JAX looks for these before it asks the driver. NVIDIA's driver finds that they are not devices.
NODES = ["--ro-bind", "/dev/null", "/dev/nvidia0", "--ro-bind", "/dev/null", "/dev/nvidiactl"]


class Case(harness.DirectoryCase):
    environment = None  # a virtual environment of scripts/fetch-frameworks
    variables = {"OMP_NUM_THREADS": "1"}
    nodes = ()  # bubblewrap arguments for the device nodes of a machine with a GPU

    def setUp(self):
        super().setUp()
        if not os.path.exists(os.path.join(ENVIRONMENTS, self.environment, ".fetched")):
            mark = os.path.join(ENVIRONMENTS, self.environment + ".unreachable")
            if os.path.exists(mark):
                with open(mark, encoding="utf-8") as stream:
                    self.skipTest(stream.read().strip())
            harness.skip(self, "run scripts/fetch-frameworks %s %s" %
                         (harness.DEPS, self.environment))
        os.chmod(self.directory, 0o777)
        self.python = os.path.join(ENVIRONMENTS, self.environment, "bin", "python")

    def verify(self, *words):
        """Runs verify without a driver; returns (the finished run, verify's document)."""
        document = self.path("verify.json")
        result = harness.run([LAUNCHER, "verify", "--json", document, "--", self.python, "-B",
                              *words], world="none", guard=False, trace=False, timeout=600,
                             cwd=self.directory, bwrap=self.nodes,
                             env=dict(self.variables, HOME=self.directory))
        self.assertTrue(os.path.exists(document), result)
        with open(document, encoding="utf-8") as stream:
            return result, json.load(stream)

    def control(self, *words):
        """Fails unless the unguarded program enters NVIDIA's real driver."""
        self.need_real_driver()
        unguarded = harness.run([self.python, "-B", *words], world="real", guard=False, timeout=600,
                                cwd=self.directory, bwrap=self.nodes,
                                env=dict(self.variables, HOME=self.directory))
        self.assertTrue(unguarded.driver_files if self.nodes else unguarded.device_opens,
                        "control: the unguarded program opens no device\n%s" % unguarded)

    def clean(self, *words):
        result, document = self.verify(*words)
        self.assertEqual((result.rc, document["verdict"]), (0, "pass"), result)
        self.assertIn("cudaguard: PASS: ", result.err)

    def sites(self, *words, code=(1,)):
        """Returns the failing processes of a program that has to fail."""
        result, document = self.verify(*words)
        self.assertIn(result.rc, code, result)
        self.assertIn("cudaguard: FAIL: ", result.err)
        sites = [one for one in document["calls"] if one["fails"]]
        self.assertTrue(sites, result)
        self.result = result
        return sites

    def names_line(self, sites, file, line, source):
        """Fails unless each process names the user's own line with its text."""
        for one in sites:
            self.assertEqual(one["line"], "%s:%d" % (os.path.basename(file), line), self.result)
            texts = {row["line"]: row["source"] for row in one["python"] if row["file"] == file}
            self.assertEqual(texts[line], source, self.result)
        self.assertIn("%s:%d" % (os.path.basename(file), line), self.result.err)
        self.assertIn(source, self.result.err)

    def both(self, name, asks):
        """Fails unless `import name` passes and verify names the third line of the program that
        asks."""
        self.clean("-c", "import " + name)
        program = self.path("asks.py")
        with open(program, "w", encoding="utf-8") as stream:
            stream.write("import %s\n\n%s\n" % (name, asks))
        self.control(program)
        self.names_line(self.sites(program), program, 3, asks)

    def source_line(self, path, has):
        with open(path, encoding="utf-8") as stream:
            for number, text in enumerate(stream, 1):
                if has in text:
                    return number, text.strip()
        return self.fail("no %s in %s" % (has, path))


@pytest.mark.torch
class Torch(Case):
    environment = "torch"

    def test_torch_import_passes_and_use_names_the_line(self):
        self.both("torch", "torch.cuda.is_available()")

    def test_use_in_python_c_names_line_1_of_the_command(self):
        sites = self.sites("-c", "import torch; torch.cuda.is_available()")
        for one in sites:
            self.assertEqual(one["line"], "<string>:1", self.result)
            self.assertEqual(one["python"][0]["function"], "is_available", self.result)
        self.assertIn("libc10_cuda.so", [one["library"] for one in sites], self.result)

    def test_device_line_is_named(self):
        """CleanRL chooses its device on this line, which a program of our own copies."""
        program = os.path.join(PROGRAMS, "device_line.py")
        self.control(program)
        self.names_line(self.sites(program), program, *self.source_line(program, "is_available"))


@pytest.mark.full
class Jax(Case):
    environment = "jax"
    # Only the plug-in is installed, without the libraries that it would check.
    variables = {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1", "JAX_PLATFORMS": ""}
    nodes = NODES

    def test_jax_import_passes_and_use_names_the_line(self):
        self.both("jax", "jax.devices()")


@pytest.mark.full
class TensorFlow(Case):
    environment = "tensorflow"

    def test_tensorflow_import_passes_and_use_names_the_line(self):
        self.both("tensorflow", "tensorflow.config.list_physical_devices('GPU')")


@pytest.mark.full
class CuPy(Case):
    environment = "cupy"

    def test_cupy_import_passes_and_use_names_the_line(self):
        self.both("cupy", "cupy.cuda.is_available()")


@pytest.mark.full
class Numba(Case):
    environment = "numba"

    def test_numba_import_passes_and_use_names_the_line(self):
        self.both("numba.cuda", "numba.cuda.is_available()")


@pytest.mark.full
class Scenarios(Case):
    environment = "scenarios"

    def packages(self):
        return glob.glob(os.path.join(ENVIRONMENTS, self.environment,
                                      "lib/python3*/site-packages"))[0]

    def test_cleanrl_device_line_is_named(self):
        """Runs ppo.py of CleanRL's wheel. Its gym is not a wheel, but gymnasium suffices here,
        because the program chooses the device before it makes the environments."""
        program = shutil.copy(os.path.join(ENVIRONMENTS, self.environment, "programs", "cleanrl",
                                           "ppo.py"), self.directory)
        with open(self.path("gym.py"), "w", encoding="utf-8") as stream:
            stream.write("import sys\nimport gymnasium\nsys.modules['gym'] = gymnasium\n")
        self.control(program)
        sites = self.sites(program, "--total-timesteps", "512")
        self.names_line(sites, program, *self.source_line(program, "device = torch.device("))

    def test_yolov5_select_device_line_is_named(self):
        program = os.path.join(PROGRAMS, "yolo_device.py")
        self.control(program)
        sites = self.sites(program)
        self.names_line(sites, program, *self.source_line(program, 'select_device("")'))
        for one in sites:
            self.assertIn("select_device", [row["function"] for row in one["python"]], self.result)

    def test_torchrl_worker_lines_are_named(self):
        """TorchRL's workers ask when they import tensordict, whatever their task is."""
        program = os.path.join(PROGRAMS, "torchrl_workers.py")
        self.control(program)
        sites = self.sites(program)
        workers = {place for one in sites for place in one["processes"]}
        self.assertGreaterEqual(len(workers), 3, self.result)
        directory = os.path.join(self.packages(), "tensordict") + os.sep
        for one in sites:
            self.assertTrue([row for row in one["python"] if row["file"].startswith(directory) and
                             row["function"] == "<module>"], self.result)
