# SPDX-License-Identifier: Apache-2.0
"""A Jupyter from PyPI installs and starts the kernel "Python 3 (CPU only)"."""

import json
import os
import re
import shlex
import subprocess

import pytest

from support import fixtures, harness, messages, places
from support.places import launcher

PYTHON = os.path.join(harness.DEPS, "frameworks", "jupyter", "bin", "python")
INSTALL = places.script("jupyter", "install-kernel")
NOTEBOOK = os.path.join(places.HERE, "programs", "notebook.py")
ALONE = "options of cudaguard run alone"


class Jupyter(places.Case):
    def setUp(self):
        super().setUp()
        self.need_fetched("jupyter")
        self.env = {"JUPYTER_DATA_DIR": self.path("data"), "JUPYTER_PATH": self.path("data"),
                    "JUPYTER_RUNTIME_DIR": self.path("runtime"), "HOME": self.directory,
                    "IPYTHONDIR": self.path("ipython"), "PYTHONWARNINGS": "ignore"}

    def install(self, *words, python=PYTHON, script=INSTALL, **more):
        return subprocess.run([python, script, *words], capture_output=True, text=True,
                              env=launcher.environment(**{**self.env, **more}), timeout=120,
                              check=False)

    def spec(self, name="cudaguard-cpu", directory="data"):
        return json.loads(harness.read(self.path(directory, "kernels", name, "kernel.json")))

    def notebook(self, kernel, *launch, **more):
        # The kernel does not run under strace, because an interrupt goes to another thread while
        # strace holds the main thread.
        result = harness.run([*launch, PYTHON, NOTEBOOK, kernel], guard=False, trace=False,
                             env={**self.env, **more})
        self.assertEqual((result.rc, result.answers.get("failed")), (0, None), result)
        return result

    def works(self, result):
        """Fails unless the kernel runs in the process that Jupyter started, and can be interrupted
        and shut down."""
        self.assertEqual(result.answers["pid"], result.answers["kernel"], result)
        self.assertEqual([result.answers[key] for key in ("interrupt", "after", "alive")],
                         ["KeyboardInterrupt", "42", "False"], result)

    def test_installed_kernel_is_guarded(self):
        done = self.install("--user", "--cudaguard", launcher.LAUNCHER)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        self.assertEqual(done.stdout, '"Python 3 (CPU only)": %s\n' %
                         self.path("data", "kernels", "cudaguard-cpu"))
        unguarded = self.notebook("python3")
        unguarded.assert_reached(self)
        self.works(unguarded)
        self.assertEqual([unguarded.answers[key] for key in ("cuda", "child", "drivers")],
                         ["0", "0", "['%s/libcuda.so.1']" % harness.FAKE_DRIVER], unguarded)
        # A variable of the notebook server does not lift the policy.
        for more in harness.sample(({"CUDAGUARD_POLICY": "OFF"}, {}), 1):
            result = self.notebook("cudaguard-cpu", **more)
            self.assertEqual(result.fake_calls, [], result)
            self.works(result)
            self.assertEqual(result.answers["name"], "Python_3_(CPU_only)", result)
            self.assertEqual([result.answers[key] for key in ("cuda", "child", "drivers")],
                             ["100", "100", "['%s']" % harness.NULL_DRIVER_CUDA], result)

    def test_no_temporary_file_is_left(self):
        """ipykernel leaves a temporary directory, with the kernel's files in it if it fails."""
        temporary = self.path("temporary")
        os.mkdir(temporary)
        for words, code in ((["--user"], 0), (["--prefix", "/proc/1/x"], 1)):
            done = self.install("--cudaguard", launcher.LAUNCHER, *words, TMPDIR=temporary)
            self.assertEqual((done.returncode, os.listdir(temporary)), (code, []), done)

    def test_spec_is_the_ordinary_kernels_with_the_launcher(self):
        """It has the given options and names."""
        self.assertEqual(self.install("--user", "--cudaguard", launcher.LAUNCHER).returncode, 0)
        done = subprocess.run([PYTHON, "-m", "ipykernel", "install", "--user", "--name", "plain"],
                              capture_output=True, text=True, check=False,
                              env=launcher.environment(**self.env))
        self.assertEqual(done.returncode, 0, done)
        plain, ours = self.spec("plain"), self.spec()
        self.assertEqual(ours["argv"], [launcher.LAUNCHER, "run", "--cpu", "--"] + plain["argv"])
        plain.update(argv=ours["argv"], display_name="Python 3 (CPU only)")
        self.assertEqual(ours, plain)
        self.assertEqual(self.install("--prefix", self.path("p"), "--name", "gpu2",
                                      "--display-name", "Python 3 (GPU 2)", "--cudaguard",
                                      launcher.LAUNCHER, "--", "--gpus", "2").returncode, 0)
        spec = self.spec("gpu2", os.path.join("p", "share", "jupyter"))
        self.assertEqual((spec["display_name"], spec["argv"][:5]),
                         ("Python 3 (GPU 2)", [launcher.LAUNCHER, "run", "--gpus", "2", "--"]))

    @pytest.mark.full
    def test_cpu_is_added_unless_a_policy_is_given(self):
        """Otherwise, a policy in the server's environment would lift it."""
        for given, wanted in (
                ("--strict", "--cpu --strict"), ("--report /tmp/r-%p", "--cpu --report /tmp/r-%p"),
                ("--no-presets --cpu", "--no-presets --cpu"), ("--gpus=2", "--gpus=2"),
                ("--policy VALIDATE", "--policy VALIDATE"), ("--observe", "--observe"),
                ("--if-healthy", "--if-healthy"), ("--children=gpu", "--children=gpu")):
            done = self.install("--user", "--cudaguard", launcher.LAUNCHER, "--display-name", "P",
                                "--", *given.split())
            self.assertEqual((done.returncode, done.stderr), (0, ""), done)
            words = self.spec()["argv"]
            self.assertEqual(words[:words.index("--")], [launcher.LAUNCHER, "run", *wanted.split()])
        self.install("--user", "--cudaguard", launcher.LAUNCHER, "--", "--log", "off")
        result = self.notebook("cudaguard-cpu", CUDAGUARD_POLICY="OFF")
        self.assertEqual((result.answers["cuda"], result.fake_calls), ("100", []), result)

    @pytest.mark.full
    def test_script_finds_the_launcher_of_its_own_tree(self):
        """The script finds the launcher in its own tree or otherwise on PATH."""
        command = self.installed("tree")
        script = self.make("tree/share/cudaguard/jupyter/install-kernel",
                           places.read("jupyter", "install-kernel"))
        self.assertEqual(self.install("--user", script=script).returncode, 0)
        self.assertEqual(self.spec()["argv"][0], command)
        path = os.path.dirname(launcher.LAUNCHER) + ":" + os.environ["PATH"]
        self.assertEqual(self.install("--user", PATH=path).returncode, 0)
        self.assertEqual(self.spec()["argv"][0], launcher.LAUNCHER)


