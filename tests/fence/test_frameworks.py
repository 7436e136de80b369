# SPDX-License-Identifier: Apache-2.0
"""Guarded frameworks print the same with the fence as without it, and send no NVIDIA ioctl. Under
`env -i` they ask NVIDIA's driver, find no GPU and go on."""

import os
import re

import pytest

from support import driver, fixtures, framework, harness, launcher, messages


# By virtual environment: a program of tests/frameworks, or a tool of its own.
PROGRAMS = (
    ("nvml", "nvml_devices.py", "count"),
    ("cuda-python-12", "cuda_python.py", "count"),
    ("ctranslate2", "ctranslate2_devices.py"),
    ("cuda-python-13", "cuda_python.py", "count"),
    ("onnxruntime", "onnxruntime_session.py", "CUDAExecutionProvider", "CPUExecutionProvider"),
    ("monitors", "gpustat", "--no-header"),
    ("monitors", "codecarbon_gpus.py"),
)
DIFFERS = re.compile(r"cudaguard\[\d+\]|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+")


class Frameworks(driver.Case):
    def guarded(self, *words):
        done, asked = self.traced(launcher.LAUNCHER, "run", *words)
        self.assertEqual(driver.requests_of(asked), ([], set()))
        return done

    def words(self, environment, program, *arguments):
        directory = os.path.join(framework.ENVIRONMENTS, environment)
        if not os.path.exists(os.path.join(directory, ".fetched")):
            harness.skip(self, "run scripts/fetch-frameworks %s %s" % (harness.DEPS, environment))
        if not program.endswith(".py"):
            return [os.path.join(directory, "bin", program), *arguments]
        return [os.path.join(directory, "bin", "python"),
                os.path.join(framework.HERE, "programs", program), *arguments]

    def same(self, *program):
        words = self.words(*program)
        unguarded, fenced = self.guarded("--", *words), self.guarded("--fence", "--", *words)
        self.assertEqual(fenced.returncode, unguarded.returncode, fenced)
        self.assertEqual(DIFFERS.sub("", fenced.stdout), DIFFERS.sub("", unguarded.stdout))
        # The messages have other advice, and are the same otherwise.
        self.assertEqual(*(DIFFERS.sub("", messages.without(done.stderr, *messages.DENIED))
                           for done in (fenced, unguarded)))
        self.assertEqual(*([(found["name"], found["asked_by"]) for found in
                            messages.find(done.stderr, *messages.DENIED)]
                           for done in (fenced, unguarded)))
        advice = {"remedy": messages.text("remedy_fence")}
        self.assertTrue(messages.find(fenced.stderr, *messages.DENIED, **advice), fenced)
        self.assertEqual(messages.find(unguarded.stderr, *messages.DENIED, **advice), [])

    @pytest.mark.full
    def test_torch_finds_no_gpu(self):
        query = "torch", "torch_query.py"
        self.same(*query)
        done = self.same_but_refused(driver.NODES, *self.words(*query), expected=[])
        self.assertIn("is_available=False device_count=0\n", done.stdout)


make_case = fixtures.lent("case", Frameworks)


@pytest.mark.parametrize("program", harness.sample(PROGRAMS, 2))
def test_guarded_frameworks_run_as_without_a_fence(case, program):
    case.same(*program)


@pytest.mark.parametrize(("program", "printed"), [(PROGRAMS[0], "gpus=0\n"),
                                                  (PROGRAMS[1], "driver=0 runtime=0\n")])
def test_unguarded_frameworks_find_no_gpu(case, program, printed):
    """The machine has NVIDIA's device nodes."""
    done = case.same_but_refused(driver.NODES, *case.words(*program), expected=[])
    assert (done.returncode, done.stdout) == (0, printed)
