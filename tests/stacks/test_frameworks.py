# SPDX-License-Identifier: Apache-2.0
"""`cudaguard verify` with real frameworks: importing them passes, and if a program asks for a GPU,
verify names its line.

CleanRL's ppo.py is the file of its wheel. YOLOv5's select_device and TorchRL's workers come from
their packages and are called by programs of ours.
"""

import os
import shutil

import pytest

from support import framework, harness, verified

PROGRAMS = os.path.join(harness.SOURCE, "tests", "stacks", "programs")
# JAX looks for these before it asks the driver. NVIDIA's driver finds that they are not devices.
NODES = ["--ro-bind", "/dev/null", "/dev/nvidia0", "--ro-bind", "/dev/null", "/dev/nvidiactl"]


class Case(harness.DirectoryCase, framework.Case):
    def __init__(self, environment, nodes=(), **variables):
        super().__init__()
        self.environment = environment
        self.how = {"timeout": 600, "bwrap": nodes}  # nodes of a machine with a GPU
        self.env = {"OMP_NUM_THREADS": "1", **variables}

    def setUp(self):
        super().setUp()
        os.chmod(self.directory, 0o777)
        self.how.update(cwd=self.directory, env={**self.env, "HOME": self.directory})

    def verify(self, *words):
        return verified.documented(self, [self.tool("python"), "-B", *words], **self.how)

    def clean(self, *words):
        result, document = self.verify(*words)
        self.assertEqual((result.rc, document["verdict"]), (0, "pass"), result)
        self.assertIn("cudaguard: PASS: ", result.err)

    def asks(self, program, mark, *words):
        """Fails unless the unguarded program enters NVIDIA's real driver, and each failing process
        names the line with this mark and its text. Returns the processes."""
        self.need_real_driver()
        unguarded = harness.run([self.tool("python"), "-B", program], world="real", guard=False,
                                **self.how)
        self.assertTrue(unguarded.driver_files if self.how["bwrap"] else unguarded.device_opens,
                        "control: the unguarded program opens no device\n%s" % unguarded)
        result, document = self.verify(program, *words)
        self.assertEqual(result.rc, 1, result)
        self.assertIn("cudaguard: FAIL: ", result.err)
        sites = [one for one in document["calls"] if one["fails"]]
        self.assertTrue(sites, result)
        if mark:
            with open(program, encoding="utf-8") as stream:
                number, source = next((number, text.strip())
                                      for number, text in enumerate(stream, 1) if mark in text)
            place = "%s:%d" % (os.path.basename(program), number)
            for one in sites:
                self.assertEqual(one["line"], place, result)
                texts = {(row["file"], row["line"]): row["source"] for row in one["python"]}
                self.assertEqual(texts[program, number], source, result)
            self.assertIn(place, result.err)
            self.assertIn(source, result.err)
        return sites


@pytest.fixture(name="case")
def make_case(request):
    yield from harness.lent(Case(*request.param[:2], **dict(request.param[2:])))


def in_environment(*row):
    return pytest.mark.parametrize("case", [row], indirect=True, ids=row[:1])


@pytest.mark.parametrize(("case", "module", "asks"), [
    pytest.param(("torch", ()), "torch", "torch.cuda.is_available()", marks=pytest.mark.torch),
    # Only the plug-in is installed, without the libraries that it would check.
    pytest.param(("jax", NODES, ("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1"), ("JAX_PLATFORMS", "")),
                 "jax", "jax.devices()", marks=pytest.mark.full),
    pytest.param(("tensorflow", ()), "tensorflow",
                 "tensorflow.config.list_physical_devices('GPU')", marks=pytest.mark.full),
    pytest.param(("cupy", ()), "cupy", "cupy.cuda.is_available()", marks=pytest.mark.full),
    pytest.param(("numba", ()), "numba.cuda", "numba.cuda.is_available()", marks=pytest.mark.full)],
    indirect=["case"], ids=["torch", "jax", "tensorflow", "cupy", "numba"])
def test_import_passes_and_use_names_the_line(case, module, asks):
    case.clean("-c", "import " + module)
    program = case.make("asks.py", "import %s\n\n%s\n" % (module, asks))
    sites = case.asks(program, asks)
    if module == "torch":
        assert {one["python"][0]["function"] for one in sites} == {"is_available"}, sites
        assert "libc10_cuda.so" in [one["library"] for one in sites], sites


@pytest.mark.full
@in_environment("scenarios", ())
def test_cleanrl_device_line_is_named(case):
    """Runs ppo.py of CleanRL's wheel. Its gym is not a wheel, but gymnasium suffices here, because
    the program chooses the device before it makes the environments."""
    programs = os.path.join(framework.ENVIRONMENTS, case.environment, "programs")
    program = shutil.copy(os.path.join(programs, "cleanrl", "ppo.py"), case.directory)
    case.make("gym.py", "import sys\nimport gymnasium\nsys.modules['gym'] = gymnasium\n")
    case.asks(program, "device = torch.device(", "--total-timesteps", "512")


@pytest.mark.full
@in_environment("scenarios", ())
def test_yolov5_select_device_line_is_named(case):
    for one in case.asks(os.path.join(PROGRAMS, "yolo_device.py"), 'select_device("")'):
        assert "select_device" in [row["function"] for row in one["python"]], one


@pytest.mark.full
@in_environment("scenarios", ())
def test_torchrl_worker_lines_are_named(case):
    """TorchRL's workers ask when they import tensordict, whatever their task is."""
    sites = case.asks(os.path.join(PROGRAMS, "torchrl_workers.py"), None)
    assert len({place for one in sites for place in one["processes"]}) >= 3, sites
    directory = os.path.join(case.packages(), "tensordict") + os.sep
    for one in sites:
        assert [row for row in one["python"] if row["file"].startswith(directory) and
                row["function"] == "<module>"], sites
