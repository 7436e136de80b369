# SPDX-License-Identifier: Apache-2.0
"""action.yml: the test runs each of its shell steps as GitHub runs it, with the inputs inserted."""

import hashlib
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree

import pytest

from support import fixtures, harness, places

ATTEMPT = "python3 -c 'import ctypes; ctypes.CDLL(\"libcuda.so.1\").cuInit(0)'"
NVML = "python3 -c 'import ctypes; ctypes.CDLL(\"libnvidia-ml.so.1\").nvmlInit_v2()'"
LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(harness.LIB)), "bin", "cudaguard")
EXPRESSION = re.compile(r"\$\{\{ *(.*?) *\}\}")


class Action(places.Case):
    def setUp(self):
        super().setUp()
        self.need_yaml()
        self.action = places.yaml.safe_load(harness.read("action.yml"))
        self.steps = self.action["runs"]["steps"]

    def value(self, expression, inputs):
        """Returns the value of one of the few expressions that action.yml uses."""
        known = {"github.action_path": harness.SOURCE, "github.server_url": "file://" + self.directory,
                 "github.action_repository": "owner/cudaguard"}
        known.update(("inputs." + name, text) for name, text in inputs.items())
        match = re.fullmatch(r"(\S+) == ''", expression)
        return known[match[1]] == "" if match else known[expression]

    def run_action(self, **given):
        """Runs all steps in turn; returns (exit code, output, the fake driver's calls, outputs)."""
        inputs = {name: entry.get("default") for name, entry in self.action["inputs"].items()}
        inputs.update({"cudaguard": LAUNCHER, **given})
        self.assertNotIn(None, inputs.values())
        out, calls, outputs = "", [], self.make("outputs", "")
        os.makedirs(self.path("temp"), exist_ok=True)
        for number, step in enumerate(self.steps):
            if "if" in step and not self.value(step["if"], inputs):
                continue
            self.assertEqual(step["shell"], "bash")
            env = {name: EXPRESSION.sub(lambda match: self.value(match[1], inputs), text)
                   for name, text in step["env"].items()}
            script = self.make("step%d.sh" % number, step["run"])
            # GitHub runs this for `shell: bash`.
            result = harness.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", script], guard=False,
                cwd=self.directory, trace=False,
                env={**env, "GITHUB_OUTPUT": outputs, "RUNNER_TEMP": self.path("temp"),
                     "GITHUB_STEP_SUMMARY": self.path("summary"), "GITHUB_WORKSPACE": self.directory})
            out += result.out + result.err
            calls += result.init_calls()
            if result.rc != 0:
                break
        action_outputs = dict(line.split("=", 1) for line in harness.read(outputs).splitlines())
        return result.rc, out, calls, action_outputs

    def test_control_command_alone_reaches_the_driver(self):
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
        self.assertEqual(self.run_action(command="env -i sleep 1")[0], 0)
        code, out, _, action_outputs = self.run_action(command="env -i sleep 1", strict="true")
        self.assertEqual((code, action_outputs), (3, {"result": "incomplete"}), out)
        code, out, _, action_outputs = self.run_action(command="true", deny="everything")
        self.assertEqual((code, action_outputs), (125, {"result": "error"}), out)

    def test_inputs_are_not_executed(self):
        mark = self.path("mark")
        for name in ("deny", "allow", "strict", "junit", "html", "cudaguard"):
            for text in ("$(touch %s)", "`touch %s`", "x\"; touch %s; \"", "';touch %s;'"):
                self.run_action(**{"command": "true", name: text % mark})
                self.assertFalse(os.path.exists(mark), (name, text))
        # Control: the command's text is code.
        self.run_action(command="touch " + mark)
        self.assertTrue(os.path.exists(mark))
        for step in self.steps:
            self.assertNotIn("${{", step["run"])

    def test_build_step_has_the_readmes_command(self):
        """The test does not run the step that builds: README's readers and CI run the same."""
        readme = harness.read("README.md")
        build = self.steps[0]
        self.assertTrue(self.value(build["if"], {"cudaguard": ""}))
        (line,) = re.findall(r"(?m)^cmake -S.*$", build["run"])
        self.assertIn("\n%s\n" % line, readme)
        self.assertIn('--prefix "$RUNNER_TEMP/cudaguard"', build["run"])
        self.assertIn("$RUNNER_TEMP/cudaguard/bin/cudaguard", self.steps[1]["run"])

    def test_declared_outputs_exist_and_inputs_are_used(self):
        self.assertEqual(self.action["outputs"]["result"]["value"],
                         "${{ steps.%s.outputs.result }}" % self.steps[1]["id"])
        used = re.findall(r"inputs\.(\w+)", str(self.steps))
        self.assertEqual(set(used), set(self.action["inputs"]))


make_case = fixtures.lent("case", Action)


