# SPDX-License-Identifier: Apache-2.0
"""The settings of docs/integrations/ci.md for the runners of GitLab and GitHub are valid by the
published schemas, and their commands work as a runner runs them."""

import os
import re
import shlex
import shutil
import subprocess
import xml.etree.ElementTree

import pytest

from support import harness, launcher, places

ASK = " ".join(places.OPEN)
ATTEMPT = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)\n"


class Case(places.Case):
    def setUp(self):
        super().setUp()
        self.need_yaml()

    def valid(self, schema, text):
        done = subprocess.run(
            [self.need_fetched("platforms") + "/check-jsonschema", "--builtin-schema",
             "vendor." + schema, self.make("file.yml", text, 0o644)],
            capture_output=True, text=True, check=False)
        self.assertIn(done.returncode, (0, 1), done)
        return done.returncode == 0

    def no_device(self, result):
        result.assert_untouched(self)
        self.assertEqual((result.rc, result.answers.get("cuInit")), (0, "100"), result)


class GitLab(Case):
    @pytest.mark.full
    def test_gitlab_settings_are_valid(self):
        (text,) = places.blocks("yaml", "ci", "GitLab")
        self.assertTrue(self.valid("gitlab-ci", text))
        self.assertFalse(self.valid("gitlab-ci", text.replace("artifacts:", "artefacts:")))
        self.assertFalse(self.valid("gitlab-ci", text.replace("script:", "scripts:")))

    def settings(self):
        try:
            import tomllib
        except ImportError:
            harness.skip(self, "Python's tomllib is there from 3.11 on")
        (text,) = places.blocks("toml", "ci", "GitLab")
        (runner,) = tomllib.loads(text)["runners"]
        return runner

    def job(self, shell, before, *script, tree="tree"):
        """Runs a job's commands as the runner does, in one shell with -e after the commands that
        precede them."""
        mounts = ["--tmpfs", "/opt"]
        for volume in self.settings()["docker"]["volumes"]:
            place, inside, mode = volume.split(":")
            self.assertEqual((place, mode), (inside, "ro"))
            if tree:
                mounts += ["--ro-bind", self.path(tree), inside]
        lines = ["set -o errexit", before, *script]
        return places.others_only(
            harness.run([*shell, "-c", "\n".join(lines)], guard=False, bwrap=mounts))

    def test_gitlab_job_is_guarded(self):
        places.usr_local(self.path("tree"))
        before = self.settings()["pre_build_script"]
        for shell in (["bash", "-o", "pipefail"], ["sh"]):
            self.job(shell, "", ASK).assert_reached(self)
            self.no_device(self.job(shell, before, ASK))
            # The first program is a child of the job's command, and the second has the policy
            # lifted.
            self.no_device(self.job(shell, before, "sh -c '%s; true'" % ASK))
            lifted = "/opt/cudaguard/bin/cudaguard run --policy OFF -- "
            self.job(shell, before, lifted + ASK).assert_reached(self)

    def test_unguarded_gitlab_job_fails(self):
        before = self.settings()["pre_build_script"]
        for shell in (["bash", "-o", "pipefail"], ["sh"]):
            result = self.job(shell, before, ASK, tree=None)
            self.assertNotEqual(result.rc, 0, result)
            self.assertEqual((result.out, result.fake_calls), ("", []), result)

    def test_gitlab_job_proves_that_an_import_asks_for_nothing(self):
        """The job's line of verify, with a package that does not ask and with one that does."""
        (text,) = places.blocks("yaml", "ci", "GitLab")
        job = places.yaml.safe_load(text)["test"]
        (line,) = [line for line in job["script"] if "--junit" in line]
        words = shlex.split(line)
        self.assertEqual(words[0], "cudaguard")
        words[0] = launcher.LAUNCHER
        for source, code, failures in (("", 0, "0"), (ATTEMPT, 1, "1")):
            self.make("mypackage.py", source, 0o644)
            result = harness.run(words, guard=False, trace=False, cwd=self.directory)
            self.assertEqual(result.rc, code, result)
            root = xml.etree.ElementTree.parse(self.path("cuda.xml")).getroot()
            self.assertEqual(root.find(".//testsuite").get("failures"), failures)
            os.remove(self.path("cuda.xml"))


@pytest.mark.parametrize("tool", ["make", "ctest", "nox"])
@pytest.mark.parametrize("asks", [False, True])
def test_line_of_a_build_tool_fails_if_a_test_asks(tmp_path, tool, asks):
    """The lines of "make, CTest, nox, Bazel", for the tools that are here."""
    path = os.path.join(harness.DEPS, "frameworks/runners/bin") + ":" + os.environ["PATH"]
    if not shutil.which(tool, path=path):
        harness.skip(harness.Case(), "not installed: " + tool)
    (text,) = [text for text in places.blocks("text", "ci") if "make check" in text]
    (line,) = [line for line in text.splitlines() if tool in line.split()]
    words = [launcher.LAUNCHER, *shlex.split(line)[1:]]
    (tmp_path / "test.py").write_text(ATTEMPT if asks else "")
    (tmp_path / "build").mkdir()
    (tmp_path / "Makefile").write_text("check:\n\tpython3 test.py\n")
    (tmp_path / "build" / "CTestTestfile.cmake").write_text(
        'add_test(one python3 "%s")\n' % (tmp_path / "test.py"))
    (tmp_path / "noxfile.py").write_text(
        'import nox\n\n\n@nox.session(venv_backend="none")\ndef one(session):\n'
        '    session.run("python3", "test.py")\n')
    result = harness.run(words, guard=False, trace=False, cwd=str(tmp_path), env={"PATH": path})
    assert result.rc == (1 if asks else 0), str(result)
    assert ("FAIL: 1 line asked" in result.err) == asks, str(result)


class GitHub(Case):
    def setUp(self):
        super().setUp()
        (self.text,) = places.blocks("yaml", "ci", "GitHub")

    @pytest.mark.full
    def test_github_settings_are_valid(self):
        self.assertTrue(self.valid("github-workflows", self.text))
        self.assertFalse(self.valid("github-workflows", self.text.replace("runs-on", "run-on")))
        action = harness.read("action.yml")
        self.assertTrue(self.valid("github-actions", action))
        for name in ("ci", "lab"):
            workflow = harness.read(".github", "workflows", name + ".yml")
            self.assertTrue(self.valid("github-workflows", workflow), name)
        self.assertFalse(self.valid("github-actions", action.replace("using:", "use:")))

    def step(self, shell, script):
        """Runs a step as the runner does: PATH finds the shell's first word, and {0} is a file."""
        path = self.make("step.sh", script, 0o644)
        tree = os.path.dirname(launcher.LAUNCHER)
        return harness.run(shell.format(path).split(), guard=False,
                           env={"PATH": tree + ":" + os.environ["PATH"]})

    def test_github_step_is_guarded(self):
        (job,) = places.yaml.safe_load(self.text)["jobs"].values()
        shell = job["defaults"]["run"]["shell"]
        plain = re.sub(r"^cudaguard run -- ", "", shell)
        self.assertNotEqual(shell, plain)
        self.step(plain, ASK).assert_reached(self)
        self.no_device(self.step(shell, ASK))
        self.no_device(self.step(shell, "true | cat\nsh -c '%s; true'\n" % ASK))
        for one in (plain, shell):  # as in GitHub's own bash, the first failure ends the step
            self.assertEqual(self.step(one, "(exit 3) | true\necho not here\n").rc, 3)
