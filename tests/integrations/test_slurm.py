# SPDX-License-Identifier: Apache-2.0
"""A real Slurm reads the TaskProlog and starts real tasks."""

import os
import re
import shutil
import tempfile

import pytest

from support import fixtures, harness, machine, messages, places, slurm_node
from support.places import launcher

PROLOG = places.script("slurm", "task-prolog")
ENTRY_POINT = " ".join(places.OPEN)
SHELLS = ([], ["dash"], ["bash"], ["bash", "--posix"], ["busybox", "sh"])
SHOWN = ("LD_PRELOAD", "CUDAGUARD_POLICY", "_CUDAGUARD_TASK_PROLOG", "CUDAGUARD_ROOT",
         "CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS", "MPIR_CVAR_ENABLE_GPU")


def chosen(shown):
    return {key: shown[key] for key in SHOWN if key in shown}


class Slurm(places.Case):
    node = None

    def edit_prolog(self, text):
        """Sets the cluster's TaskProlog to this text until the test ends."""
        path = self.make(os.path.join(self.node.directory, "task-prolog"), text)
        self.addCleanup(shutil.copy, PROLOG, path)

    def task(self, *words, env=None):
        """Runs a task. The result has its output, its variables if it printed them, and the fake
        driver's calls."""
        env = self.node.outer(CG_FAKE_LOG=self.fake_log(), **(env or {}))
        result = self.unguarded(*words, env=env, cwd=self.directory)
        # srun prints these while the node is busy.
        result.stderr = re.sub(r"(?m)^srun: job \d+ .*\n", "", result.stderr)
        if words[0] == "sbatch" and result.returncode == 0:
            self.until(lambda: "ended=" in harness.read(self.path("job.out")), "the end of the job")
            result.stdout = harness.read(self.path("job.out"))
        result.shown = dict(re.findall(r"^(\w+)=(.*)$", result.stdout, re.MULTILINE))
        result.answer = re.findall(r"^cuInit=(\d+)", result.stdout, re.MULTILINE)
        result.calls = self.logged()
        return result

    def job(self, name, *lines):
        return self.make(name, "#!/bin/sh\n%s\necho ended=$?\n" % "\n".join(lines))

    def batch(self, *lines, options=(), env=None):
        """Does the same for a job script."""
        self.make("job.out", "", 0o644)
        return self.task("sbatch", "-o", self.path("job.out"), *options, self.job("job", *lines),
                         env=env)

    def inner(self, job, options=""):
        """Returns the line of a job script that submits another job, whose output the test reads.
        """
        return "sbatch -o %s %s %s >%s 2>&1; exit" % (self.path("job.out"), options, job,
                                                  self.path("submitted"))

    def is_guarded(self, result, times=1):
        self.assertEqual((result.returncode, result.answer, result.calls), (0, ["100"] * times, []),
                         (result, self.node.why()))

    def is_free(self, result, times=1):
        self.assertEqual((result.returncode, result.answer), (0, ["0"] * times), result)
        self.assertGreaterEqual(result.calls.count("cuInit"), times)


@pytest.fixture(name="node", scope="module")
def make_node():
    """The node is started once for all tests."""
    machine.need("sandbox")
    harness.Case().need_daemon("slurm")
    with tempfile.TemporaryDirectory(prefix="cg-slurm-") as directory:
        mounts = places.usr_local(os.path.join(directory, "tree"))
        prolog = shutil.copy(PROLOG, os.path.join(directory, "task-prolog"))
        node = slurm_node.Node(directory, prolog, mounts)
        try:
            assert node.wait() == ""
            yield node
        finally:
            node.stop()


@pytest.fixture(name="slurm")
def make_slurm(node):
    case = Slurm()
    case.node = node
    yield from harness.lent(case)


