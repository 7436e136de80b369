# SPDX-License-Identifier: Apache-2.0
"""PyTorch 2.3.0 with the fake NVML of tests/fakes counts GPUs by NVML and remembers the count. It
fails an internal assertion when the driver then shows fewer GPUs. With the list, they agree."""

import os

import pytest

from support import box, fixtures, framework, harness, messages

pytestmark = pytest.mark.torch


NO_SUCH_GPU = "CUDA-error:-invalid-device-ordinal"
UNAVAILABLE = "CUDA-error:-CUDA-capable-device(s)-is/are-busy-or-unavailable"
WAYS = ("made", "moved", "chosen", "module")
LATE_WRITES = ("late_write", "late_write_unread", "late_write_empty")


class Case(framework.Case):
    environment = "torch"
    timeout = 600

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

    def devices(self, *asked, guard=True, **env):
        """Runs PyTorch with a fake runtime in place of its own. Returns the count, where each way
        has put its tensor for each device, and the messages."""
        result = harness.run(
            self.argv("torch_index.py", *asked), "none", guard, box.environment(**env), trace=False,
            preload=[os.path.join(harness.FAKES, "runtime_torch", "libcudart.so")],
            timeout=self.timeout)
        self.assertEqual(result.rc, 0, str(result))
        found = [tuple(result.answers[way + str(number)] for way in WAYS)
                 for number in range(len(asked))]
        return int(result.answers["count"]), found, messages.find(result.err, "bad_index")


make_case = fixtures.lent("case", Case)


def test_late_write_without_a_list_is_reported(case):
    """PyTorch remembers a count of 8, but the driver shows one GPU. The guard cannot undo the
    write: the answers are those of the control, and one message has the remedy."""
    unguarded, _ = case.ask(write="1", guard=False)
    assert [unguarded[key] for key in ("before", "remembered", "driver")] == [8, 8, [0]], unguarded
    answers, lines = case.ask(write="1", policy="VALIDATE")
    assert (answers, len(lines)) == (unguarded, 1), lines
    assert messages.find(
        lines[0], "late_write", now='"1"', reported="8 GPUs", call="nvmlDeviceGetCount_v2", sees=1,
        advice=messages.text("start_with_one", setting="CUDAGUARD_VISIBLE_DEVICES=1")), lines


def test_control_pytorch_and_the_driver_agree_without_a_write(case):
    answers, _ = case.ask(guard=False, CUDA_DEVICE_ORDER="PCI_BUS_ID")
    case.agree(answers, box.ALL)


@pytest.mark.parametrize("write", [None, "0"])
def test_list_makes_pytorch_and_the_driver_agree(case, write):
    """The list names the GPU that was meant, so the program may write any value."""
    answers, lines = case.ask(write=write, allow="1")
    case.agree(answers, [1])
    for found in messages.find("\n".join(lines), *LATE_WRITES):
        assert messages.read("inside_list", found["advice"]), str(found)


@pytest.mark.full
@pytest.mark.parametrize(("allow", "own", "gpus"), [
    ("5,2", "1,0", [2, 5]), ("5,2", box.uuid(2), [2]), (box.uuid(3) + ",0", None, [3, 0]),
    # Outside the list there is no device, by index or by name.
    ("5,2", "1,2", [2]), ("5,2", box.uuid(3), [])])
def test_own_variable_counts_inside_the_list(case, allow, own, gpus):
    answers, _ = case.ask(allow=allow, own=own)
    case.agree(answers, gpus)


@pytest.mark.parametrize(("asked", "count", "places", "wrong", "how"), [
    (["cuda:3", "cuda:9"], 8, ["cuda:3", NO_SUCH_GPU], [], {"guard": False}),
    (["cuda:3", "cuda:1"], 2, [NO_SUCH_GPU, "cuda:1"], [("cudaSetDevice", "3", None)],
     {"allow": "2,5"}),
    (["cuda:3", "cuda:0"], 2, ["cuda:1", "cuda:0"], [("cudaSetDevice", "3", "1")],
     {"allow": "2,5", "policy": "CLAMP"}),
    (["cuda:1"], 8, [UNAVAILABLE], [], {"policy": "NO_CONTEXT"})],
    ids=["unguarded", "list", "clamp", "no-context"])
def test_tensor_is_put_on_a_gpu_that_is_allowed(case, asked, count, places, wrong, how):
    """CLAMP puts it on the list's last GPU, and NO_CONTEXT refuses it."""
    found, made, lines = case.devices(*asked, **how)
    assert (found, made) == (count, [(place,) * len(WAYS) for place in places])
    assert [(line["call"], line["device"], line["used"]) for line in lines] == wrong
    assert all("torch_index.py:" in str(line) for line in lines)
