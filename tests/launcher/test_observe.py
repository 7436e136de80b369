# SPDX-License-Identifier: Apache-2.0
"""run --observe on the machine with eight fake GPUs. The fake driver's own log, and the
programs' own word for their process ids, are what the summary is held against.

pytest --write-golden rewrites golden/observe.txt."""

import os
import re
import sys

import pytest

from support import fixtures, launcher, messages, observed
from support.observed import NO_ATTEMPT, OBSERVE, box

CONTEXT = "cu.context=v2,%d"


class Who(observed.Case):

    @staticmethod
    def answers(result):
        return {key: value for key, value in result.answers.items() if key != "pid"}

    def test_summary_names_ctypes_instead_of_libffi(self):
        """libffi means nothing to a reader of Python."""
        text = "import ctypes, os; print('pid=%d' % os.getpid()); "
        text += "ctypes.CDLL('libcuda.so.1').cuInit(0); ctypes.CDLL('libnvidia-ml.so.1').nvmlInit()"
        result = self.observe(["python3", "-c", text], ["--cpu"])
        pid = observed.pids(result)[""]
        self.assertEqual(self.summary(result).facts(pid),
                         {"refused": "cuInit by ctypes/cffi and 1 more"}, result)

    def test_summary_says_no_process_asked(self):
        for words in (["true"], [box.program("open"), "cu.open"]):
            result = self.observe(words)
            self.assertEqual((result.rc, result.err), (0, NO_ATTEMPT), result)
            self.assertNotIn("cuInit:initialised", result.fake_calls)

    def lines(self, options, steps, **env):
        """Returns the lines before the summary, which the options of the run select."""
        words = [launcher.LAUNCHER, "run", "--observe", *options, box.program("open"), *steps]
        return self.summary(box.start(words, **env)).before

    def test_summary_has_the_gpus_of_the_list(self):
        """The driver gets this list, and an index counts in the list."""
        result = self.steps(["pid", "rt12.set=1"], ["--gpus", "2,5"])
        summary = self.summary(result)
        self.assertEqual(summary.facts(observed.pids(result)[""]),
                         {"by": "libcudart.so.12", "context": "1"})
        self.assertEqual(summary.devices, {"": ["0=" + box.uuid(2), "1=" + box.uuid(5)]})
        self.agrees(result, summary)

    def test_summary_has_the_list_of_each_process(self):
        inner = [launcher.LAUNCHER, "run", "--gpus"]
        program = [box.program("open"), "pid", "cu.init"]
        script = "%s; %s" % (" ".join(inner + ["7", *program]), " ".join(inner + ["1", *program]))
        result = self.observe(["sh", "-c", script])
        summary = self.summary(result)
        self.assertEqual(summary.devices,
                         {str(pid): ["0=" + box.uuid(gpu)]
                          for pid, gpu in zip(summary.order, (7, 1))}, summary.text)

    def test_observe_keeps_clamp_and_the_list_and_overrides_force_cpu(self):
        """FORCE_CPU from the environment is overridden, as --gpus does. A list from there stays."""
        for options, env, wanted in (
                ([], {}, "101"), ([], {"CUDAGUARD_POLICY": "CLAMP"}, "0"),
                ([], {"CUDAGUARD_POLICY": "FORCE_CPU"}, "101")):
            result = self.steps(["rt12.set=9"], options, env=env)
            self.assertEqual(result.answers["rt12.set"], wanted, result)
            self.agrees(result, self.summary(result))
        result = self.steps(["cu.see"], env={"CUDAGUARD_VISIBLE_DEVICES": "3,4"})
        self.assertEqual(box.seen(result.answers["cu.see"]), [3, 4])
        # An empty list there means none, and the summary says who was refused.
        result = self.steps(["pid", "cu.init"], env={"CUDAGUARD_VISIBLE_DEVICES": ""})
        self.assertEqual(result.answers["cu.init"], "100", result)
        summary = self.summary(result)
        self.assertEqual(summary.facts(observed.pids(result)[""]), {"refused": "cuInit by open"})


