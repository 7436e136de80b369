# SPDX-License-Identifier: Apache-2.0
"""verify on the machine with eight fake GPUs: results and exit codes."""

import os
import re
import shlex
import shutil
import sys

import pytest

from support import fixtures, harness, launcher, messages, verified
from support.observed import box

ATTEMPT = "import ctypes; print('answer=%d' % ctypes.CDLL('libcuda.so.1').cuInit(0), flush=True)"

make_case = fixtures.lent("case", verified.Case)


def test_streams_are_the_programs(case):
    result = case.verify(["sh", "-c", "cat; echo out; echo err >&2"], stdin="in\n")
    assert result.out == "in\nout\n"
    assert result.err.startswith("err\ncudaguard: PASS"), str(result)


@pytest.mark.parametrize(("script", "code", "headline"), [
    ('exec "$0" cu.open', 0, "PASS: no CUDA use (1 process checked)\n"),
    ('exec "$0" cu.init', 1, "FAIL: 1 place asked for CUDA, in 1 of 1 process\n"),
    ('"$0" cu.open; exit 3', 2,
     "FAIL: no CUDA use (2 processes checked), but the program ended with exit code 3\n"),
    ('"$0" cu.init; exit 3', 1,
     "FAIL: 1 place asked for CUDA, in 1 of 2 processes; the program ended with exit code 3\n"),
    ('"$0" cu.init; exit 0', 1, "FAIL: 1 place asked for CUDA, in 1 of 2 processes\n"),
    ("kill -9 $$", 2, "but the program was killed by signal 9 (Killed)\n"),
    ("kill -ABRT $$", 2, "was killed by signal 6 (Aborted)\n")])
def test_each_result_has_its_exit_code_and_headline(case, script, code, headline):
    case.ends(case.verify(["sh", "-c", script, box.program("open")]), code, headline)


def test_control_program_reaches_the_driver_unguarded():
    unguarded = box.run(["cu.init"], guard=False)
    assert unguarded.fake_calls.count("cuInit:initialised") == 1, str(unguarded)


class Environment(verified.Case):

    def test_message_under_verify_names_no_option_that_was_not_given(self):
        """The control: under run --fence, the option is the cause."""
        asks, env = ["python3", "-c", ATTEMPT], launcher.environment(CUDAGUARD_LOG="all")
        fence, policy = messages.text("remedy_fence"), "cudaguard run --policy OFF"
        for words, remedy in ((["verify"], policy), (["verify", "--fence=off"], policy),
                              (["run", "--fence"], fence),
                              (["run", "--fence", launcher.LAUNCHER, "verify"], fence)):
            done = self.start(*words, *asks, env=env)
            found = messages.find(done.stderr, "no_cuda", remedy=remedy)
            self.assertEqual(len(found), 1, done.stderr)

    def test_verify_sets_no_presets(self):
        """A framework that asks the variables and not the driver does under verify what it does
        without."""
        names = [name for name in launcher.PRESETS if name != "GST_REGISTRY_1_0"]
        result = self.steps(["getenv=" + name for name in names])
        under_run = self.observe([box.program("open")] + ["getenv=" + name for name in names],
                                 ["--cpu"])
        self.assertNotEqual(result.answers, under_run.answers)
        unguarded = box.run(["getenv=" + name for name in names], guard=False)
        self.assertEqual(result.answers, unguarded.answers, result)

    def test_messages_are_printed_only_with_log(self):
        """The result has the same facts."""
        result = self.steps(["cu.init"])
        self.assertTrue(result.err.startswith("cudaguard: FAIL"), result)
        result = self.steps(["cu.init"], env={"CUDAGUARD_LOG": "deny"})
        self.assertRegex(result.err, r"\A%scudaguard: FAIL" % messages.line("no_cuda"))

    def test_users_own_report_gets_the_records(self):
        for options, env in ((["--report", self.path("a")], {}),
                             ([], {"CUDAGUARD_REPORT": self.path("b")})):
            self.ends(self.steps(["cu.init"], options, env=env), 1)
        for name in "ab":
            apis = [one.get("api") for one in harness.records(self.path(name))]
            self.assertIn("cuInit", apis)


@pytest.mark.parametrize("env", [
    {"CUDAGUARD_POLICY": "OFF"}, {"CUDAGUARD_POLICY": "CLAMP", "CUDAGUARD_VISIBLE_DEVICES": "2"}])
def test_no_variable_allows_cuda(case, env):
    result = case.steps(["cu.init"], env=env)
    case.ends(result, 1, ", in 1 of 1 process")
    assert result.answers["cu.init"] == "100", str(result)


def test_verify_needs_no_writable_directory(case):
    """As in an image whose files cannot be written to."""
    result = case.verify([box.program("open"), "cu.init"], bwrap=["--remount-ro", "/"])
    case.ends(result, 1, "    cuInit", "  1 program started: 1 guarded\n")


