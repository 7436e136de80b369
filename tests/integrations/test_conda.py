# SPDX-License-Identifier: Apache-2.0
"""The scripts of activate.d and deactivate.d are sourced in the order in which conda sources them.

conda itself is neither in Debian nor on PyPI. Its conda/activate.py defines the order: first it
sources the scripts of the environment that it leaves. Then it sets CONDA_PREFIX and CONDA_SHLVL and
sources the scripts of the environment that it enters.
"""

import os
import shutil

import pytest

from support import fixtures, harness, places
from support.places import launcher

ASK = " ".join(places.OPEN)
SHELLS = {"bash": ["bash"], "bash -eu": ["bash", "-eu"], "posix": ["bash", "--posix", "-eu"],
          "dash": ["dash"], "dash -eu": ["dash", "-eu"], "zsh": ["zsh", "-f"],
          "zsh -eu": ["zsh", "-f", "-eu"], "busybox": ["busybox", "sh", "-eu"]}
# The variables of the shell before, and its separators.
STARTS = [
    ({}, None), ({"LD_PRELOAD": "libm.so.6 libdl.so.2"}, None), ({"LD_PRELOAD": "QUOTED"}, None),
    ({"JAX_PLATFORMS": "cuda", "CUDAGUARD_POLICY": "OFF"}, None),
    ({"CUDAGUARD_VISIBLE_DEVICES": "2", "CUDAGUARD_POLICY": "VALIDATE",
      "CUDA_VISIBLE_DEVICES": "0"}, None),
    ({"MPIR_CVAR_ENABLE_GPU": "", "JAX_PLATFORMS": "it's \"a b\" $HOME\nnext `line`"}, None),
    # Values that the guard itself ignores, and that must not switch it off.
    ({"CUDAGUARD_LOG": "loud"}, None), ({"CUDAGUARD_REPORT": "/nonexistent/x"}, None),
    *(({"JAX_PLATFORMS": "a b"}, ifs) for ifs in ("IFS=:", "IFS=", "IFS=AD_", "unset IFS"))]


class Conda:
    """Writes the commands that conda's shell function evaluates."""

    def __init__(self, directory):
        self.directory = directory
        self.stack = []  # (name, whether it is stacked on the previous one)
        self.lines = []

    def prefix(self, name):
        return os.path.join(self.directory, name)

    def source(self, kind, name):
        script = os.path.join(self.prefix(name), "etc", "conda", kind, "cudaguard.sh")
        if os.path.exists(script):
            self.lines.append('. "%s"' % script)

    def enter(self):
        if self.stack:
            self.lines.append('export CONDA_PREFIX="%s" CONDA_SHLVL=%d' %
                              (self.prefix(self.stack[-1][0]), len(self.stack)))
        else:
            self.lines.append("unset CONDA_PREFIX; export CONDA_SHLVL=0")

    def activate(self, name, stacked=False):
        if self.stack and not stacked:
            self.source("deactivate.d", self.stack[-1][0])
        self.stack.append((name, stacked))
        self.enter()
        self.source("activate.d", name)
        return self

    def deactivate(self):
        name, stacked = self.stack.pop()
        self.source("deactivate.d", name)
        self.enter()
        if self.stack and not stacked:
            self.source("activate.d", self.stack[-1][0])
        return self

    def reactivate(self):
        name = self.stack[-1][0]
        self.source("deactivate.d", name)
        self.source("activate.d", name)
        return self

    def run(self, command):
        self.lines.append(command)
        return self


ON, OFF = "100", "0"
# conda's commands and the answer of cuInit after each.
WAYS = {
    "reactivated": [
        ("activate", ["cpu"], ON), ("reactivate", [], ON), ("deactivate", [], OFF)],
    "sourced twice": [
        ("activate", ["cpu"], ON), ("source", ["activate.d", "cpu"], ON), ("deactivate", [], OFF),
        ("source", ["deactivate.d", "cpu"], OFF)],
    "another and back": [
        ("activate", ["cpu"], ON), ("activate", ["plain"], OFF), ("deactivate", [], ON),
        ("deactivate", [], OFF)],
    "from another": [
        ("activate", ["plain"], OFF), ("activate", ["cpu"], ON), ("activate", ["more"], ON),
        ("deactivate", [], ON), ("deactivate", [], OFF)],
    "stacked": [
        ("activate", ["cpu"], ON), ("activate", ["more", True], ON), ("deactivate", [], ON),
        ("deactivate", [], OFF)],
    "plain on top": [
        ("activate", ["cpu"], ON), ("activate", ["plain", True], ON), ("deactivate", [], ON),
        ("deactivate", [], OFF)],
    "never active": [("source", ["deactivate.d", "cpu"], OFF)],
}