make_case = fixtures.lent("case", Jupyter)


@pytest.mark.full
@pytest.mark.parametrize(("changes", "key", "remedy", "change"),
                         [({}, "argv", "cudaguard run --policy OFF",
                           lambda spec: spec["argv"].__setitem__(slice(2, 3), ["--policy", "OFF"])),
                          ({"LD_PRELOAD": harness.GUARD}, "env", "CUDAGUARD_POLICY=OFF",
                           lambda spec: spec.update(env={"CUDAGUARD_POLICY": "OFF"}))])
def test_message_names_the_cell_and_its_advice_works(case, changes, key, remedy, change):
    """The message's advice about kernel.json lifts the policy."""
    assert case.install("--user", "--cudaguard", launcher.LAUNCHER).returncode == 0
    path = case.path("data", "kernels", "cudaguard-cpu", "kernel.json")
    spec = case.spec()
    if changes:  # the kernel then starts without the launcher
        spec["argv"] = spec["argv"][spec["argv"].index("--") + 1:]
        case.make(path, json.dumps(spec))
    result = case.notebook("cudaguard-cpu", **changes)
    assert (result.answers["cuda"], result.fake_calls) == ("100", []), str(result)
    assert messages.find(result.err, "no_cuda", cause="FORCE_CPU",
                         asked_by="notebook cell, line 1 through ctypes/cffi",
                         remedy=messages.text("remedy_kernel", remedy=remedy, key=key)), str(result)
    change(spec)
    case.make(path, json.dumps(spec))
    assert case.notebook("cudaguard-cpu", **changes).answers["cuda"] == "0"