def test_lines_that_ask_are_annotated(case):
    """An annotation has a path in the checkout. The summary has a table."""
    case.make("src/a,b%.py", "import ctypes\ndriver = ctypes.CDLL('libcuda.so.1')\n"
              "driver.cuInit(0)\ndriver.cuInit(0)\n")
    code, out, _, _ = case.run_action(command="python3 src/a,b%.py; python3 src/a,b%.py",
                                      allow="line:a,b%.py:4")
    assert code == 1, out
    assert [line for line in out.splitlines() if line.startswith("::")] == [
        "::error file=src/a%2Cb%25.py,line=3,title=cudaguard::"
        "a,b%25.py:3 asked for CUDA: cuInit by ctypes/cffi"], out
    summary = harness.read(case.path("summary"))
    assert re.match(r"### cudaguard: FAIL: 1 line asked for CUDA, in 2 of \d+ processes\n", summary)
    assert summary.endswith("| line of code | asked | processes | allowed |\n|---|---|---|---|\n"
                            "| `a,b%.py:3` | `cuInit by ctypes/cffi` | 2 | no |\n"
                            "| `a,b%.py:4` | `cuInit by ctypes/cffi` | 2 | yes |\n\n"), summary


@pytest.mark.parametrize(("command", "annotation", "words"), [
    ("true", [], "no CUDA use"),
    ("exit 3", ["::error title=cudaguard::FAIL: no CUDA use "], "no CUDA use"),
    # The line's file is outside of the checkout.
    (ATTEMPT, ["::error title=cudaguard::<string>:1 asked for CUDA: cuInit by ctypes/cffi"],
     "FAIL: 1 line asked for CUDA")])
def test_annotation_without_a_file_of_the_checkout(case, command, annotation, words):
    _, out, _, _ = case.run_action(command=command)
    found = [line for line in out.splitlines() if line.startswith("::")]
    assert [line[:len(one)] for line, one in zip(found, annotation)] == annotation, out
    assert len(found) == len(annotation), out
    assert words in harness.read(case.path("summary"))


def test_verify_that_cannot_run_makes_no_annotation(case):
    _, out, _, action_outputs = case.run_action(command="true", deny="everything")
    assert action_outputs == {"result": "error"}, out
    assert "::" not in out and not os.path.exists(case.path("summary")), out


@pytest.mark.parametrize(("rows", "code", "reason"), [
    # The newest row of this machine counts, which is the last one.
    (["{none}  cudaguard-7.0.0-linux-{machine}.tar.gz", "{sum}  {file}",
      "{none}  cudaguard-7.8.9.tar.gz"], 0, ""),
    ([], 1, "names no release for "),
    (["{sum}  cudaguard-7.8.9-linux-other.tar.gz"], 1, "names no release for "),
    (["{sum}  cudaguard-1.0.0-linux-{machine}.tar.gz"], 1, "cannot fetch cudaguard-1.0.0-linux-"),
    (["{none}  {file}"], 2, "is not the file with this checksum")])
def test_release_is_unpacked_only_with_its_checksum(tmp_path, rows, code, reason):
    """Only a wrong checksum is an error of the action. Otherwise it builds cudaguard."""
    if not shutil.which("curl"):
        pytest.skip("curl is not installed")
    machine = os.uname().machine
    tree, releases = tmp_path / "tree" / "cudaguard", tmp_path / "releases" / "v7.8.9"
    for directory in (tree / "bin", releases):
        directory.mkdir(parents=True)
    (tree / "bin" / "cudaguard").write_text("the command")
    file = "cudaguard-7.8.9-linux-%s.tar.gz" % machine
    subprocess.run(["tar", "-czf", releases / file, "-C", tree.parent, "cudaguard"], check=True)
    words = {"sum": hashlib.sha256((releases / file).read_bytes()).hexdigest(), "file": file,
             "none": "0" * 64, "machine": machine}
    (tmp_path / "sums").write_text("".join(row.format(**words) + "\n" for row in ["#", *rows]))
    done = subprocess.run(
        [places.script("github", "fetch-release"), tmp_path / "target", tmp_path / "sums"],
        env={**os.environ, "RELEASES": "file://%s" % releases.parent}, capture_output=True,
        text=True, check=False)
    assert done.returncode == code and reason in done.stderr, done.stderr
    assert (tmp_path / "target" / "bin" / "cudaguard").exists() == (code == 0)


@pytest.mark.parametrize(("command", "rc", "word"),
                         [("python3 -c 'import json'", 0, "clean"), (ATTEMPT, 1, "asked"),
                          (ATTEMPT + "; exit 3", 1, "asked"), ("exit 3", 2, "failed"),
                          (NVML, 0, "clean"),
                          ("true\nif [ -n \"$BASH\" ]; then exit 4; fi", 2, "failed")])
def test_result_follows_verifys_verdict(case, command, rc, word):
    code, out, calls, action_outputs = case.run_action(command=command)
    assert (code, action_outputs, calls) == (rc, {"result": word}, []), str(out)
    assert ("FAIL" if rc else "PASS") in out
