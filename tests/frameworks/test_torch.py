# SPDX-License-Identifier: Apache-2.0
"""With PyTorch 2.3.0 from PyPI (CUDA 12.1), no process finds a GPU, and PyTorch prints nothing. The
quick run asks in a program, its forked and its spawned workers."""

import os

import pytest

from support import box, fixtures, framework, harness, messages

pytestmark = pytest.mark.torch


class TorchCase(framework.Case):
    environment = "torch"
    timeout = 600

    def need_environment(self, name):
        """This is the only download that may be missing, and only if the package index cannot be
        reached."""
        mark = os.path.join(framework.ENVIRONMENTS, name + ".unreachable")
        if os.path.exists(mark):
            with open(mark, encoding="utf-8") as stream:
                self.skipTest(stream.read().strip())
        super().need_environment(name)


class Torch(TorchCase):

    def query(self, **env):
        return self.compare(self.argv("torch_query.py"), env=env, worlds=("real",),
                            expect="is_available=False device_count=0\nsum=45\n")

    @pytest.mark.full
    def test_finds_no_gpu(self):
        unguarded, _ = self.query()
        # Unguarded, the driver makes PyTorch print this, so the test would notice such output.
        self.assertIn("Can't initialize NVML", unguarded.err, str(unguarded))

    @pytest.mark.full
    def test_finds_no_gpu_by_nvml(self):
        self.query(PYTORCH_NVML_BASED_CUDA_CHECK="1")

    def test_workers_find_no_gpu(self):
        unguarded, guarded = self.compare(
            self.argv("torch_workers.py"), env={"OMP_NUM_THREADS": "1"}, worlds=("real",), expect=(
                "DataLoader fork: [[0, 0, 0], [0, 0, 0]] in 2 processes\n"
                "DataLoader spawn: [[0, 0, 0], [0, 0, 0]] in 2 processes\n"
                "mp.spawn: [[0, 0, 0, 0], [1, 0, 0, 0]]\n"
                "parent: [0, 0, 0]\n"))
        self.assertEqual(len(guarded.attempted), 7, "not every process has asked\n%s" % guarded)
        # One process opens the device 11 times for CUDA and twice for NVML.
        self.assertGreaterEqual(len(unguarded.device_opens), 7 * 13, str(unguarded))

    @pytest.mark.full
    def test_cleanrl_without_cuda_uses_the_cpu(self):
        self.compare(self.argv("torch_cleanrl.py", "--no-cuda"), worlds=("real",),
                     expect="device=cpu sum=4.0\n")


@pytest.mark.full
class Torchrun(TorchCase):
    """torchrun's programs are its children, so `run --children=cpu` must follow torchrun.
    Otherwise, the trainer is a child without a GPU."""


make_case = fixtures.lent("case", Torchrun)


@pytest.mark.full
@pytest.mark.parametrize(("order", "trainers", "workers"), [("torchrun", "0", "0"),
                                                            ("run torchrun", "100", "100"),
                                                            ("torchrun run", "0", "100")])
def test_children_option_follows_torchrun(case, order, trainers, workers):
    launcher = os.path.join(os.path.dirname(os.path.abspath(harness.LIB)), "bin", "cudaguard")
    commands = {
        "run": [launcher, "run", "--policy=VALIDATE", "--children=cpu"], "torchrun": [
            os.path.join(framework.ENVIRONMENTS, "torch", "bin", "torchrun"), "--no-python"
        ]
    }
    words = [word for name in order.split() for word in commands[name]]
    trainer = [box.program("open"), "cu.init", "spawn=w", "cu.init", "end"]
    result = harness.run(words + trainer, world="none", guard=False, trace=False,
                         env=box.environment(OMP_NUM_THREADS="1"), timeout=case.timeout)
    assert (result.rc, result.answers["cu.init"],
            result.answers["w.cu.init"]) == (0, trainers, workers), str(result)
    assert len(messages.find(result.err, "no_cuda")) == [trainers,
                                                         workers].count("100"), str(result)