def test_task_without_gpus_is_guarded(slurm):
    """A policy that the user sets lifts the guard, which is also the control."""
    result = slurm.task("srun", *places.OPEN)
    slurm.is_guarded(result)
    assert len(messages.find(result.stderr, "no_cuda")) == 1, str(result)
    assert messages.without(result.stderr, "no_cuda") == "", str(result)
    slurm.is_guarded(slurm.batch(ENTRY_POINT, "srun " + ENTRY_POINT), times=2)
    slurm.is_guarded(slurm.task("srun", "--ntasks=2", "--overcommit", *places.OPEN), times=2)
    lifted = {"CUDAGUARD_POLICY": "OFF"}
    slurm.is_free(slurm.task("srun", *places.OPEN, env=lifted))
    slurm.is_free(slurm.batch(ENTRY_POINT, "srun " + ENTRY_POINT, env=lifted), times=2)


def test_launcher_lifts_the_policy_for_one_program(slurm):
    """Inside the task, the launcher lifts the policy and the presets, but the variable leaves
    the presets."""
    result = slurm.batch("/usr/local/bin/cudaguard run --policy OFF -- env",
                         "/usr/local/bin/cudaguard run --policy OFF -- " + ENTRY_POINT, ENTRY_POINT)
    assert (result.returncode, result.answer) == (0, ["0", "100"]), str(result)
    assert [key for key in launcher.PRESETS if key in result.shown] == [], str(result)
    assert "cuInit" in result.calls
    # The fake driver of this test does not read the variable, but NVIDIA's does.
    result = slurm.batch("CUDAGUARD_POLICY=OFF " + ENTRY_POINT, "CUDAGUARD_POLICY=OFF env")
    slurm.is_free(result)
    assert result.shown.get("CUDA_VISIBLE_DEVICES") == ""


@pytest.mark.parametrize(("way", "visible"), [
    (["--gres=gpu:1"], "0"), (["--gpus=2"], "0,1"), (["-n1", "--gpus-per-task=1"], "0"),
    (["--gres=shard:1"], "0")])
def test_task_with_gpus_is_unchanged(slurm, way, visible):
    if way == ["--gres=shard:1"] and slurm_node.version(slurm.node.outer()) < (22, 5):
        pytest.skip("Slurm has shards from 22.05 on")
    result = slurm.task("srun", *way, "sh", "-c", "env; exec " + ENTRY_POINT)
    slurm.is_free(result)
    assert chosen(result.shown) == {"CUDA_VISIBLE_DEVICES": visible}
    step = "srun %s %s" % (" ".join(way), ENTRY_POINT)
    slurm.is_free(slurm.batch(ENTRY_POINT, step, options=way), times=2)


def test_step_without_gpus_is_guarded(slurm):
    """A step without GPUs inherits SLURM_JOB_GPUS from its job, and the script ignores that
    variable."""
    result = slurm.batch("srun --gres=none env", "srun --gres=none " + ENTRY_POINT,
                         options=["--gres=gpu:2"])
    assert result.shown.get("SLURM_JOB_GPUS") == "0,1", str(result)
    slurm.is_guarded(result)


@pytest.mark.parametrize("env", [
    {}, {"JAX_PLATFORMS": "cuda", "LD_PRELOAD": "libm.so.6"}, {"MPIR_CVAR_ENABLE_GPU": "1"}])
def test_inherited_variables_do_not_decide(slurm, env):
    ask = slurm.job("ask", "env", ENTRY_POINT)
    slurm.is_guarded(slurm.batch(slurm.inner(ask), options=["--gres=gpu:1"]))
    result = slurm.batch(slurm.inner(ask, "--gres=gpu:1"), env=env)
    slurm.is_free(result)
    assert chosen(result.shown) == {"CUDA_VISIBLE_DEVICES": "0", **env}


def test_chain_of_jobs_does_not_decide(slurm):
    """The chain has three jobs: without GPUs, without, with."""
    ask = slurm.job("ask", "env", ENTRY_POINT)
    middle = slurm.job("middle", slurm.inner(ask, "--gres=gpu:1"))
    result = slurm.batch("sbatch %s >/dev/null; exit" % middle)
    slurm.is_free(result)
    assert chosen(result.shown) == {"CUDA_VISIBLE_DEVICES": "0"}