make_who = fixtures.lent("who", Who)


@pytest.mark.parametrize(("name", "steps", "wanted"), [
    ("cuda", ["cu.init"], {"by": "cuda"}), ("nvml", ["nv.init"], {"nvml": "yes"}),
    ("runtime13", ["rt.set=1"], {"by": "libcudart.so.13", "context": "1"}),
    *(("open", *row) for row in (
        (["cu.init"], {"by": "open"}),
        (["rt12.sync"], {"by": "libcudart.so.12", "context": "0", "worked": "yes"}),
        (["rt13.set=3"], {"by": "libcudart.so.13", "context": "3"}),
        (["cu.init", CONTEXT % 7, CONTEXT % 2], {"by": "open", "context": "2,7"}),
        (["cu.init", CONTEXT % 0, "cu.load=module"],
         {"by": "open", "context": "0", "worked": "yes"}),
        (["nv.init"], {"nvml": "yes"}), (["nv.init", "cu.init"], {"by": "open", "nvml": "yes"})))])
def test_summary_has_what_one_process_did(who, name, steps, wanted):
    result = who.steps(["pid"] + steps, name=name)
    summary = who.summary(result)
    who.agrees(result, summary)
    pid = observed.pids(result)[""]
    assert summary.order == [pid], str(result)
    assert summary.facts(pid) == wanted, summary.text
    assert summary.rows[pid]["process"] == "%s pid %s" % (name, " ".join(steps))
    assert (summary.devices, summary.rest, summary.before) == ({}, [], "")
    # The control: unguarded it does the same.
    unguarded = box.run(["pid"] + steps, name, guard=False)
    assert unguarded.fake_calls.count("cuInit:initialised") == (
        summary.totals.get("initialised CUDA", 0)), str(unguarded)
    assert who.answers(unguarded) == who.answers(result)


@pytest.mark.parametrize(("options", "context"), [
    ([], "context on 0"),
    (["--policy", "NO_CONTEXT"], "no context seen, refused cuCtxCreate_v2 by ctypes/cffi")])
def test_summary_tells_queries_from_contexts(who, options, context):
    """A process that only queries, one that makes a context, and the line of each."""
    text = ("import ctypes, sys\n"
            "cuda = ctypes.CDLL('libcuda.so.1')\n"
            "cuda.cuInit(0)\n"
            "%scuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0)\n")
    for name, line in (("count.py", text % "# "), ("train.py", text % "")):
        who.make(name, line)
    result = who.observe(["sh", "-c", '"$0" %s; "$0" %s' % (
        who.path("count.py"), who.path("train.py")), sys.executable], options)
    summary = who.summary(result)
    facts = [line.strip() for line in summary.lines if "initialised CUDA by" in line]
    assert facts == ["initialised CUDA by ctypes/cffi, no context seen",
                     "initialised CUDA by ctypes/cffi, " + context], summary.text
    assert summary.rest == ["  asked by count.py:3 through ctypes/cffi: cuInit",
                            "  asked by train.py:3 through ctypes/cffi: cuInit",
                            "  asked for a context by train.py:4 through ctypes/cffi: cuCtxCreate_v2"], (
                                summary.text)


@pytest.mark.parametrize(("options", "seen"), [
    ([], "GPU memory taken"), (["--policy", "NO_CONTEXT"], "no context seen, refused cuMemCreate by ctypes/cffi")])
def test_memory_without_a_context_is_seen(who, options, seen):
    who.make("train.py", """import ctypes
cuda = ctypes.CDLL('libcuda.so.1')
cuda.cuInit(0)
cuda.cuMemCreate(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(1 << 21), (ctypes.c_int * 16)(1, 0, 1, 0),
                 ctypes.c_uint64(0))
""")
    result = who.observe([sys.executable, who.path("train.py")], options)
    assert "      initialised CUDA by ctypes/cffi, %s\n" % seen in result.err, str(result)


