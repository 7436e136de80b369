# SPDX-License-Identifier: Apache-2.0
"""PyTorch 2.3.0 with the fake NVML of tests/fakes counts GPUs by NVML and remembers the count. It
fails an internal assertion when the driver then shows fewer GPUs. With the list, they agree."""

import os

import pytest

from support import box, fixtures, harness, messages
from frameworks import test_torch

pytestmark = pytest.mark.torch


NO_SUCH_GPU = "CUDA-error:-invalid-device-ordinal"
UNAVAILABLE = "CUDA-error:-CUDA-capable-device(s)-is/are-busy-or-unavailable"
WAYS = ("made", "moved", "chosen", "module")
LATE_WRITES = ("late_write", "late_write_unread", "late_write_empty")


class TorchDevices(test_torch.TorchCase):

    def ask(self, write=None, guard=True, **env):
        """Returns the program's answers. Counts are numbers, and the driver's GPUs have box.seen's
        form."""
        argv = self.argv("torch_late_write.py", *([] if write is None else [write]))
        result = harness.run(argv, "none", guard, box.environment(**env), trace=False,
                             timeout=self.timeout)
        self.assertEqual(result.rc, 0, str(result))
        # PyTorch's own runtime must not have used the driver, because it refuses the fake.
        self.assertNotIn("cuGetExportTable", result.fake_calls, str(result))
        answers = dict(result.answers, driver=box.seen(result.answers["driver"]))
        for name in ("before", "remembered", "after", "available"):
            answers[name] = int(answers[name])
        self.assertEqual(answers["reads"], str(env.get("own") if write is None else write))
        return answers, box.lines(result)

    def agree(self, answers, gpus):
        """Fails unless PyTorch, at any time, and the driver show these GPUs."""
        count = len(gpus)
        self.assertEqual(answers["driver"], gpus if gpus else "!100", answers)
        self.assertEqual((answers["before"], answers["remembered"], answers["after"]),
                         (count, count, count), answers)
        self.assertEqual(answers["available"], int(count > 0), answers)

    def test_control_late_write_disagrees_with_the_driver(self):
        """Control: PyTorch remembers a count of 8, but the driver shows one GPU."""
        answers, _ = self.ask(write="1", guard=False)
        self.assertEqual((answers["before"], answers["remembered"], answers["driver"]), (8, 8, [0]),
                         answers)
        answers, _ = self.ask(guard=False, CUDA_DEVICE_ORDER="PCI_BUS_ID")
        self.agree(answers, box.ALL)

    def test_late_write_without_a_list_is_reported(self):
        """The guard cannot undo the write: the answers are the same, and one message has the
        remedy."""
        unguarded, _ = self.ask(write="1", guard=False)
        answers, lines = self.ask(write="1", policy="VALIDATE")
        self.assertEqual(answers, unguarded)
        self.assertEqual(len(lines), 1, lines)
        self.assertTrue(messages.find(
            lines[0], "late_write", now='"1"', reported="8 GPUs", call="nvmlDeviceGetCount_v2", sees=1,
            advice=messages.text("start_with_one", setting="CUDAGUARD_VISIBLE_DEVICES=1")), lines)


make_case = fixtures.lent("case", TorchDevices)


@pytest.mark.parametrize("write", [None, "0"])
def test_list_makes_pytorch_and_the_driver_agree(case, write):
    """The list names the GPU that was meant, so the program may write any value."""
    answers, lines = case.ask(write=write, allow="1")
    case.agree(answers, [1])
    for found in messages.find("\n".join(lines), *LATE_WRITES):
        assert messages.read("inside_list", found["advice"]), str(found)


@pytest.mark.full
@pytest.mark.parametrize(
    ("allow", "own", "gpus"),
    [
        ("5,2", "1,0", [2, 5]),
        ("5,2", box.uuid(2), [2]),
        (box.uuid(3) + ",0", None, [3, 0]),
        # Outside the list there is no device, by index or by name.
        ("5,2", "1,2", [2]),
        ("5,2", box.uuid(3), [])
    ])
def test_own_variable_counts_inside_the_list(case, allow, own, gpus):
    answers, _ = case.ask(allow=allow, own=own)
    case.agree(answers, gpus)


class TorchIndices(test_torch.TorchCase):
    """PyTorch itself, with a fake runtime in place of its own."""

    def devices(self, *asked, guard=True, **env):
        """Returns the count, where each way has put its tensor for each device, and the messages."""
        result = harness.run(
            self.argv("torch_index.py", *asked), "none", guard, box.environment(**env), trace=False,
            preload=[os.path.join(harness.FAKES, "runtime_torch", "libcudart.so")],
            timeout=self.timeout)
        self.assertEqual(result.rc, 0, str(result))
        found = [tuple(result.answers[way + str(number)] for way in WAYS)
                 for number in range(len(asked))]
        return int(result.answers["count"]), found, messages.find(result.err, "bad_index")

    def test_control_unguarded_gpus_have_their_numbers(self):
        self.assertEqual(self.devices("cuda:3", "cuda:9", guard=False),
                         (8, [("cuda:3",) * len(WAYS), (NO_SUCH_GPU,) * len(WAYS)], []))

    def test_number_outside_the_list_is_an_error_with_a_message(self):
        count, found, lines = self.devices("cuda:3", "cuda:1", allow="2,5")
        self.assertEqual((count, found), (2, [(NO_SUCH_GPU,) * len(WAYS), ("cuda:1",) * len(WAYS)]))
        self.assertEqual([(line["call"], line["device"]) for line in lines], [("cudaSetDevice", "3")])
        self.assertIn("torch_index.py:", str(lines[0]))

    def test_clamp_puts_it_on_the_lists_last_gpu(self):
        count, found, lines = self.devices("cuda:3", "cuda:0", allow="2,5", policy="CLAMP")
        self.assertEqual((count, found), (2, [("cuda:1",) * len(WAYS), ("cuda:0",) * len(WAYS)]))
        self.assertEqual([(line["device"], line["used"]) for line in lines], [("3", "1")])

    def test_no_context_lets_it_count_and_refuses_the_tensor(self):
        count, found, _ = self.devices("cuda:1", policy="NO_CONTEXT")
        self.assertEqual((count, found), (8, [(UNAVAILABLE,) * len(WAYS)]))
