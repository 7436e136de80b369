# SPDX-License-Identifier: Apache-2.0
"""With PyTorch 2.3.0 from PyPI (CUDA 12.1), no process finds a GPU, and PyTorch prints nothing. The
quick run asks in a program, its forked and its spawned workers."""

import pytest

from support import box, fixtures, framework, harness, launcher, messages

pytestmark = pytest.mark.torch


class Torch(framework.Case):
    environment = "torch"
    timeout = 600

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


make_case = fixtures.lent("case", Torch)


@pytest.mark.full
@pytest.mark.parametrize(("order", "trainers", "workers"), [("torchrun", "0", "0"),
                                                            ("run torchrun", "100", "100"),
                                                            ("torchrun run", "0", "100")])
def test_children_option_follows_torchrun(case, order, trainers, workers):
    """torchrun's programs are its children, so `run --children=cpu` must follow torchrun.
    Otherwise, the trainer is a child without a GPU."""
    commands = {"run": [launcher.LAUNCHER, "run", "--policy=VALIDATE", "--children=cpu"],
                "torchrun": [case.tool("torchrun"), "--no-python"]}
    words = [word for name in order.split() for word in commands[name]]
    trainer = [box.program("open"), "cu.init", "spawn=w", "cu.init", "end"]
    result = harness.run(words + trainer, world="none", guard=False, trace=False,
                         env=box.environment(OMP_NUM_THREADS="1"), timeout=case.timeout)
    codes = [result.answers["cu.init"], result.answers["w.cu.init"]]
    assert (result.rc, codes) == (0, [trainers, workers]), str(result)
    assert len(messages.find(result.err, "no_cuda")) == codes.count("100"), str(result)