def test_guarded_server_has_one_kernel_with_the_gpu(case):
    """The two lines of the page. The program that starts the kernels is in place of jupyter lab."""
    (block,) = [text for text in places.blocks("text", "python", "Notebooks") if "jupyter lab" in text]
    server, kernel = (shlex.split(line) for line in block.splitlines())
    assert kernel[:4] == ["python", "-m", "cudaguard.install_kernel", "--sys-prefix"]
    done = case.install("--user", "--cudaguard", launcher.LAUNCHER, *kernel[4:])
    assert (done.returncode, done.stderr) == (0, ""), str(done)
    start = [launcher.LAUNCHER if word == "cudaguard" else word for word in server[:-2]]
    result = case.notebook("python3", *start)
    assert (result.answers["cuda"], result.answers["child"]) == ("100", "100"), str(result)
    result = case.notebook("gpu", *start)
    assert (result.answers["cuda"], result.answers["child"]) == ("0", "0"), str(result)
    assert messages.find(result.err, "no_cuda") == [], str(result)


@pytest.mark.parametrize(("words", "more", "meaning"), [
    (["true"], {}, "unrecognized arguments: true"), (["--na", "x"], {}, "arguments: --na x"),
    (["--name"], {}, "--name"), (["--sys-prefix"], {}, "not allowed with"),
    (["--", "touch", "MARK"], {}, ALONE), (["--", "--help"], {}, ALONE),
    (["--", "--gpus", "0", "--", "touch", "MARK"], {}, ALONE),
    (["--", "--strict", "--print"], {}, "--print"),
    (["--", "--bogus"], {}, "nothing is installed"),
    (["--", "--gpus", "2,2"], {}, "nothing is installed"),
    (["--", "--gpus", "2"], {}, "--display-name is needed"),
    (["--cudaguard", "COPY"], {}, "nothing is installed"),
    (["--cudaguard", "/nonexistent"], {}, "/nonexistent: No such file"),
    ([], {"PATH": "/usr/bin:/bin"}, "not on PATH"),
    (["--cudaguard", launcher.LAUNCHER], {"JUPYTER_DATA_DIR": "/proc/1/x"}, "/proc/1/x"),
    (["--name", "a b"], {}, "Invalid kernel name")])
def test_wrong_use_prints_one_line_and_installs_nothing(case, words, more, meaning):
    mark = case.path("asked")
    replaced = {"MARK": mark, "COPY": case.installed("with space")}
    given = [] if more or "--cudaguard" in words else ["--cudaguard", launcher.LAUNCHER]
    done = case.install("--user", *given, *(replaced.get(word, word) for word in words), **more)
    assert (done.returncode, done.stdout) == (1, ""), str(done)
    assert re.search(r"\A(cudaguard: [^\n]*\n)?install-kernel: [^\n]*\n\Z",
                     done.stderr), done.stderr
    assert meaning in done.stderr.splitlines()[-1]
    assert not (os.path.exists(case.path("data")) or os.path.exists(mark)), str(done)


def test_python_without_ipykernel_is_refused(case):
    done = case.install("--user", python="/usr/bin/python3", PYTHONNOUSERSITE="1")
    assert done.returncode == 1, str(done)
    assert "has no ipykernel; run this file with the Python of the kernel" in done.stderr