def test_only_listed_partitions_are_guarded(slurm):
    """Tasks of other partitions are not guarded, even if a guarded job submits them."""
    text = places.read("slurm", "task-prolog")
    slurm.is_guarded(slurm.task("srun", "-p", "all", *places.OPEN))  # control without a list
    slurm.edit_prolog(text.replace("\npartitions=\n", "\npartitions='debug cpu'\n"))
    slurm.is_guarded(slurm.task("srun", "-p", "cpu", *places.OPEN))
    slurm.is_guarded(slurm.batch("srun " + ENTRY_POINT, options=["-p", "cpu"]))
    slurm.is_free(slurm.task("srun", "-p", "all", *places.OPEN))
    slurm.is_free(slurm.task("srun", "-p", "cpu", "--gres=gpu:1", *places.OPEN))
    ask = slurm.job("ask", ENTRY_POINT)
    slurm.is_free(slurm.batch(slurm.inner(ask, "-p all"), options=["-p", "cpu"]))
    slurm.is_guarded(slurm.batch(slurm.inner(ask, "-p cpu"), options=["-p", "all"]))


def test_sruns_option_guards_one_step(slurm):
    """srun's own option tests the script before slurm.conf names it."""
    slurm.edit_prolog("#!/bin/sh\n")
    slurm.is_free(slurm.task("srun", *places.OPEN))
    (text,) = [text for text in places.blocks("text", "slurm-and-systemd", "Slurm")
               if "--task-prolog" in text]
    text = text.replace("/usr/local/share/cudaguard/slurm/task-prolog", PROLOG)
    done = slurm.task("sh", "-c", text)
    assert (done.returncode, done.stdout, done.calls) == (0, "100\n", []), str(done)
    assert messages.find(done.stderr, "no_cuda"), str(done)
    done = slurm.task("sh", "-c", text.replace("srun ", "srun --gres=gpu:1 "))
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", ""), str(done)


@pytest.mark.parametrize("env", [
    {}, {"LD_PRELOAD": "libm.so.6 libdl.so.2"}, {"JAX_PLATFORMS": "cuda"},
    {"LD_PRELOAD": "DIRECTORY/it's_a$b.so"}])
def test_variables_are_those_that_run_sets(slurm, env):
    """The variables are exactly those that `run` sets, except the first process's id, which the
    script cannot know."""
    shutil.copy(os.path.realpath(harness.NULL_DRIVER_NVML), slurm.path("it's_a$b.so"))
    env = {key: value.replace("DIRECTORY", slurm.directory) for key, value in env.items()}
    wanted = slurm.start("run", "env", env=launcher.environment(**env),
                         launcher=os.path.join(slurm.node.directory, "tree", "bin", "cudaguard"))
    wanted = dict(re.findall(r"^(\w+)=(.*)$", wanted.stdout, re.MULTILINE))
    shown = slurm.task("srun", "env", env=env).shown
    names = set(SHOWN) - {"_CUDAGUARD_TASK_PROLOG", "CUDAGUARD_ROOT"}
    slurm.assertEqual(
        {key: shown.get(key) for key in names},
        {key: value and value.replace(slurm.node.directory + "/tree", "/usr/local")
         for key, value in ((key, wanted.get(key)) for key in names)})
    assert "CUDAGUARD_ROOT" not in shown


def test_bad_value_prevents_the_task(slurm):
    done = slurm.task("srun", "sh", "-c", "echo ran", env={"CUDAGUARD_POLICY": "CPU"})
    assert done.returncode == 125, str(done)
    slurm.assertRegex(done.stdout, r'\Acudaguard TaskProlog: cudaguard: CUDAGUARD_POLICY="CPU" is '
                      r"not accepted [^\n]*\n\Z")
    done = slurm.task("srun", "sh", "-c", "echo ran; exit 7")
    assert (done.returncode, done.stdout) == (7, "ran\n"), str(done)


