# SPDX-License-Identifier: Apache-2.0
"""action.yml: the test runs each of its shell steps as GitHub runs it, with the inputs inserted."""

import os
import re
import shutil
import subprocess
import xml.etree.ElementTree

import pytest

from support import harness

try:
    import yaml
except ImportError:
    yaml = None

ATTEMPT = "python3 -c 'import ctypes; ctypes.CDLL(\"libcuda.so.1\").cuInit(0)'"
NVML = "python3 -c 'import ctypes; ctypes.CDLL(\"libnvidia-ml.so.1\").nvmlInit_v2()'"
LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(harness.LIB)), "bin", "cudaguard")
EXPRESSION = re.compile(r"\$\{\{ *(.*?) *\}\}")


class Action(harness.DirectoryCase):
    def setUp(self):
        super().setUp()
        if yaml is None:
            harness.skip(self, "python3-yaml is not installed")
        with open(os.path.join(harness.SOURCE, "action.yml"), encoding="utf-8") as stream:
            self.action = yaml.safe_load(stream)
        self.steps = self.action["runs"]["steps"]

    def value(self, expression, inputs):
        """Returns the value of one of the few expressions that action.yml uses."""
        known = {"github.action_path": harness.SOURCE}
        known.update(("inputs." + name, text) for name, text in inputs.items())
        match = re.fullmatch(r"(\S+) == ''", expression)
        return known[match[1]] == "" if match else known[expression]

    def run_action(self, **given):
        """Runs all steps in turn; returns (exit code, output, the fake driver's calls, outputs)."""
        inputs = {name: entry.get("default") for name, entry in self.action["inputs"].items()}
        inputs.update({"cudaguard": LAUNCHER, **given})
        self.assertNotIn(None, inputs.values())
        out, calls, outputs = "", [], self.path("outputs")
        with open(outputs, "w", encoding="utf-8"):
            pass
        for number, step in enumerate(self.steps):
            if "if" in step and not self.value(step["if"], inputs):
                continue
            self.assertEqual(step["shell"], "bash")
            env = {name: EXPRESSION.sub(lambda match: self.value(match[1], inputs), text)
                   for name, text in step["env"].items()}
            script = self.path("step%d.sh" % number)
            with open(script, "w", encoding="utf-8") as stream:
                stream.write(step["run"])
            # GitHub runs this for `shell: bash`.
            result = harness.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", script], guard=False,
                cwd=self.directory, trace=False,
                env={**env, "GITHUB_OUTPUT": outputs, "RUNNER_TEMP": self.path("temp")})
            out += result.out + result.err
            calls += result.init_calls()
            if result.rc != 0:
                break
        with open(outputs, encoding="utf-8") as stream:
            action_outputs = dict(line.split("=", 1) for line in stream.read().splitlines())
        return result.rc, out, calls, action_outputs

    def test_control_command_alone_reaches_the_driver(self):
        """Control: the command alone reaches the driver."""
        harness.run(["bash", "-c", ATTEMPT], guard=False, trace=False).assert_reached(self)

    def test_inputs_become_verifys_options(self):
        code, out, _, _ = self.run_action(command=ATTEMPT, junit="a b.xml", html="page.html")
        self.assertEqual(code, 1, out)
        self.assertIsNotNone(xml.etree.ElementTree.parse(self.path("a b.xml")).find(".//failure"))
        self.assertTrue(os.path.getsize(self.path("page.html")))
        self.assertEqual(self.run_action(command=ATTEMPT, deny="nvml")[0], 0)
        self.assertEqual(self.run_action(command=NVML, deny="nvml,init")[0], 1)
        self.assertEqual(self.run_action(command=ATTEMPT, allow="nobody\n*ctypes*\n")[0], 0)
        self.assertEqual(self.run_action(command=ATTEMPT, allow="nobody")[0], 1)
        code, out, _, action_outputs = self.run_action(command="true", deny="everything")
        self.assertEqual((code, action_outputs), (125, {"result": "error"}), out)

    def test_inputs_are_not_executed(self):
        mark = self.path("mark")
        for name in ("deny", "allow", "junit", "html", "cudaguard"):
            for text in ("$(touch %s)", "`touch %s`", "x\"; touch %s; \"", "';touch %s;'"):
                self.run_action(**{"command": "true", name: text % mark})
                self.assertFalse(os.path.exists(mark), (name, text))
        # Control: the command's text is code.
        self.run_action(command="touch " + mark)
        self.assertTrue(os.path.exists(mark))
        for step in self.steps:
            self.assertNotIn("${{", step["run"])

    def test_shellcheck_finds_no_problem(self):
        if not shutil.which("shellcheck"):
            harness.skip(self, "shellcheck is not installed")
        for step in self.steps:
            done = subprocess.run(["shellcheck", "-s", "bash", "-"], text=True, capture_output=True,
                                  input="set -eo pipefail\n" + step["run"], check=False)
            self.assertEqual(done.stdout, "")

    def test_build_step_has_the_readmes_commands(self):
        """The test does not run the step that builds, but checks its commands: README's readers and
        CI run the same."""
        with open(os.path.join(harness.SOURCE, "README.md"), encoding="utf-8") as stream:
            readme = stream.read()
        build = self.steps[0]
        self.assertTrue(self.value(build["if"], {"cudaguard": ""}))
        lines = build["run"].splitlines()
        for line in lines:
            if line.startswith(("scripts/fetch-cuda", "cmake -S")):
                self.assertIn("\n%s\n" % line, readme)
        self.assertEqual(sum(line.startswith("cmake -S") for line in lines), 1)
        self.assertIn('--prefix "$RUNNER_TEMP/cudaguard"', build["run"])
        self.assertIn("$RUNNER_TEMP/cudaguard/bin/cudaguard", self.steps[1]["run"])
        for name in re.findall(r"^(scripts/\S+)", build["run"], re.M):
            self.assertTrue(os.access(os.path.join(harness.SOURCE, name), os.X_OK), name)

    def test_declared_outputs_exist_and_inputs_are_used(self):
        """The outputs that the action declares exist, and each input is used."""
        self.assertEqual(self.action["outputs"]["result"]["value"],
                         "${{ steps.%s.outputs.result }}" % self.steps[1]["id"])
        used = re.findall(r"inputs\.(\w+)", str(self.steps))
        self.assertEqual(set(used), set(self.action["inputs"]))


@pytest.fixture(name="case")
def make_case():
    yield from harness.lent(Action())


@pytest.mark.parametrize(("command", "rc", "word"),
                         [("python3 -c 'import json'", 0, "clean"), (ATTEMPT, 1, "touched"),
                          (ATTEMPT + "; exit 3", 1, "touched"), ("exit 3", 2, "failed"),
                          (NVML, 0, "clean"),
                          ("true\nif [ -n \"$BASH\" ]; then exit 4; fi", 2, "failed")])
def test_result_follows_verifys_verdict(case, command, rc, word):
    code, out, calls, action_outputs = case.run_action(command=command)
    assert (code, action_outputs, calls) == (rc, {"result": word}, []), str(out)
    assert ("FAIL" if rc else "PASS") in out
