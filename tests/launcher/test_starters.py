# SPDX-License-Identifier: Apache-2.0
"""--children=cpu and programs that only start others (torchrun, accelerate launch, uv run, xargs, a
shell): the forms of the manual give the trainer its GPU, and no trainer is on the CPU unsaid."""

import pytest

from support import fixtures, launcher, messages, observed
from support.observed import box

RUN = [launcher.LAUNCHER, "run", "--policy=VALIDATE", "--children=cpu"]
# A trainer with one worker.
TRAINER = [box.program("open"), "pid", "cu.init", "spawn=w", "pid", "cu.init", "end"]
# As torchrun, accelerate launch and uv run do it.
CHILD = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"
STARTERS = (["python3", "-c", CHILD], ["xargs", "-a", "/dev/null"],
            ["sh", "-c", '"$@"; exit $?', "sh"])


class Starters(observed.Case):
    def answers(self, words):
        result = box.start(words)
        self.assertEqual(result.rc, 0, result)
        return result, result.answers["cu.init"], result.answers["w.cu.init"]


make_case = fixtures.lent("case", Starters)


@pytest.mark.parametrize("starter", STARTERS)
def test_run_before_the_starter_gives_the_trainer_no_gpu(case, starter):
    """The starter keeps the GPU. The trainer's message names the starter's process."""
    # The control: without us both have it.
    assert case.answers(starter + TRAINER)[1:] == ("0", "0")
    first = ["sh", "-c", 'echo "first=$$" >&2; exec "$@"', "sh"]
    result, *codes = case.answers(RUN + first + starter + TRAINER)
    assert codes == ["100", "100"], str(result)
    first = result.err.partition("first=")[2].split("\n")[0]
    found = messages.find(result.err, "no_cuda", cause="--children=cpu", first=first,
                          remedy=messages.text("remedy_children"))
    assert set(map(str,
                   observed.pids(result).values())) <= {message["pid"]
                                                        for message in found}, str(result)


@pytest.mark.parametrize("words",
                         [starter + RUN
                          for starter in STARTERS] + [RUN + ["sh", "-c", 'exec "$@"', "sh"]])
def test_run_after_the_starter_gives_the_trainer_the_gpu(case, words):
    """The manual has this form. A shell that becomes the trainer gets the GPU, too."""
    result, *codes = case.answers(words + TRAINER)
    assert codes == ["0", "100"], str(result)
    pid = observed.pids(result)
    assert [message["pid"]
            for message in messages.find(result.err, "no_cuda")] == [str(pid["w"])], str(result)


@pytest.mark.parametrize("starter", STARTERS)
def test_summary_names_a_first_process_that_did_not_ask(case, starter):
    """The summary does so without messages."""
    line = "  the GPU was reserved for process %d (%s), which did not ask for it"
    shown = "echo first=$$ >&2; exec " + '"$@"'
    result = case.observe(["sh", "-c", shown, "sh"] + starter + TRAINER,
                          ["--children=cpu"])
    summary = case.summary(result)
    first = int(summary.before.partition("first=")[2])
    assert summary.totals == {"processes": 2, "refused": 2}, str(result)
    assert summary.rest[0].startswith(line % (first, "sh")), summary.text
    # There is no such line if run follows the starter and no process is refused.
    result = case.observe(starter + RUN + TRAINER)
    assert case.summary(result).rest == [], str(result)
    result = case.observe(starter + TRAINER)
    assert case.summary(result).rest == [], str(result)


def test_summary_does_not_name_a_first_process_that_asked(case):
    for steps in (["cu.init", "spawn=w", "cu.init", "end"],
                  ["nv.init", "spawn=w", "cu.init", "end"]):
        result = case.steps(steps, ["--children=cpu"])
        assert case.summary(result).rest == [], str(result)