@pytest.mark.parametrize(("options", "steps", "name", "values"), [
    ([], ["cu.init"], "cuda_initialised", {"policy": "VALIDATE"}),
    (["--cpu"], ["cu.init"], "no_cuda", {"cause": "FORCE_CPU"}),
    (["--children=cpu"], ["fork=f", "cu.init", "end"], "no_cuda",
     {"cause": "--children=cpu", "first": re.compile(r"\d+")})])
def test_messages_are_printed_only_with_log(who, options, steps, name, values):
    """The summary has the same facts."""
    assert who.lines(options, steps) == ""
    assert who.lines(options, steps, CUDAGUARD_LOG="") == ""
    assert who.lines(options + ["--log=off"], steps) == ""
    for log in ("deny", "all"):
        wanted = log == "all" or name in messages.DENIED
        for printed in (who.lines(options + ["--log", log], steps),
                        who.lines(options, steps, CUDAGUARD_LOG=log)):
            assert bool(messages.find(printed, name, **values)) == wanted, printed
            assert bool(printed) == wanted, printed


@pytest.mark.parametrize(("options", "steps", "name", "values"), [
    (["--gpus", "9"], ["cu.init"], "list_wrong", {"list": '--gpus "9"'}),
    ([], ["rt12.set=9"], "bad_index", {"device": 9, "asked_by": "runtime_12.so"})])
def test_errors_are_printed_unless_log_is_off(who, options, steps, name, values):
    """The summary does not have these errors."""
    printed = who.lines(options, steps)
    assert messages.find(printed, name, **values), printed
    assert who.lines(options + ["--log=off"], steps) == ""


class Tried(observed.Case):
    """CUDA was allowed and found nothing. The summary names the process that entered the driver."""

    def one(self, steps, options=(), **env):
        result = self.steps(["pid"] + steps, options, env=env)
        summary = self.summary(result)
        self.assertEqual(summary.order, [observed.pids(result)[""]], result)
        return summary.facts(summary.order[0]), summary.totals

    def test_summary_says_no_driver_was_found(self):
        env = box.environment(box="only_nvml")
        for options in ([], ["--gpus", "0"]):
            facts, totals = self.one(["cu.open"], options, **env)
            self.assertEqual((facts, totals), ({"tried": "found no driver by open"},
                                               {"processes": 1, "found no GPU": 1}))

    def test_summary_says_a_child_forked_after_init(self):
        for before, call in (("cu.init", "cu.init"), ("rt12.sync", "rt12.sync")):
            result = self.steps([before, "fork=f", "pid", call, "end"])
            summary = self.summary(result)
            self.assertEqual(summary.facts(observed.pids(result)["f"]),
                             {"tried": "forked after init"}, result)
            self.assertEqual(summary.totals["failed"], 1)


make_tried = fixtures.lent("tried", Tried)


@pytest.mark.parametrize("options", [[], ["--policy=CLAMP"], ["--gpus", "0,2"]])
def test_summary_says_no_gpu_was_found(tried, options):
    # The control: unguarded it does the same.
    unguarded = box.run(["cu.init", "nv.init"], guard=False, CG_SICK="100")
    assert (unguarded.answers["cu.init"], unguarded.answers["nv.init"]) == ("100", "9"), (
        str(unguarded))
    assert tried.one(["cu.init", "cu.init"], options, CG_SICK="100") == (
        {"tried": "found no GPU by open"}, {"processes": 1, "found no GPU": 1})
    assert tried.one(["nv.init", "nv.init"], options, CG_SICK="100") == (
        {"tried": "NVML error 9 by open"}, {"processes": 1, "failed": 1})
    assert tried.one(["rt12.count"], options, CG_SICK="999") == (
        {"tried": "error 999 by libcudart.so.12"}, {"processes": 1, "failed": 1})


