# SPDX-License-Identifier: Apache-2.0
"""verify's verdict and counts are right about loads that the guard refuses, about programs that end
while ld.so is at work, about files that are mapped only to be read, and about short-lived
children."""

import os

import pytest

from support import fixtures, harness, launcher, machine
from launcher import test_verify_tree
from support.observed import box


class Musl(test_verify_tree.Case):
    def test_musl_program_that_asks_is_not_called_heard_of(self):
        """musl's ld.so loads the guard, but no null driver can be loaded there."""
        self.need("musl-gcc")
        program = self.compile("asks", "ask.c", "-DDRIVER", compiler="musl-gcc")
        for words in ([program], ["sh", "-c", program + "; exit"]):
            unguarded = box.start(words)
            self.assertRegex(unguarded.out, "^cuInit=-?[01]", unguarded)
            result, tree = self.tree(words)
            self.ends(result, 3, "INCOMPLETE: no CUDA use seen")
            (doubt,) = tree["doubts"]
            self.assertRegex(doubt, r"^\S*asks \(\d+\) asked for NVIDIA's CUDA library, and is not "
                             "guarded: musl; build it for glibc, or accept this: --allow asks$")
            self.assertIn(" started: %s1 unguarded: " % ("1 guarded, " * (len(words) // 3)),
                          result.err)
            result, _ = self.tree(words, ["--allow", "asks"])
            self.assertEqual(result.rc, 0, result)


class RefusedLoads(test_verify_tree.Case):
    """The null drivers are out of reach in the new root, so the guard refuses the load."""

    program = launcher.program("jailed")
    jail = launcher.program("jail")

    def setUp(self):
        super().setUp()
        machine.need("change_of_root" if os.geteuid() == 0 else "user_namespaces")

    def test_refused_driver_is_incomplete(self):
        words = [self.program, self.jail, "/libcuda.so.1", "cuInit"]
        unguarded = box.start(words)
        self.assertEqual(unguarded.out, "answer 0\n", unguarded)
        report = self.path("report.jsonl")
        result, tree = self.tree(words, ["--report", report])
        self.assertEqual(result.out, "refused\n", result)
        self.ends(result, 3, "INCOMPLETE: no CUDA use seen")
        self.assertEqual(len(tree["doubts"]), 1, tree)
        self.assertRegex(tree["doubts"][0], r"^jailed \(\d+\) was refused NVIDIA's CUDA library, "
                         "because a file of cudaguard cannot be used$")
        records = [one for one in harness.records(report) if "api" in one]
        self.assertEqual([(one["api"], one["object"], one["decision"]) for one in records],
                         [("dlopen", "/libcuda.so.1", "refuse")])
        self.validates(records[0], "guard", "record", "record.schema.json")
        result, _ = self.tree(words, ["--allow", "jailed"])
        self.ends(result, 0, "PASS: ")

    def test_refused_nvml_is_incomplete_if_nvml_is_denied(self):
        words = [self.program, self.jail, "/libnvidia-ml.so.1", "nvmlInit_v2"]
        result, tree = self.tree(words)
        self.assertEqual((result.out, result.rc, tree["doubts"]), ("refused\n", 0, []), result)
        result, tree = self.tree(words, ["--deny", "nvml"])
        self.assertEqual((result.rc, len(tree["doubts"])), (3, 1), result)
        self.assertIn("was refused NVIDIA's NVML library", tree["doubts"][0])


make_case = fixtures.lent("case", test_verify_tree.Case)


@pytest.mark.parametrize("what", ["exits", "killed", "xec"])
def test_program_that_ends_in_a_constructor_leaves_no_doubt(case, what):
    """The first constructors of a program run before the guard's own."""
    words = ["sh", "-c", 'WHAT=%s "$0"; true' % what, launcher.program("slow_user")]
    result, tree = case.tree(words)
    case.ends(result, 0, "PASS: ")
    assert tree["doubts"] == [], str(result)


class Mapped(test_verify_tree.Case):
    def test_driver_counts_only_if_its_code_can_run(self):
        """A search tool, ldconfig or strip maps the file to read it."""
        program = launcher.program("maps_file")
        driver = launcher.program("jail/libcuda.so.1")
        result, tree = self.tree(["sh", "-c", '"$0" "$1"; true', program, driver])
        self.ends(result, 0, "PASS: ")
        self.assertEqual([one["has_driver"] for one in tree["unguarded"]], [False], result)
        result, tree = self.tree(["sh", "-c", '"$0" "$1" x; true', program, driver])
        self.ends(result, 1, "FAIL: ")
        self.assertEqual([one["has_driver"] for one in tree["unguarded"]], [True], result)

    def test_guard_counts_only_if_its_code_can_run(self):
        program = launcher.program("maps_file")
        result, tree = self.tree(["sh", "-c", '"$0" "$1"; true', program, harness.GUARD])
        self.ends(result, 0, "PASS: ")
        self.assertEqual([one["reason"] for one in tree["unguarded"]],
                         ["static"], result)


@pytest.mark.parametrize(("mode", "start", "code", "text"), [
    (0o755, "env -i", 0, "its environment has no LD_PRELOAD"),
    (0o111, "env -i", 3, "its file cannot be read"),
    (0o111, "env", 0, "3 programs started: 3 guarded")])
def test_unguarded_program_leaves_a_doubt_although_its_caller_was_heard(
        case, mode, start, code, text):
    """The kernel shows only root the memory of a program that its user may not read."""
    program = case.copied("waits")
    os.chmod(program, mode)
    done = case.unguarded(*case.ordinary_user(), "verify", "--", "sh", "-c",
                          start + ' "$0" 0.5; true', program)
    assert done.returncode == code, str(done)
    assert text in " ".join(done.stderr.split())