class Denied(verified.Case):
    def test_nvml_is_no_cuda(self):
        result = self.steps(["nv.init"])
        self.ends(result, 0, "PASS: no CUDA use (1 process checked)\n", "  NVML was asked by 1 ")
        for deny in (["--deny=nvml"], ["--deny", "init,nvml"], ["--deny=init", "--deny=nvml"]):
            self.ends(self.steps(["nv.init"], deny), 1, "    nvmlInit")
        self.ends(self.steps(["cu.init"], ["--deny=nvml"]), 0, "no NVML use",
                  "  CUDA was asked by 1 process: open (not denied)\n")
        both = self.steps(["cu.init", "nv.init"], ["--deny=init,nvml"])
        self.ends(both, 1, "1 place asked for CUDA or NVML", "    cuInit by open",
                  "\n             nvmlInit")

    def test_pass_says_that_nvml_was_asked(self):
        """Code that asks NVML first may stop there, because NVML reports no GPU."""
        note = "  NVML was asked by 1 process: open (not denied); if NVML "
        self.assertIn("checked)\n" + note, self.ends(self.steps(["nv.init"]), 0))
        fails = ["sh", "-c", '"$0" nv.init; exit 3', box.program("open")]
        self.ends(self.verify(fails), 2, "ended with exit code 3\n" + note)
        both = self.steps(["nv.init", "cu.init"]).err
        self.assertIn("  NVML was asked by 1 process: open (not denied)\n", both)
        for steps, options in ((["nv.init"], ["--deny=init,nvml"]), (["nv.init"], ["--deny=nvml"]),
                               (["cu.open"], [])):
            self.assertNotIn("NVML was asked", self.steps(steps, options).err, (steps, options))

    def test_opencl_fails_only_if_it_is_denied(self):
        steps = ["lib.open=libnvidia-opencl.so.1"]
        self.ends(self.steps(steps), 0, "  OpenCL was asked by 1 process: open (not denied)\n")
        self.ends(self.steps(steps, ["--deny=opencl"]), 1, "asked for OpenCL",
                  "    dlopen of libnvidia-opencl.so.1 by open")

    def test_load_of_a_cuda_plugin_fails(self):
        self.ends(self.steps(["lib.open=libonnxruntime_providers_cuda.so"]), 1,
                  "    dlopen of libonnxruntime_providers_cuda.so by open")


class Allowed(verified.Case):
    def two(self, *patterns):
        """A trainer that may, and a loader that may not."""
        for name in ("train.py", "load.py"):
            self.make(name, ATTEMPT)
        options = ["--allow=" + pattern for pattern in patterns]
        return self.verify(["sh", "-c", '"$0" %s; "$0" %s' % (
            self.path("train.py"), self.path("load.py")), sys.executable], options)

    def test_result_separates_allowed_processes_from_others(self):
        block = self.ends(self.two("train.py"), 1, ", in 1 of 3 processes "
                          "(and in 1 allowed process)\n")
        self.assertRegex(block, r"(?m)^(  allowed: |    allowed  ).*")
        block = self.ends(self.two("*.py"), 0, "PASS: no CUDA use except in 2 allowed "
                          "processes (3 processes checked)\n")
        self.assertEqual(block.count("\n    asked"), block.count("\n  allowed: "), block)

    def test_an_empty_pattern_is_refused(self):
        for pattern in ("", "lib:"):
            self.refused(self.start("verify", "--allow", pattern, "true"), 125,
                         '--allow "%s" is not accepted (accepted: ' % pattern)

    def test_allow_holds_for_nvml_too(self):
        self.ends(self.steps(["nv.init"], ["--deny=nvml", "--allow=open"]), 0, "allowed: open\n    asked    nvmlInit")


make_allowed = fixtures.lent("allowed", Allowed)


@pytest.mark.parametrize(("pattern", "rc"), [("my ask", 0), ("ask", 1), ("DIRECTORY/my ask", 1)])
def test_pattern_matches_the_words_as_the_program_was_started(allowed, pattern, rc):
    """tests/unit/allow_test.cpp has more patterns."""
    shutil.copy(box.program("open"), allowed.path("my ask"))
    pattern = pattern.replace("DIRECTORY", allowed.directory)
    result = allowed.verify(["sh", "-c", 'cd "$0" && exec "./my ask" cu.init', allowed.directory],
                            ["--allow=" + pattern])
    block = allowed.ends(result, rc)
    assert ("matched no process" in block) == (rc == 1), block


@pytest.mark.parametrize(("words", "pattern", "rc"), [
    ([1100 * "x", "train.py"], "train.py", 0),
    ([4000 * "x", "train.py" + 30000 * "c"], "train.py*", 1)])
def test_pattern_matches_whole_words(allowed, words, pattern, rc):
    """What comes after the first thousands of bytes is not known."""
    program = [sys.executable, allowed.make("ask.py", ATTEMPT)]
    allowed.ends(allowed.verify([*program, *words], ["--allow=" + pattern]), rc)


