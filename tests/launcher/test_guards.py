# SPDX-License-Identifier: Apache-2.0
"""The programs under `run` are guarded, each with its control: the same program unguarded."""

import os

import pytest

from support import box, fixtures, harness, launcher

RUN = [launcher.LAUNCHER, "run"]
ASK = "import ctypes; print('cuInit=%d' % ctypes.CDLL('libcuda.so.1').cuInit(0))"


class Cpu(launcher.Case):

    def preload_of(self, name, world, *options):
        """LD_PRELOAD as a program has it that is linked to what `name` is linked to."""
        done = harness.run(RUN + list(options) + ["--print", harness.program(name)], world=world,
                           guard=False, trace=False)
        self.assertEqual(done.rc, 0, done)
        value = [line for line in done.out.splitlines() if line.startswith("export LD_PRELOAD=")]
        return value[0].split("=")[1].split(":")


make_case = fixtures.lent("case", Cpu)


@pytest.mark.parametrize("words", [["{script}"], ["sh", "-c", "{script}"], ["python3", "{script}"]])
def test_script_is_guarded(case, words):
    script = case.make("ask", "#!/usr/bin/env python3\n" + ASK + "\n")
    words = [word.format(script=script) for word in words]
    harness.run(words, guard=False).assert_reached(case)
    result = harness.run(RUN + words, guard=False)
    assert result.answers["cuInit"] == "100", str(result)
    result.assert_untouched(case)


@pytest.mark.parametrize("name", ["linked_cuda", "linked_nvml"])
@pytest.mark.parametrize("way", [[], ["dlopen"]])
def test_linked_program_does_not_map_the_driver(case, name, way):
    """Not even mapped: the null driver is in front of it."""
    words = [harness.program(name)] + way
    harness.run(words, guard=False).assert_reached(case)
    result = harness.run(RUN + words, guard=False)
    assert result.rc == 0, str(result)
    # Once: by the question to ld.so, of which nothing runs. Not by the program.
    assert len(result.driver_files) == 1, str(result)
    result.driver_files.clear()
    result.assert_untouched(case)


@pytest.mark.parametrize(("name", "cpu", "chosen"), [
    ("linked_cuda", [harness.NULL_DRIVER_CUDA], [box.PROXIES[0]]),
    ("linked_nvml", [harness.NULL_DRIVER_NVML], [box.PROXIES[1]]), ("entry_point", [], [])])
def test_ld_preload_has_only_the_libraries_that_are_linked(case, name, cpu, chosen):
    for options, more in (([], cpu), (["--gpus", "0"], chosen), (["--policy", "OFF"], [])):
        assert case.preload_of(name, "fake", *options) == [harness.GUARD] + more, options


def test_child_with_gccs_asan_runs(case):
    """`run` puts the runtime first for its command only."""
    case.need("gcc")
    program = case.compile("asan", "ask.c", "-DDRIVER", "-fsanitize=address", "-ldl")
    child = ["sh", "-c", "env ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 " + program]
    unguarded = harness.run(child, guard=False, trace=False)
    assert (unguarded.rc, unguarded.answers.get("cuInit")) == (0, "0"), str(unguarded)
    for words, code, answer in (
            (["run"], 0, "100"), (["run", "--policy", "VALIDATE"], 0, "0"),
            (["run", "--policy", "OFF"], 0, "0"), (["run", "--observe"], 0, "0"),
            (["run", "--observe", "--cpu"], 0, "100"), (["verify"], 1, "100")):  # 1: it asked
        result = harness.run([launcher.LAUNCHER, *words, "--", *child], guard=False, trace=False)
        assert (result.rc, result.answers.get("cuInit")) == (code, answer), str(result)
        assert "ASan runtime" not in result.err


class Gpus(box.Case):
    """`run --gpus` on the machine with eight fake GPUs."""

    LINKED = (("open", ["cu.see", "nv.see", "rt12.see"]), ("cuda", ["cu.see"]),
              ("nvml", ["nv.see"]), ("runtime13", ["rt.see"]), ("mixed", ["rt.see", "nv.see"]),
              ("mixed_now", ["nv.see", "cu.see"]))

    def launch(self, options, steps, name="open", **more):
        return harness.run(RUN + options + [box.program(name)] + steps, world="none", guard=False,
                           trace=False, env=box.environment(**more))

    def test_inner_gpus_overrides_the_outer_runs_presets(self):
        """The outer run's presets do not hide what the inner one asks for; the user's own do."""
        inner = RUN + ["--gpus", "2,5", box.program("open"), "cu.see", "rt12.see"]
        for given, wanted in (({}, [2, 5]), ({"CUDA_VISIBLE_DEVICES": ""}, "!100")):
            result = harness.run(RUN + inner, world="none", guard=False, trace=False,
                                 env=box.environment(**given))
            for step in inner[-2:]:
                self.assertEqual(box.seen(result.answers[step]), wanted, result)

    def test_program_without_gpus_sees_none(self):
        for name, steps in self.LINKED:
            result = self.launch([], steps, name)
            self.assertEqual(result.rc, 0, result)
            for step in steps:
                self.assertIn(box.seen(result.answers[step]), ("!100", "!9"), result)
            self.assertNotIn("cuInit:initialised", result.fake_calls, result)


make_gpus = fixtures.lent("gpus", Gpus)


@pytest.mark.parametrize(("name", "steps"), Gpus.LINKED)
def test_program_sees_the_given_gpus(gpus, name, steps):
    unguarded = box.run(steps, name, guard=False)
    for step in steps:
        assert len(box.seen(unguarded.answers[step])) == 8, str(unguarded)
    result = gpus.launch(["--gpus", "2,5"], steps, name)
    gpus.silent(result)
    for step in steps:
        assert box.seen(result.answers[step]) == [2, 5], str(result)


class Moved(launcher.Case):
    def test_copied_tree_works_wherever_it_is(self):
        """bin/ and lib/ work together, and the launcher needs no other file."""
        self.installed("a")
        os.symlink(self.path("a", "bin", "cudaguard"), self.path("link"))
        for command in (self.path("a", "bin", "cudaguard"), self.path("link")):
            done = self.start("run", "--log=off", "python3", "-c", ASK, launcher=command)
            self.assertEqual((done.stdout, done.stderr), ("cuInit=100\n", ""), done)
            done = self.start("run", "printenv", "LD_PRELOAD", launcher=command)
            self.assertEqual(done.stdout, self.path("a", "lib", "libcudaguard.so") + "\n")

    def test_launcher_is_static(self):
        """The launcher has no interpreter, needs no library and has none of the functions that load
        libraries."""
        done = self.unguarded("readelf", "-lWd", launcher.LAUNCHER)
        self.assertNotIn("INTERP", done.stdout)
        self.assertNotIn("NEEDED", done.stdout)
        with open(launcher.LAUNCHER, "rb") as stream:
            image = stream.read()
        for word in (b"nsswitch.conf", b"libnss_", b"gconv-modules.d"):
            self.assertNotIn(word, image)
