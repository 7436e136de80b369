# SPDX-License-Identifier: Apache-2.0
"""--children=cpu and programs that only start others (torchrun, accelerate launch, uv run, xargs, a
shell): the forms of the manual give the trainer its GPU, and no trainer is on the CPU unsaid."""

from support import harness, launcher, messages, observed
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
        result = harness.run(words, world="none", guard=False, trace=False, env=box.environment())
        self.assertEqual(result.rc, 0, result)
        return result, result.answers["cu.init"], result.answers["w.cu.init"]

    def test_run_before_the_starter_gives_the_trainer_no_gpu(self):
        """The starter keeps the GPU. The trainer's message names the starter's process."""
        for starter in STARTERS:
            with self.subTest(starter=starter):
                # The control: without us both have it.
                self.assertEqual(self.answers(starter + TRAINER)[1:], ("0", "0"))
                root = ["sh", "-c", 'echo "root=$$" >&2; exec "$@"', "sh"]
                result, *codes = self.answers(RUN + root + starter + TRAINER)
                self.assertEqual(codes, ["100", "100"], result)
                root = result.err.partition("root=")[2].split("\n")[0]
                found = messages.find(result.err, "no_cuda", cause="--children=cpu", root=root)
                self.assertLessEqual(set(map(str, observed.pids(result).values())),
                                     {message["pid"] for message in found}, result)

    def test_run_after_the_starter_gives_the_trainer_the_gpu(self):
        """The manual has this form. A shell that becomes the trainer gets the GPU, too."""
        for words in [starter + RUN for starter in STARTERS] + [RUN + ["sh", "-c", 'exec "$@"',
                                                                       "sh"]]:
            with self.subTest(words=words):
                result, *codes = self.answers(words + TRAINER)
                self.assertEqual(codes, ["0", "100"], result)
                pid = observed.pids(result)
                self.assertEqual([message["pid"] for message in messages.find(result.err, "no_cuda")],
                                 [str(pid["w"])], result)

    def test_summary_names_a_root_that_did_not_ask(self):
        """The summary does so without messages."""
        line = "  the GPU was reserved for process %d (%s), which did not ask for it"
        for starter in STARTERS:
            with self.subTest(starter=starter):
                shown = "echo root=$$ >&2; exec " + '"$@"'
                result = self.observe(["sh", "-c", shown, "sh"] + starter + TRAINER,
                                      ["--children=cpu"])
                summary = self.summary(result)
                root = int(summary.before.partition("root=")[2])
                self.assertEqual(summary.totals, {"processes": 2, "refused": 2}, result)
                self.assertTrue(summary.rest[0].startswith(line % (root, "sh")), summary.text)
                # There is no such line if run follows the starter and no process is refused.
                result = self.observe(starter + RUN + TRAINER)
                self.assertEqual(self.summary(result).rest, [], result)
                result = self.observe(starter + TRAINER)
                self.assertEqual(self.summary(result).rest, [], result)
        for steps in (["cu.init", "spawn=w", "cu.init", "end"],
                      ["nv.init", "spawn=w", "cu.init", "end"]):
            result = self.steps(steps, ["--children=cpu"])
            self.assertEqual(self.summary(result).rest, [], result)