@pytest.mark.parametrize(("pattern", "rc"), [("my static", 0), ("./my static a", 0), ("static", 3)])
def test_pattern_matches_the_words_of_an_unguarded_program(allowed, pattern, rc):
    allowed.copied("static_7", "my static")
    script = 'cd "$0" && "./my static" a || true'
    result = allowed.verify(["sh", "-c", script, allowed.directory],
                            ["--strict", "--allow=" + pattern])
    allowed.ends(result, rc, "1 unguarded")


@pytest.mark.parametrize("name", ["train.py", "it's [a] \\ *.py", "native"])
def test_option_that_the_text_names_makes_the_run_pass(allowed, name):
    command = [box.program("open"), "cu.init"] if name == "native" else [
        sys.executable, allowed.make(name, ATTEMPT)]
    block = allowed.ends(allowed.verify(command), 1)
    options = re.search(r"(?m)^  to accept this: (--allow .*)$", block)[1]
    block = allowed.ends(allowed.verify(command, shlex.split(options)), 0)
    assert "to accept" not in block and "matched no" not in block, block


@pytest.mark.parametrize(("terminal", "env", "coloured"), [
    (True, {}, True), (False, {}, False), (True, {"NO_COLOR": "1"}, False),
    (True, {"NO_COLOR": ""}, True), (True, {"TERM": "dumb"}, False), (True, {"TERM": ""}, False)])
def test_result_has_colour_only_on_a_terminal_that_shows_it(case, terminal, env, coloured):
    files = {name: case.path(name) for name in ("junit", "html", "json")}
    command = [*verified.VERIFY, *("--%s=%s" % one for one in files.items()), "sh", "-c", "exit 3"]
    code, text = harness.shown(command, terminal, env=launcher.environment(
        **{"TERM": "xterm", "NO_COLOR": "", **env}))
    assert code == 2, text
    word = "\033[1;31mFAIL\033[0m" if coloured else "FAIL"
    assert text.startswith("cudaguard: %s: no CUDA use" % word), text
    assert text.count("\033") == (2 if coloured else 0), text
    for path in files.values():
        assert "\033" not in harness.read(path)


class Ways(verified.Case):
    def one(self, result, *wanted):
        return self.ends(result, 1, ", in 1 of ", *wanted)

    def test_attempt_of_a_librarys_constructor_is_found(self):
        library = os.path.join(box.DIRECTORY, "programs", "constructor.so")
        self.one(self.verify([sys.executable, "-c", "import ctypes; ctypes.CDLL(%r)" % library]),
                 "cuInit by constructor.so")

    def test_many_workers_are_one_place(self):
        script = 'i=0; while [ $i -lt 20 ]; do "$0" cu.init >/dev/null & i=$((i+1)); done; wait'
        block = self.ends(self.verify(["sh", "-c", script, box.program("open")]), 1,
                          "FAIL: 1 place asked for CUDA, in 20 of 21 processes\n")
        self.assertEqual(block.count("cuInit by open"), 1, block)
        self.assertRegex(block, r"(?m)^    process  20x open cu\.init \(\d+[- ]")

    def test_text_has_20_places_and_the_number_of_the_others(self):
        text = "".join(verified.record(pid, "cuInit", caller="/lib/lib%d.so+0x10" % pid)
                       for pid in range(1, 61))
        block = self.ends(self.forged(text), 1, "FAIL: 60 places asked for CUDA, in 60 of 60 processes\n",
                          "  ... and 40 more (--json has all)\n")
        self.assertEqual(block.count("    cuInit by lib"), 20, block)

    def test_process_that_reenables_cuda_fails(self):
        """If a process in the tree allows CUDA, verify reports it and fails."""
        result = self.verify([launcher.LAUNCHER, "run", "--gpus", "0", box.program("open"),
                              "cu.init"])
        self.assertEqual(result.rc, 1, result)
        self.assertIn("cuInit by open (its own policy allowed it)", result.err)
        self.assertIn("cuInit:initialised", result.fake_calls)


make_ways = fixtures.lent("ways", Ways)


@pytest.mark.parametrize("steps", [
    ["exec", "cu.init"], ["rt12.sync"], ["rt13.sync"], ["linked.cu.init"], ["deep.cu.init"]])
def test_attempt_is_found_in_each_way_to_the_driver(ways, steps):
    """test_verify_tree has the threads and processes that ask."""
    ways.one(ways.steps(steps), " by ")


@pytest.mark.parametrize("name", ["cuda", "cuda_now"])
def test_attempt_of_a_linked_program_is_found(ways, name):
    ways.one(ways.steps(["cu.init"], name=name), "cuInit by " + name)


def test_program_without_python_makes_no_line_about_python(ways):
    assert "Python" not in ways.steps(["cu.init"]).err