class Script(places.Case):
    """These tests run the script without Slurm."""

    def prolog(self, shells=SHELLS, cudaguard=launcher.LAUNCHER, **env):
        """What the script prints, the same in each shell that may be /bin/sh."""
        text = places.read("slurm", "task-prolog")
        self.assertEqual(text.count("\ncudaguard=/usr/local/bin/cudaguard\n"), 1)
        path = self.make("prolog", text.replace("/usr/local/bin/cudaguard", cudaguard))
        # Old versions of Slurm start it without stdin and stderr.
        found = [self.unguarded("sh", "-c", 'exec "$@" <&- 2>&-', "sh", *shell, path,
                                env=launcher.environment(**env))
                 for shell in shells if not shell or shutil.which(shell[0])]
        self.assertEqual({(done.returncode, done.stdout) for done in found},
                         {(found[0].returncode, found[0].stdout)})
        return found[0]

    def test_task_whose_user_wants_a_healthy_driver_starts_without_cuda(self):
        for word in ("IF_HEALTHY", "if-healthy"):
            done = self.prolog(CUDAGUARD_POLICY=word)
            self.assertEqual((done.returncode, done.stdout.splitlines()[:1]),
                             (0, ["export CUDAGUARD_POLICY=FORCE_CPU"]), done)

    def test_missing_launcher_is_reported(self):
        done = self.prolog(SHELLS[:1], "/nonexistent/cudaguard")
        self.assertEqual(done.returncode, 125, done)
        self.assertRegex(done.stdout, r"\Aprint cudaguard TaskProlog: .*/nonexistent/cudaguard: "
                         r"not found\n\Z")

    def test_lifting_removes_only_the_scripts_own_values(self):
        """The script removes only what it has set. Entries of other products stay."""
        guard = "/usr/local/lib/libcudaguard.so"
        ours = {"SLURM_GPUS_ON_NODE": "1", "_CUDAGUARD_TASK_PROLOG": "JAX_PLATFORMS",
                "JAX_PLATFORMS": "cpu"}
        # The launcher treats these entries as its own (shim/launcher/preload/preload.cpp).
        own = [guard, "libcudaguard.so"] + ["/a/lib/cudaguard/" + name for name in (
            "libcuda.so.1", "libnvidia-ml.so.1", "libcudaguard-driver.so", "libcudaguard-nvml.so")]
        others = ["/a/libcuda.so.1", "/a/libnvidia-ml.so.1", "libcuda.so.1", "/a/cudaguard/x.so",
                  "/a/cudaguard/b/libcuda.so.1", "/a/libcudaguard.so.1", "/libcudaguard-1/x.so"]
        for before, after in ((guard, None), (guard + ":x.so", "x.so"), ("x.so:" + guard, "x.so"),
                              ("x.so  %s y.so" % guard, "x.so:y.so"), ("", None),
                              ("x.so", "x.so"), (":".join(own), None),
                              (":".join(own + others), ":".join(others))):
            done = self.prolog(LD_PRELOAD=before, **ours)
            wanted = "unset LD_PRELOAD" if after is None else "export LD_PRELOAD=" + after
            self.assertEqual(done.stdout.splitlines(),
                             ["unset JAX_PLATFORMS", "unset _CUDAGUARD_TASK_PROLOG", wanted])
            kept = self.start("run", "--print", env=launcher.environment(LD_PRELOAD=before)).stdout
            self.assertEqual(kept.splitlines()[-1], "export LD_PRELOAD=%s" % ":".join(
                [harness.GUARD] + ([after] if after else [])))


make_script_case = fixtures.lent("script_case", Script)


@pytest.mark.parametrize(("env", "has"), [({}, False), ({"SLURM_GPUS_ON_NODE": "0"}, False),
                                          ({"SLURM_GPUS_ON_NODE": "2"}, True),
                                          ({"CUDA_VISIBLE_DEVICES": "0"}, True),
                                          ({"CUDA_VISIBLE_DEVICES": "GPU-12"}, True),
                                          ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, False),
                                          ({"CUDA_VISIBLE_DEVICES": "-1"}, False),
                                          ({"CUDA_VISIBLE_DEVICES": ""}, False),
                                          ({"SLURM_JOB_GPUS": "0", "SLURM_STEP_GPUS": "0"}, False)])
def test_gpus_are_recognised_by_the_variables(script_case, env, has):
    done = script_case.prolog(**env)
    assert done.returncode == 0, str(done)
    assert ("export LD_PRELOAD=%s\n" % harness.GUARD not in done.stdout) == has
    assert (done.stdout == "") == has