class Activation(places.Case):
    def setUp(self):
        super().setUp()
        self.installed("tree")
        for name in ("cpu", "more"):
            self.environment(name)
        os.makedirs(self.path("plain", "conda-meta"))
        self.bin = self.path("tree", "bin")

    def environment(self, name):
        """Makes a conda environment as the comment in activate.sh describes."""
        for kind in ("activate", "deactivate"):
            self.make("%s/etc/conda/%s.d/cudaguard.sh" % (name, kind),
                      places.read("conda", kind + ".sh"))

    def shell(self, words, conda, env=None, path=True):
        found = self.bin + ":" + os.environ["PATH"] if path else "/usr/bin:/bin"
        result = harness.run(words + ["-c", "\n".join(conda.lines)], guard=False, trace=False,
                             env={"PATH": found, **dict.fromkeys(launcher.PRESETS), **(env or {})})
        self.assertEqual(result.rc, 0, result)
        result.parts = [part.strip("\n") for part in result.out.split("----\n")]
        return result

    def shells(self):
        missing = [words[0] for words in SHELLS.values() if not shutil.which(words[0])]
        if missing:
            harness.skip(self, "not installed: " + " ".join(sorted(set(missing))))
        return harness.sample(SHELLS.items(), 4)

    def test_child_shell_can_leave_the_environment(self):
        leave = Conda(self.directory)
        leave.stack = [("cpu", False)]
        leave.deactivate().run("printenv LD_PRELOAD JAX_PLATFORMS; " + ASK)
        inner = self.make("leave.sh", "\n".join(leave.lines) + "\n")
        for name, words in self.shells():
            outer = Conda(self.directory).activate("cpu").run("echo ----; exec %s %s" % (
                " ".join(words).replace("-eu", ""), inner))
            result = self.shell(words, outer, {"LD_PRELOAD": "libm.so.6"})
            lines = result.parts[1].splitlines()
            self.assertEqual((name, lines[0], lines[1].split()[0]), (name, "libm.so.6", "cuInit=0"))

    def test_environments_own_launcher_is_preferred(self):
        self.installed("cpu")
        conda = Conda(self.directory).activate("cpu").run("printenv LD_PRELOAD").activate("more")
        for name, words in self.shells():
            result = self.shell(words, conda.run("printenv LD_PRELOAD"))
            self.assertEqual(result.out.splitlines()[:2],
                             [self.path(place, "lib", "libcudaguard.so")
                              for place in ("cpu", "tree")], name)

    def test_failed_activation_is_reported_and_hides_the_gpus(self):
        """The script prints that the environment is not guarded, and the shell continues. A
        variable hides the GPUs from programs that heed it."""
        self.make("cpu/bin/cudaguard", "#!/bin/sh\necho 'cudaguard: some reason' >&2\nexit 125\n")
        show = "echo ${LD_PRELOAD-unset} ${CUDA_VISIBLE_DEVICES-unset}."
        conda = Conda(self.directory).activate("cpu").run(ASK).run(show).deactivate().run(show)
        conda.activate("more").run(ASK).run(show).deactivate().run(show)
        for name, words in self.shells():
            for given in (None, "1"):
                result = self.shell(words, conda, {"CUDA_VISIBLE_DEVICES": given}, path=False)
                self.assertEqual(result.out.count("cuInit=0 "), 2, (name, result))
                self.assertEqual([line for line in result.out.splitlines() if line[-1] == "."],
                                 ["unset .", "unset %s." % (given or "unset")] * 2, (name, result))
                self.assertIn("cudaguard: some reason\n", result.err)
                self.assertEqual(result.err.count(
                    "cudaguard: this environment is NOT guarded; CUDA_VISIBLE_DEVICES= hides the "
                    "GPUs from programs that heed it\n"), 2, result)
                self.assertIn("not found", result.err)

    def test_launcher_lifts_policy_and_presets_for_one_program(self):
        conda = Conda(self.directory).activate("cpu").run("cudaguard run --policy OFF -- " + ASK)
        conda.run("echo ----; cudaguard run --policy OFF -- env; echo ----; " + ASK)
        result = self.shell(["dash"], conda)
        self.assertTrue(result.parts[0].startswith("cuInit=0 "), result)
        for name in launcher.PRESETS:
            self.assertNotIn(name + "=", result.parts[1])
        self.assertTrue(result.parts[2].startswith("cuInit=100 "), result)


make_case = fixtures.lent("case", Activation)


@pytest.mark.parametrize(("env", "ifs"), STARTS)
@pytest.mark.parametrize("shell", harness.sample(SHELLS, 4))
def test_deactivation_restores_every_variable(case, shell, env, ifs):
    """The guard is active between the two commands, and afterwards every variable has its old
    value."""
    show = ("echo ----; echo \"IFS=${IFS-unset}.\"; env -0 | tr '\\n\\0' '^\\n' | "
            "grep -vE '^(CONDA_|_=|SHLVL|OLDPWD)' | sort")
    steps = Conda(case.directory).run(ifs or ":").run(show).run("echo ----; " + ASK).activate("cpu")
    steps.run("echo ----; " + ASK).run("echo ----; printenv LD_PRELOAD")
    steps.deactivate().run(show).run("echo ----; " + ASK)
    quoted = shutil.copy(os.path.realpath(harness.NULL_DRIVER_NVML), case.path("it's$a.so"))
    env = {key: value.replace("QUOTED", quoted) for key, value in env.items()}
    result = case.shell(dict(case.shells())[shell], steps, env)
    _, before, unguarded, guarded, preload, after, again = result.parts
    assert guarded.startswith("cuInit=100 "), str(result)
    assert "NOT guarded" not in result.err
    for name in ("CUDAGUARD_LOG", "CUDAGUARD_REPORT"):
        assert ("cudaguard: %s=" % name in result.err) == (name in env), str(result)
    others = env.get("LD_PRELOAD", "").replace(" ", ":")
    assert preload.split(":", 1)[1:] == ([others] if others else [])
    assert preload.split(":")[0] == case.path("tree/lib/libcudaguard.so")
    assert before.splitlines() == after.splitlines()
    for answer in (unguarded, again):
        assert answer.startswith("cuInit=0 "), str(result)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shell", harness.sample(SHELLS, 4))
def test_guard_follows_each_way_to_switch_environments(case, shell, way):
    """Asks for CUDA after each of conda's commands."""
    conda = Conda(case.directory)
    for method, words, _ in WAYS[way]:
        getattr(conda, method)(*words)
        conda.run("echo ----; " + ASK)
    result = case.shell(dict(case.shells())[shell], conda)
    assert [part.split()[0] for part in result.parts[1:]] == [
        "cuInit=" + answer for _, _, answer in WAYS[way]], str(result)
