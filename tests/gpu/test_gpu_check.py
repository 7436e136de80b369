# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-check works with the machine of eight fake GPUs of tests/fakes.

The control uses a guard that does nothing, so the rows that check anything have to fail.
"""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import pytest

from support import harness, machine, nodes, pytest_runs

BOX = os.path.join(harness.FAKES, "lazy")
FAKES = BOX + ":" + os.path.join(harness.FAKES, "runtime")
ONE_GPU = harness.FAKE_DRIVER
IDLE_GUARD = os.path.join(harness.PROGRAMS, "idle-guard", "libcudaguard.so")
# A minimal machine has these tools, but neither strace nor a compiler. Without a GPU the tests must
# add bubblewrap, because NVIDIA's driver library would otherwise run on this machine.
UNGUARDED_TOOLS = ("cat", "env", "sh", "true")


class GpuCheck(unittest.TestCase):
    def setUp(self):
        if not os.path.exists(os.path.join(BOX, "libcuda.so.1")):
            harness.skip(self, "tests/fakes is not built")
        machine.need("sandbox")
        self.scratch = tempfile.mkdtemp(prefix="cg-")
        self.addCleanup(shutil.rmtree, self.scratch)
        self.nodes = glob.glob("/dev/nvidia*")

    def tearDown(self):
        self.assertEqual(glob.glob("/dev/nvidia*"), self.nodes, "it created a device node")

    def check(self, *arguments, script=None, path=None, env=None, start=list):
        """Runs gpu-check; returns (exit code, its output, {row name: row}). `start` makes the command
        of its words."""
        out = os.path.join(self.scratch, "out")
        shutil.rmtree(out, ignore_errors=True)
        environment = dict(os.environ, PATH=path or os.environ["PATH"], **(env or {}))
        done = subprocess.run(
            start([sys.executable, script or os.path.join(harness.SOURCE, "scripts", "gpu-check"),
                   "--quiet", "--out", out, *arguments]),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        files = glob.glob(os.path.join(out, "*.jsonl"))
        self.assertEqual(len(files), 1, done.stdout)
        self.facts, *rows = harness.records(files[0])
        return done.returncode, done.stdout, {row["name"]: row for row in rows}

    def build(self, *more):
        return ("--build", harness.BUILD, "--lib", harness.LIB, "--library-path", FAKES, *more)

    def unguarded_path(self, *more):
        """Returns a PATH with almost no programs."""
        directory = os.path.join(self.scratch, "bin")
        os.makedirs(directory, exist_ok=True)
        for tool in UNGUARDED_TOOLS + more:
            if not os.path.exists(os.path.join(directory, tool)):
                os.symlink(shutil.which(tool), os.path.join(directory, tool))
        return directory

    def idle_lib(self):
        """Returns a lib directory whose guard does nothing."""
        directory = os.path.join(self.scratch, "lib")
        os.makedirs(directory)
        shutil.copy(IDLE_GUARD, directory)
        os.symlink(os.path.join(harness.LIB, "cudaguard"), os.path.join(directory, "cudaguard"))
        return directory

    def idle_launcher(self):
        """Returns a build directory whose launcher only starts the program."""
        build = os.path.join(self.scratch, "build")
        os.makedirs(os.path.join(build, "bin"))
        for name in ("lib", "tests"):
            os.symlink(os.path.join(harness.BUILD, name), os.path.join(build, name))
        launcher = os.path.join(build, "bin", "cudaguard")
        with open(launcher, "w", encoding="utf-8") as stream:
            stream.write('#!/bin/sh\nwhile [ $# != 0 ] && [ "$1" != -- ]; do shift; done\n'
                         '[ $# = 0 ] || { shift; exec "$@"; }\n')
        os.chmod(launcher, 0o755)
        return build

    @pytest.mark.full
    def test_every_row_passes_with_fake_gpus(self):
        code, out, rows = self.check(*self.build())
        failed = [name for name, row in rows.items() if row["verdict"] == "FAIL"]
        self.assertEqual((code, failed), (0, []), out)
        for name in ("guard", "cuInit.force-cpu", "cuInit.validate", "cuInit.list", "entry_points.dlopen",
                     "entry_points.nvml", "workers.children-spawn", "workers.children-fork",
                     "allow.index0", "allow.reversed", "allow.uuids-reversed", "allow.two-nested",
                     "allow.unknown-index", "allow.duplicate", "index.12-shared.VALIDATE",
                     "index.13-shared.CLAMP", "index.cuDeviceGet-dlopen.CLAMP", "calls.pointers",
                     "slot.getenv", "slot.record", "slot.hides", "observe.context", "observe.fork",
                     "observe.late-write", "observe.late-write-remedy", "health.doctor",
                     "health.fresh", "health.shared", "health.list", "health.missing"):
            self.assertIn(name, rows, out)
            self.assertEqual(rows[name]["verdict"], "pass", "%s\n%s" % (name, out))
        for name, row in rows.items():
            self.assertIn(name, out)
            self.assertTrue(row["what"])
            self.assertTrue(row["reason"] if row["verdict"] == "not filled" else row["value"], name)
        self.assertEqual(len(self.facts["gpus"]), 8)
        self.assertEqual(self.facts["fake driver"], FAKES)

    @pytest.mark.full
    def test_fails_with_a_guard_that_does_nothing(self):
        code, out, rows = self.check(*self.build("--lib", self.idle_lib()))
        self.assertEqual(code, 1, out)
        for name in ("cuInit.force-cpu", "entry_points.linked", "entry_points.dlopen", "entry_points.nvml", "entry_points.when",
                     "workers.children-spawn", "workers.children-fork", "allow.index0",
                     "allow.reversed", "allow.unknown-index", "index.12-shared.CLAMP",
                     "index.12-shared.VALIDATE", "index.cuDeviceGet-proc.CLAMP", "calls.pointers",
                     "slot.getenv", "slot.record", "slot.hides", "observe.context", "observe.fork",
                     "observe.late-write", "observe.late-write-remedy"):
            self.assertEqual(rows[name]["verdict"], "FAIL", "%s\n%s" % (name, out))

    def test_fails_without_a_guard(self):
        empty = os.path.join(self.scratch, "empty")
        os.makedirs(empty)
        code, out, rows = self.check(*self.build("--lib", empty, "--only", "init"))
        self.assertEqual((code, rows["guard"]["verdict"]), (1, "FAIL"), out)
        self.assertEqual(rows["cuInit.force-cpu"]["verdict"], "FAIL", out)

    @pytest.mark.full
    def test_packed_check_runs_on_a_minimal_machine(self):
        directory = os.path.join(self.scratch, "pack")
        done = subprocess.run(
            [sys.executable, os.path.join(harness.SOURCE, "scripts", "gpu-check"), "--build",
             harness.BUILD, "--lib", harness.LIB, "--pack", directory],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        # The other machine does not have the build tree.
        code, out, rows = self.check(
            "--from", directory, "--library-path", FAKES, "--only", "init,entry_points,lists",
            script=os.path.join(directory, "scripts",
                                "gpu-check"), path=self.unguarded_path("bwrap"))
        self.assertEqual(code, 0, out)
        for name in ("guard", "cuInit.force-cpu", "entry_points.dlopen", "entry_points.dlmopen", "allow.reversed"):
            self.assertEqual(rows[name]["verdict"], "pass", out)
        self.assertNotIn(harness.BUILD, json.dumps(rows["allow.reversed"]))
        self.assertNotIn(directory, json.dumps(rows))

    def one_gpu(self, *more, env=None):
        contexts = os.path.join(self.scratch, "contexts")
        os.makedirs(contexts, exist_ok=True)
        return self.check("--build", harness.BUILD, "--lib", harness.LIB, "--library-path", ONE_GPU,
                          *more, env=dict(env or {}, KEPT_CONTEXTS=contexts))

    @pytest.mark.full
    def test_memory_rows_pass_with_one_gpu(self):
        code, out, rows = self.one_gpu("--only", "contexts,lists")
        self.assertEqual(code, 0, out)
        for name, text in (("context.unguarded", "500 MiB"), ("context.force-cpu", "0 MiB"),
                           ("context.validate", "500 MiB"), ("workers.unguarded", "12000 MiB"),
                           ("workers.validate-spawn", "12000 MiB"),
                           ("workers.children-spawn", "0 MiB"),
                           ("workers.children-fork", "0 MiB"), ("allow.index0", "6 of 6"),
                           ("allow.unknown-index", "6 of 6")):
            self.assertEqual(rows[name]["verdict"], "pass", out)
            self.assertTrue(rows[name]["value"].startswith(text), out)
        self.assertIn("12000 MiB less than unguarded", rows["workers.children-spawn"]["value"])
        self.assertEqual(rows["allow.reversed"]["reason"], "one GPU only")
        _, out, rows = self.one_gpu("--only", "entry_points")
        self.assertEqual(rows["entry_points.memory"]["verdict"], "pass", out)

    @pytest.mark.full
    def test_python_programs_hold_no_memory_if_guarded(self):
        fake_modules = os.path.join(harness.SOURCE, "tests", "gpu", "fake_modules")
        more = {"GPU_CHECK_PYTHON": pytest_runs.PYTHON, "PYTHONPATH": fake_modules}
        code, out, rows = self.one_gpu("--only", "memory", env=more)
        self.assertEqual(code, 0, out)
        for name, text in (("pytest", "unguarded 4000 MiB"), ("spawn", "unguarded 4000 MiB"),
                           ("children", "unguarded 4500 MiB"), ("verify", "exit code 1; test_")):
            self.assertTrue(rows["memory." + name]["value"].startswith(text), out)
        self.assertIn("guarded 0 MiB", rows["memory.pytest"]["value"])
        self.assertIn("--children=cpu 500 MiB", rows["memory.children"]["value"])
        code, out, rows = self.one_gpu("--build", self.idle_launcher(), "--only", "memory", env=more)
        for name in ("pytest", "spawn", "children", "verify"):
            self.assertEqual(rows["memory." + name]["verdict"], "FAIL", out)

    def test_launcher_rows_pass_with_fake_gpus(self):
        code, out, rows = self.check(*self.build("--only", "launcher"))
        self.assertEqual((code, rows["rules.children-fork"]["verdict"]), (0, "pass"), out)
        # The file to commit has no path of this machine. The table has the whole ones.
        self.assertEqual(rows["guard"]["value"], "lib/libcudaguard.so")
        self.assertIn("bin/cudaguard run", json.dumps(rows))
        for directory in (harness.BUILD, harness.SOURCE + "/"):
            self.assertNotIn(directory, json.dumps(rows))

    def test_no_context_rows_pass_with_a_fake_gpu(self):
        runtime = ("--library-path", ONE_GPU + ":" + os.path.join(harness.FAKES, "runtime"))
        code, out, rows = self.one_gpu("--only", "no_context", *runtime)
        self.assertEqual(code, 0, out)
        for name, text in (("queries", "worst answer 0, 1 GPUs"), ("memory", "0 MiB"),
                           ("driver", "answers 46 46"), ("mode", "2 2"),
                           ("13-shared", "count 1; copies: error46")):
            self.assertTrue(rows["no_context." + name]["value"].startswith(text), out)

    def test_no_context_rows_fail_with_a_launcher_that_only_starts_the_program(self):
        code, out, rows = self.one_gpu("--build", self.idle_launcher(), "--only", "no_context")
        self.assertEqual(code, 1, out)
        for name in ("driver", "mode"):
            self.assertEqual(rows["no_context." + name]["verdict"], "FAIL", out)

    def test_row_of_a_fenced_list_is_filled_with_made_up_nodes(self):
        """A launcher that only starts the program leaves all of them."""
        machine.need("landlock")
        fakes = nodes.gpu_nodes([8, 5]) + nodes.driver_files(
            [("0000:07:00.0", "GPU-1", 8), ("0000:0f:00.0", "GPU-2", 5)])
        for build, code, opened in ((harness.BUILD, 0, "/dev/nvidia8"),
                                    (self.idle_launcher(), 1, "/dev/nvidia5 /dev/nvidia8 /dev/nvidia99")):
            rc, out, rows = self.check(
                "--build", build, "--lib", harness.LIB, "--library-path", FAKES, "--only", "launcher",
                start=lambda words: nodes.in_private_dev(*words, fakes=fakes))
            unfenced = " (unfenced /dev/nvidia5 /dev/nvidia8 /dev/nvidia99)"
            self.assertEqual((rc, rows["fence.list.open"]["value"]), (code, opened + unfenced), out)

    def test_health_rows_pass_with_fake_gpus(self):
        code, out, rows = self.check(*self.build("--only", "health"))
        self.assertEqual((code, len(rows)), (0, 7), out)

    def test_health_rows_fail_with_a_launcher_that_only_starts_the_program(self):
        code, out, rows = self.check("--build", self.idle_launcher(), "--library-path", FAKES, "--only", "health")
        self.assertEqual(code, 1, out)
        for name in ("health.doctor", "health.list", "health.missing"):
            self.assertEqual(rows[name]["verdict"], "FAIL", out)

    def test_memory_rows_fail_with_a_guard_that_does_nothing(self):
        code, out, rows = self.one_gpu("--lib", self.idle_lib(), "--only", "contexts")
        self.assertEqual(code, 1, out)
        for name in ("context.force-cpu", "workers.children-spawn", "workers.children-fork"):
            self.assertEqual(rows[name]["verdict"], "FAIL", out)
        self.assertTrue(rows["workers.children-spawn"]["value"].startswith("12000 MiB"), out)

    def test_without_gpu_and_sandbox_the_driver_is_not_entered(self):
        if glob.glob("/dev/nvidia*"):
            harness.skip(self, "this machine has a GPU")
        code, out, rows = self.check("--build", harness.BUILD, "--lib", harness.LIB,
                                     path=self.unguarded_path())
        self.assertEqual(code, 0, out)
        self.assertEqual({row["verdict"] for name, row in rows.items()
                          if name not in ("guard", "proxies")}, {"not filled"}, out)


def test_rows_have_no_path_of_the_machine(monkeypatch):
    monkeypatch.syspath_prepend(os.path.join(harness.SOURCE, "tests", "gpu"))
    import report
    directories = {"/w/c": ".", "/w/c/build/ci": ".", "/other/lib": "lib"}
    row = {"out": "A=/w/c/build/ci/lib/x.so:/other/lib/y in /w/c/build/ci", "seconds": 1.5,
           "lines": ["/w/c/tests/z\n/w/c", "/w/c2/x /x/w/c/y /other/library", None, True]}
    assert report.relative(row, directories) == {
        "out": "A=lib/x.so:lib/y in .", "seconds": 1.5,
        "lines": ["tests/z\n.", "/w/c2/x /x/w/c/y /other/library", None, True]}