class Trees(observed.Case):

    def test_forked_workers_that_differ_have_their_own_rows(self):
        """One has worked, one has a context elsewhere: those are rows of their own."""
        steps = ["pid"]
        for number in range(16):
            steps += ["fork=w%d" % number, "pid", "cu.init", CONTEXT % (number == 5)]
            steps += ["cu.load=module", "end"] if number == 9 else ["end"]
        result = self.steps(steps)
        summary = self.summary(result)
        self.agrees(result, summary)
        pid = observed.pids(result)
        self.assertNotIn(pid[""], summary.rows)
        self.assertEqual(set(summary.order), {pid["w%d" % number] for number in range(16)})
        for number in range(16):
            wanted = {"by": "open", "context": "%d" % (number == 5)}
            if number == 9:
                wanted["worked"] = "yes"
            self.assertEqual(summary.facts(pid["w%d" % number]), wanted, summary.text)
        self.assertEqual(len([line for line in summary.lines if "14x" in line]), 1, summary.text)

    def test_summary_has_what_a_killed_process_did(self):
        steps = ["pid", "fork=i", "pid", "cu.init", "raise=9", "end", "fork=c", "pid", "cu.init",
                 CONTEXT % 4, "raise=9", "end", "fork=n", "pid", "raise=9", "end"]
        result = self.steps(steps)
        summary = self.summary(result)
        self.agrees(result, summary)
        pid = observed.pids(result)
        for label in "icn":
            self.assertEqual(result.answers[label], "137")
        self.assertEqual(summary.facts(pid["i"]), {"by": "open"})
        self.assertEqual(summary.facts(pid["c"]), {"by": "open", "context": "4"})
        self.assertEqual(set(summary.order), {pid["i"], pid["c"]})

    def test_each_program_of_a_process_has_a_row(self):
        """exec keeps the process id: a row for each program."""
        result = self.observe(["sh", "-c", 'echo pid=$$; exec "$0" cu.init exec cu.init',
                               box.program("open")])
        self.assertEqual(self.summary(result).order, [observed.pids(result)[""]], result)
        result = self.steps(["pid", "nv.init", "exec", "cu.init"])
        summary = self.summary(result)
        self.assertEqual(summary.facts(observed.pids(result)[""]), {"by": "open", "nvml": "yes"})


make_trees = fixtures.lent("trees", Trees)


@pytest.mark.parametrize(("options", "children"), [
    (["--gpus", "1,2"], False), (["--gpus", "1,2", "--children=cpu"], True),
    (["--children=cpu"], True)])
def test_summary_names_the_refused_children(trees, options, children):
    """The first process keeps its GPU."""
    steps = ["pid", "rt12.sync", "fork=f", "pid", "cu.init", "nv.init", "end", "spawn=s", "pid",
             "cu.init", CONTEXT % 1, "end", CONTEXT % 1]
    result = trees.steps(steps, options)
    summary = trees.summary(result)
    trees.agrees(result, summary)
    pid = observed.pids(result)
    assert summary.facts(pid[""]) == {"by": "libcudart.so.12", "context": "0,1", "worked": "yes"}, (
        summary.text)
    if children:
        assert summary.facts(pid["f"]) == {"refused": "cuInit by open and 1 more"}, summary.text
        assert summary.facts(pid["s"]) == {"refused": "cuInit by open"}
    else:
        # A forked child of an initialised process cannot initialise.
        assert summary.facts(pid["f"]) == {"nvml": "yes", "tried": "forked after init"}, summary.text
        assert summary.facts(pid["s"]) == {"by": "open", "context": "1"}


@pytest.mark.parametrize("way", ["setsid -f sh -c '%s'", "sh -c '%s' &"])
def test_summary_waits_for_a_daemon(trees, way):
    """The daemon has a session of its own, and its parents have ended."""
    late = ("while [ -e /proc/%s ]; do sleep 0.02; done; exec %s label d pid cu.init " +
            CONTEXT % 6)
    daemon = way % (late % ("'$$'", box.program("open")))
    result = trees.observe(["sh", "-c", 'echo pid=$$; %s exit 7' %
                            (daemon + ("" if daemon.endswith("&") else ";"))])
    summary = trees.summary(result, 7)
    trees.agrees(result, summary)
    pid = observed.pids(result)
    assert summary.order == [pid["d"]], str(result)
    assert summary.facts(pid["d"]) == {"by": "open", "context": "6"}


