# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-check works with the machine of eight fake GPUs of tests/fakes.

The control uses a guard and a launcher that do nothing, so the rows that check anything have to fail.
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
IDLE_GUARD = os.path.join(harness.PROGRAMS, "idle-guard", "libcudaguard.so")
GPU_CHECK = os.path.join(harness.SOURCE, "scripts", "gpu-check")
# A minimal machine has these tools, but neither strace nor a compiler. Without a GPU the tests must
# add bubblewrap, because NVIDIA's driver library would otherwise run on this machine.
UNGUARDED_TOOLS = ("cat", "env", "sh", "true")
# These rows pass with fake GPUs, and fail if nothing is guarded.
ROWS = ["cuInit.force-cpu", "entry_points.linked", "entry_points.dlopen", "entry_points.nvml",
        "entry_points.when", "workers.children-spawn", "workers.children-fork", "allow.index0",
        "allow.reversed", "allow.unknown-index", "index.12-shared.VALIDATE",
        "index.12-shared.CLAMP", "index.cuDeviceGet-proc.CLAMP", "calls.pointers",
        "observe.context", "observe.list", "observe.fork", "observe.late-write",
        "observe.late-write-remedy", "context.force-cpu", "no_context.driver", "no_context.mode",
        "health.doctor", "health.list", "health.missing", "launcher.run", "launcher.verify",
        "rules.program", "rules.children-fork", "memory.pytest", "memory.spawn", "memory.children",
        "memory.verify"]
