# SPDX-License-Identifier: Apache-2.0
"""PyTorch 2.3.0 over the fake NVML of tests/fakes. It counts GPUs by NVML, remembers that,
and fails an internal assertion when the driver then shows fewer; with the list they agree."""


import pytest

from support import box, harness
from frameworks import test_torch

pytestmark = pytest.mark.torch


VARIABLE = "CUDA_VISIBLE_DEVICES"


class TorchDevices(test_torch.TorchCase):

    def ask(self, write=None, guard=True, **env):
        """The program's answers; counts are numbers, the driver's GPUs as box.seen says them."""
        argv = self.argv("torch_late_write.py", *([] if write is None else [write]))
        result = harness.run(argv, "none", guard, box.environment(**env), trace=False,
                             timeout=self.timeout)
        self.assertEqual(result.rc, 0, str(result))
        # PyTorch's own runtime must not have come near the driver: it takes no fake.
        self.assertNotIn("cuGetExportTable", result.fake_calls, str(result))
        answers = dict(result.answers, driver=box.seen(result.answers["driver"]))
        for name in ("before", "remembered", "after", "available"):
            answers[name] = int(answers[name])
        self.assertEqual(answers["reads"], str(env.get("own") if write is None else write))
        return answers, box.lines(result)

    def agree(self, answers, gpus):
        """PyTorch, at any time, and the driver: these GPUs."""
        count = len(gpus)
        self.assertEqual(answers["driver"], gpus if gpus else "!100", answers)
        self.assertEqual((answers["before"], answers["remembered"], answers["after"]),
                         (count, count, count), answers)
        self.assertEqual(answers["available"], int(count > 0), answers)

    def test_without_the_guard(self):
        """The control: a count of 8 is remembered, and the driver shows one GPU."""
        answers, _ = self.ask(write="1", guard=False)
        self.assertEqual((answers["before"], answers["remembered"], answers["driver"]), (8, 8, [0]),
                         answers)
        answers, _ = self.ask(guard=False, CUDA_DEVICE_ORDER="PCI_BUS_ID")
        self.agree(answers, box.ALL)

    def test_without_a_list(self):
        """It cannot be undone: the same, and one line with the remedy."""
        bare, _ = self.ask(write="1", guard=False)
        answers, lines = self.ask(write="1", policy="VALIDATE")
        self.assertEqual(answers, bare)
        self.assertEqual(len(lines), 1, lines)
        for words in (VARIABLE, '"1"', "8 GPUs", "nvmlDeviceGetCount_v2", "CUDA sees 1",
                      "Start the program with CUDAGUARD_VISIBLE_DEVICES=1"):
            self.assertIn(words, lines[0])

    def test_the_remedy(self):
        """The GPU that was meant, named in front; the program writes what it likes."""
        for write in (None, "0"):
            with self.subTest(write=write):
                answers, lines = self.ask(write=write, allow="1")
                self.agree(answers, [1])
                self.assertFalse([line for line in lines if "Start the program with" in line], lines)

    @pytest.mark.full
    def test_inside_the_list(self):
        for allow, own, gpus in (("5,2", "1,0", [2, 5]), ("5,2", box.uuid(2), [2]),
                                 (box.uuid(3) + ",0", None, [3, 0]),
                                 # Outside the list there is nothing, by index or by name.
                                 ("5,2", "1,2", [2]), ("5,2", box.uuid(3), [])):
            with self.subTest(allow=allow, own=own):
                answers, _ = self.ask(allow=allow, own=own)
                self.agree(answers, gpus)

    @pytest.mark.full
    def test_a_late_write_inside_the_list(self):
        """Two allowed, one chosen late: what PyTorch remembers is wrong again, and a line says so;
        what it counts afresh is right, and never more than the list."""
        for write, gpus in (("1", [2]), ("0,1,2,3", [5, 2]), (box.uuid(2), [2])):
            with self.subTest(write=write):
                answers, lines = self.ask(write=write, allow="5,2")
                self.assertEqual((answers["before"], answers["remembered"]), (2, 2), answers)
                self.assertEqual((answers["driver"], answers["after"]), (gpus, len(gpus)), answers)
                # A line where they disagree.
                self.assertEqual(len(lines), 0 if len(gpus) == 2 else 1, lines)
                for line in lines:
                    self.assertIn(VARIABLE + " changed", line)

    def test_a_wrong_list(self):
        """An error: no GPU by NVML and none by the driver, and the reason."""
        answers, lines = self.ask(allow="5,9")
        self.agree(answers, [])
        self.assertTrue([line for line in lines if "CUDAGUARD_VISIBLE_DEVICES" in line], lines)