class Nested(observed.Case):
    def test_observe_under_run_keeps_the_gpus_of_the_inner_command(self):
        """The inner choice holds, as with --gpus; its presets are taken back."""
        for outer in (["run"], ["run", "--cpu"], ["run", "--gpus", "3"]):
            words = [launcher.LAUNCHER] + outer + OBSERVE + [box.program("open"), "pid", "cu.see"]
            result = box.start(words)
            summary = self.summary(result)
            self.agrees(result, summary)
            self.assertEqual(box.seen(result.answers["cu.see"]),
                             [3] if "--gpus" in outer else box.FASTEST, result)
            self.assertEqual(summary.facts(observed.pids(result)[""]), {"by": "open"})

    def test_observing_worker_gets_no_gpu(self):
        """It stays a worker of the outer run, which gives its children no GPU."""
        words = " ".join(OBSERVE + [box.program("open"), "pid", "cu.init"])
        result = box.start([launcher.LAUNCHER, "run", "--gpus", "1", "--children=cpu", "sh", "-c",
                            words + "; exit $?"])
        summary = self.summary(result)
        self.assertEqual(summary.facts(observed.pids(result)[""]), {"refused": "cuInit by open"})
        self.agrees(result, summary)

    def test_inner_observe_sees_its_own_tree_and_the_outer_one_all(self):
        """The outer summary has the inner tree, too."""
        inner = " ".join(OBSERVE + ["--gpus", "5", box.program("open"), "label", "i", "pid",
                                    "cu.init"])
        result = self.observe(["sh", "-c", '%s label o pid nv.init; %s' %
                               (box.program("open"), inner)])
        self.assertEqual(result.rc, 0, result)
        pid = observed.pids(result)
        first = observed.Summary(result.err)
        second = observed.Summary(first.after)
        self.assertEqual(first.order, [pid["i"]], result)
        self.assertEqual(second.order, [pid["o"], pid["i"]], result)
        self.assertEqual(second.facts(pid["i"]), {"by": "open"})
        self.assertEqual(second.facts(pid["o"]), {"nvml": "yes"})


class Golden(observed.Case):
    def test_every_message_matches_the_golden_file(self):
        """The process ids are replaced."""
        program = box.program("open")
        text = ""
        for options, words in (
                ([], [program, "cu.init"]),
                (["--gpus", "2,5"], [program, "rt12.sync", "nv.init"]),
                (["--gpus", "2,5", "--children=cpu"],
                 [program, "rt12.sync", "spawn=w", "cu.init", "nv.init", "end", "spawn=v",
                  "cu.init", "end", "spawn=v", "cu.init", "end"]),
                ([], ["sh", "-c", "for i in 1 2 3; do $0 cu.init; done", program]),
                ([], ["sh", "-c", "$0 cu.init; echo >>$CUDAGUARD_REPORT", program]),
                ([], ["sh", "-c", "CG_SICK=100 $0 cu.init; $0 cu.init fork=w cu.init end", program]),
                (["--cpu"], ["true"])):
            result = self.observe(words, options)
            line = " ".join(options + words).replace(os.path.dirname(program) + "/", "")
            text += "$ cudaguard run --observe %s\n%s-> %d\n" % (
                line, self.without_numbers(result.err), result.rc)
        self.same_as_golden("observe.txt", text)

    @staticmethod
    def without_numbers(text):
        """Process ids become PID."""
        text = re.sub(r"(?m)^(  \S.* )\(\d+\)$", r"\1(PID)", text)
        return re.sub(r"(?m)^( +pids) [\d -]+$", r"\1 PIDS", text)