SECTIONS = ()
if not harness.FULL:  # All sections take five times as long as these.
    SECTIONS = ("--only", "no_context,health,launcher,contexts")
    ROWS = [name for name in ROWS if name.split(".")[0] in (
        "context", "workers", "no_context", "health", "launcher", "rules")]


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

    def check(self, *arguments, script=GPU_CHECK, path=None, env=None, start=list):
        """Runs gpu-check; returns (exit code, its output, {row name: row}). `start` makes the command
        of its words."""
        out, contexts = (tempfile.mkdtemp(dir=self.scratch) for _ in range(2))
        environment = dict(os.environ, PATH=path or os.environ["PATH"], KEPT_CONTEXTS=contexts,
                           **(env or {}))
        done = subprocess.run(
            start([sys.executable, script, "--quiet", "--out", out, *arguments]),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        files = glob.glob(os.path.join(out, "*.jsonl"))
        self.assertEqual(len(files), 1, done.stdout)
        self.facts, *rows = harness.records(files[0])
        return done.returncode, done.stdout, {row["name"]: row for row in rows}

    def every_section(self, *arguments):
        """The same, with a PyTorch of ours for the section of whole Python programs. Without --full,
        only SECTIONS."""
        arguments += "--library-path", FAKES
        code, out, rows = self.check(*arguments, *SECTIONS)
        if SECTIONS:
            return {code}, out, rows
        modules = {"GPU_CHECK_PYTHON": pytest_runs.PYTHON, "PYTHONPATH": os.path.join(
            harness.SOURCE, "tests", "gpu", "fake_modules")}
        code_of_memory, more, memory = self.check(*arguments, "--only", "memory", env=modules)
        return {code, code_of_memory}, out + more, {**rows, **memory}

    def unguarded_path(self, *more):
        """Returns a PATH with almost no programs."""
        directory = os.path.join(self.scratch, "bin")
        os.makedirs(directory)
        for tool in UNGUARDED_TOOLS + more:
            os.symlink(shutil.which(tool), os.path.join(directory, tool))
        return directory

    def idle_build(self):
        """Returns a build directory whose guard does nothing, and whose launcher only starts the
        program."""
        build = os.path.join(self.scratch, "build")
        for name in ("bin", "lib"):
            os.makedirs(os.path.join(build, name))
        shutil.copy(IDLE_GUARD, os.path.join(build, "lib"))
        os.symlink(os.path.join(harness.LIB, "cudaguard"), os.path.join(build, "lib", "cudaguard"))
        os.symlink(os.path.join(harness.BUILD, "tests"), os.path.join(build, "tests"))
        launcher = os.path.join(build, "bin", "cudaguard")
        with open(launcher, "w", encoding="utf-8") as stream:
            stream.write('#!/bin/sh\nwhile [ $# != 0 ] && [ "$1" != -- ]; do shift; done\n'
                         '[ $# = 0 ] || { shift; exec "$@"; }\n')
        os.chmod(launcher, 0o755)
        return build

    def test_every_row_passes_with_fake_gpus(self):
        codes, out, rows = self.every_section("--build", harness.BUILD, "--lib", harness.LIB)
        failed = [name for name, row in rows.items() if row["verdict"] == "FAIL"]
        self.assertEqual((codes, failed), ({0}, []), out)
        for name in ROWS:
            self.assertEqual(rows[name]["verdict"], "pass", "%s\n%s" % (name, out))
        for name, row in rows.items():
            self.assertIn(name, out)
            self.assertTrue(row["what"])
            self.assertTrue(row["reason"] if row["verdict"] == "not filled" else row["value"], name)
        for name, text in (("context.unguarded", "500 MiB"), ("workers.unguarded", "12000 MiB"),
                           ("workers.children-spawn", "0 MiB"), ("memory.pytest", "unguarded 4000 MiB"),
                           ("memory.children", "unguarded 4500 MiB"), ("no_context.memory", "0 MiB")):
            if harness.FULL or not name.startswith("memory."):
                self.assertTrue(rows[name]["value"].startswith(text), out)
        self.assertEqual(len(self.facts["gpus"]), 8)
        # The file to commit has no path of this machine. The table has the whole ones.
        self.assertEqual(rows["guard"]["value"], "lib/libcudaguard.so")
        self.assertIn("bin/cudaguard run", json.dumps(rows))
        for directory in (harness.BUILD, harness.SOURCE + "/"):
            self.assertNotIn(directory, json.dumps(rows))

    def test_rows_fail_if_nothing_is_guarded(self):
        codes, out, rows = self.every_section("--build", self.idle_build())
        self.assertEqual(codes, {1}, out)
        passed = {name: rows[name]["verdict"] for name in ROWS if rows[name]["verdict"] != "FAIL"}
        self.assertEqual(passed, {}, out)

    def test_fails_without_a_guard(self):
        empty = os.path.join(self.scratch, "empty")
        os.mkdir(empty)
        code, out, rows = self.check("--build", harness.BUILD, "--lib", empty, "--library-path", FAKES,
                                     "--only", "init")
        self.assertEqual((code, rows["guard"]["verdict"]), (1, "FAIL"), out)
        self.assertEqual(rows["cuInit.force-cpu"]["verdict"], "FAIL", out)

    @pytest.mark.full
    def test_packed_check_runs_on_a_minimal_machine(self):
        directory = os.path.join(self.scratch, "pack")
        done = subprocess.run([sys.executable, GPU_CHECK, "--build", harness.BUILD, "--lib",
                               harness.LIB, "--pack", directory],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        # The other machine does not have the build tree.
        code, out, rows = self.check(
            "--from", directory, "--library-path", FAKES, "--only", "init,entry_points,lists",
            script=os.path.join(directory, "scripts", "gpu-check"), path=self.unguarded_path("bwrap"))
        self.assertEqual(code, 0, out)
        for name in ("guard", "cuInit.force-cpu", "entry_points.dlopen", "entry_points.dlmopen",
                     "entry_points.memory", "allow.reversed"):
            self.assertEqual(rows[name]["verdict"], "pass", out)
        self.assertNotIn(harness.BUILD, json.dumps(rows["allow.reversed"]))
        self.assertNotIn(directory, json.dumps(rows))

    def test_row_of_a_fenced_list_is_filled_with_made_up_nodes(self):
        """A launcher that only starts the program leaves all of them."""
        machine.need("landlock")
        fakes = nodes.gpu_nodes([8, 5]) + nodes.driver_files(
            [("0000:07:00.0", "GPU-1", 8), ("0000:0f:00.0", "GPU-2", 5)])
        for build, code, opened in ((harness.BUILD, 0, "/dev/nvidia8"),
                                    (self.idle_build(), 1, "/dev/nvidia5 /dev/nvidia8 /dev/nvidia99")):
            rc, out, rows = self.check(
                "--build", build, "--lib", harness.LIB, "--library-path", FAKES, "--only", "launcher",
                start=lambda words: nodes.in_private_dev(*words, fakes=fakes))
            unfenced = " (unfenced /dev/nvidia5 /dev/nvidia8 /dev/nvidia99)"
            self.assertEqual((rc, rows["fence.list.open"]["value"]), (code, opened + unfenced), out)

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
