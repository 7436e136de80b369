# SPDX-License-Identifier: Apache-2.0
"""A program that ld.so starts with the driver, because one of its libraries is linked to the driver,
looks up cuInit in a handle. The launcher preloads the null drivers only for the program that it
starts itself, so here other programs start this one."""

import os
import re

from launcher import test_verify_tree
import pytest

from support import fixtures, harness, launcher, messages, policies

MIDDLE = harness.program("middle.so")
NVML = harness.program("plugin_linked_nvml.so")
RUN = [launcher.LAUNCHER, "run", "--"]
# This shell does not exec its last command.
SHELL = ["sh", "-c", '"$@"; exit $?', "sh"]
STARTERS = {"env": ["env"], "nice": ["nice"], "timeout": ["timeout", "100"],
            "xargs": ["xargs", "-a", os.devnull], "sh": SHELL,
            "make": ["make", "-s", "-f", "{makefile}"]}


def asks(program="linked_middle"):
    return [harness.program(program), "handle", MIDDLE]


class Started(launcher.Case):
    """Neither way to guard the tree depends on who starts the program."""

    def words(self, starter, program):
        if starter == "make":
            makefile = self.make("makefile", "all:\n\t@%s\n" % " ".join(program))
            return [word.format(makefile=makefile) for word in STARTERS[starter]]
        return STARTERS[starter] + program

    def check(self, starter, world, program, env, answers):
        words = self.words(starter, program)
        self.need(words[0])
        if world == "real":
            self.need_real_driver()
        harness.run(words, world=world, guard=False, env=env).assert_reached(self)
        for name, run in (("LD_PRELOAD", []), ("run", RUN)):
            result = harness.run(run + words, world=world, guard=not run, env=env)
            self.assertEqual((name, result.rc, result.answers), (name, 0, answers), result)
            result.assert_untouched(self, linked=True)

    def test_limit_constructor_before_the_guards_finds_the_driver(self):
        program = [harness.program("linked_early"), "next"]
        control = harness.run(program, guard=False)
        control.assert_reached(self)
        result = harness.run(program)
        self.assertRegex(result.out, r"^cuInit=0\ncuInit=100\n", result)  # the constructor, and main
        result = harness.run(RUN + program, guard=False)
        self.assertEqual(result.out, "cuInit=-1\ncuInit=null\n", result)  # RTLD_NEXT finds nothing
        result.assert_untouched(self, linked=True)


make_started = fixtures.lent("started", Started)


# The real driver is found in the same way whoever starts the program.
WAYS = [*((starter, "fake") for starter in STARTERS), ("sh", "real")]


@pytest.mark.parametrize(("starter", "world"), WAYS)
def test_cuda_is_denied(started, starter, world):
    started.check(starter, world, asks(), {}, {"cuInit": "100"})


@pytest.mark.parametrize(("name", "answer", "starter", "world"), [
    *(("nvmlInit_v2", "9", *way) for way in WAYS),
    ("nvmlInit", "0", "sh", "fake"), ("nvmlInitWithFlags", "9", "sh", "fake")])
def test_nvml_is_denied(started, starter, world, name, answer):
    program = [harness.program("linked_middle"), "handle", NVML, name]
    started.check(starter, world, program, {"LD_PRELOAD": NVML}, {name: answer})


class SymbolsThatCannotBeChanged(test_verify_tree.Case):
    """The kernel does not let the guard write to the symbol table of NVIDIA's library."""

    env = {"CG_FORBID": "write"}

    def exposed(self, result):
        """Returns the names of the libraries in the messages. There are no other messages."""
        self.assertEqual(messages.without(result.err, "exposed"), "", result)
        return [os.path.basename(found["library"])
                for found in messages.find(result.err, "exposed", library=re.compile(r"/\S+"))]

    def test_message_says_that_the_driver_can_be_reached(self):
        program = asks("linked_forbids")
        control = harness.run(program, guard=False, env=self.env)
        self.assertEqual(control.answers["cuInit"], "0", control)
        for words, guard in ((program, True), (RUN + SHELL + program, False)):
            result = harness.run(words, guard=guard, env=self.env)
            # The limit: the program reaches the driver.
            self.assertEqual((result.rc, result.answers["cuInit"]), (0, "0"), result)
            self.assertEqual(self.exposed(result), ["libcuda.so.1"])
        # What the message advises.
        result = harness.run(RUN + program, guard=False, env=self.env)
        self.assertEqual(result.answers["cuInit"], "100", result)
        result.assert_untouched(self, linked=True)

    def test_no_message_if_the_guard_changes_nothing(self):
        for policy in ("OFF", *policies.ALLOWING):
            result = harness.run(asks("linked_forbids"), env=dict(self.env, CUDAGUARD_POLICY=policy))
            self.assertEqual((result.rc, result.err), (0, ""), result)
        result = harness.run(asks("linked_forbids"), env=dict(self.env, CUDAGUARD_LOG="off"))
        self.assertEqual((result.rc, result.err), (0, ""), result)

    def test_verify_is_complete_without_the_limit(self):
        result, tree = self.tree(SHELL + asks("linked_forbids"))
        self.assertEqual((result.rc, tree["doubts"]), (1, []), result)


make_case = fixtures.lent("case", SymbolsThatCannotBeChanged)


def test_verify_is_incomplete(case):
    program = SHELL + asks("linked_forbids")
    doubt = (
        r"^linked_forbids \(\d+\) could call NVIDIA's CUDA library by dlsym, because the guard "
        r"could not change the library's symbols$")
    report = case.path("report")
    result, tree = case.tree(program, ["--report", report], env=case.env)
    # An attempt without a report: the real one would open the device.
    assert (result.rc, result.answers["cuInit"]) == (3, "0"), str(result)
    assert "cudaguard: INCOMPLETE: no CUDA use seen" in result.err
    assert len(tree["doubts"]) == 1, str(tree)
    assert re.search(doubt, tree["doubts"][0]), str(tree["doubts"][0])
    records = [one for one in harness.records(report) if one.get("api")]
    assert [(one["api"], one["asked"], one["event"])
            for one in records] == [("dlsym", "cuda", "exposed")]
    case.validates(records[0], "guard", "record", "record.schema.json")
    result, _ = case.tree(program, ["--allow", "*linked_forbids*"], env=case.env)
    assert result.rc == 0, str(result)
