# SPDX-License-Identifier: Apache-2.0
"""scripts/lab: the frame goes on after a kill, the rows of its programs are complete, and each
fault of a program makes its row fail."""

import contextlib
import copy
import dataclasses
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import types
import unittest
import unittest.mock

from lab import parts, programs, results_page

from support import harness, messages, settings

CHECKOUT = pathlib.Path(settings.SOURCE)


@dataclasses.dataclass(frozen=True)
class Named:
    name: str
    text: str = ""


@dataclasses.dataclass(frozen=True)
class Grown(Named):
    more: str = ""


class FrameCase(unittest.TestCase):
    """A part with rows that do nothing, in a directory of its own."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="cg-")
        self.addCleanup(directory.cleanup)
        self.checkout = pathlib.Path(directory.name)
        (self.checkout / "tests/lab").mkdir(parents=True)
        for file in ("build/lib/libcudaguard.so", "build/bin/cudaguard"):
            (self.checkout / file).parent.mkdir(parents=True, exist_ok=True)
            (self.checkout / file).write_text("first")
        self.ran = []
        self.reports = []

    def part(self, *given, run=None):
        lab = parts.Lab("example", self.checkout, self.checkout / "build", self.checkout / "scratch")
        lab.git = lambda *words: "0" * 40
        module = types.SimpleNamespace(
            rows=lambda lab: list(given),
            run=run or (lambda lab, row: self.ran.append(row.name) or {"outcome": "passed"}),
            report=lambda lab, results: self.reports.append(results))
        return parts.Part("example", module, lab)

    def runs(self, part, *names, again=False):
        """The rows that ran, the exit code and the output."""
        self.ran.clear()
        with contextlib.redirect_stdout(io.StringIO()) as output:
            code = part.run(list(names), again)
        return list(self.ran), code, output.getvalue()


class Frame(FrameCase):
    def test_rows_with_a_result_do_not_run_again(self):
        rows = Named("a"), Named("b")
        self.assertEqual(self.runs(self.part(*rows))[:2], (["a", "b"], 0))
        self.assertEqual(self.runs(self.part(*rows))[:2], ([], 0))
        self.assertEqual(self.runs(self.part(*rows), "b")[0], ["b"])
        self.assertEqual(self.runs(self.part(*rows), again=True)[0], ["a", "b"])

    def test_a_changed_row_runs_again(self):
        self.runs(self.part(Named("a"), Named("b", "old")))
        self.assertEqual(self.runs(self.part(Named("a"), Named("b", "new")))[0], ["b"])

    def test_a_new_member_with_a_default_changes_no_row(self):
        self.runs(self.part(Named("a")))
        self.assertEqual(self.runs(self.part(Grown("a")))[0], [])
        self.assertEqual(self.runs(self.part(Grown("a", more="b")))[0], ["a"])

    def test_another_guard_runs_all_rows_again(self):
        self.runs(self.part(Named("a")))
        (self.checkout / "build/lib/libcudaguard.so").write_text("second")
        self.assertEqual(self.runs(self.part(Named("a")))[0], ["a"])

    def results(self):
        text = (self.checkout / "tests/lab/results/example.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def test_each_result_is_written_with_its_commit_and_date(self):
        self.assertEqual(self.runs(self.part(Named("a"), Named("b")), "b")[1], 1)
        self.assertEqual([(row["name"], row["commit"]) for row in self.results()], [("b", "0" * 40)])
        self.runs(self.part(Named("a"), Named("b")))
        self.assertEqual([row["name"] for row in self.results()], ["a", "b"])
        self.assertRegex(self.results()[0]["date"], r"^\d{4}-\d\d-\d\d$")
        self.assertEqual(self.reports[-1], self.results())

    def test_result_of_another_guard_stays_until_the_row_runs_again(self):
        self.runs(self.part(Named("a"), Named("b")))
        (self.checkout / "build/lib/libcudaguard.so").write_text("second")
        part = self.part(Named("a"), Named("b"))
        _, code, output = self.runs(part, "a")
        self.assertEqual(code, 1)
        self.assertIn("2 passed, 0 differs, 0 not installed, 0 failed, 0 not run; 1 ran with another "
                      "build", output)
        with contextlib.redirect_stdout(io.StringIO()) as output:
            part.show()
        self.assertEqual(output.getvalue(), "a: passed\nb: passed (another build)\n")

    def test_result_of_a_row_that_is_gone_is_not_kept(self):
        self.runs(self.part(Named("a"), Named("b")))
        self.runs(self.part(Named("b"), Named("c")))
        self.assertEqual([row["name"] for row in self.results()], ["b", "c"])

    def test_interrupted_part_writes_its_pages(self):
        def run(lab, row):
            if row.name == "b":
                raise KeyboardInterrupt
            return {"outcome": "passed"}
        self.assertEqual(self.runs(self.part(Named("a"), Named("b"), run=run))[1], 1)
        self.assertEqual(self.reports[-1], self.results())

    def test_an_error_in_one_row_fails_that_row_alone(self):
        def run(lab, row):
            if row.name == "a":
                raise RuntimeError("no such thing")
            return {"outcome": "passed"}
        ran, code, output = self.runs(self.part(Named("a"), Named("b"), run=run))
        self.assertEqual(code, 1)
        self.assertIn("a: failed: RuntimeError: no such thing", output)
        self.assertIn("b: passed", output)

    def test_list_shows_rows_with_and_without_a_result(self):
        part = self.part(Named("a"), Named("b"))
        self.runs(part, "a")
        with contextlib.redirect_stdout(io.StringIO()) as output:
            part.show()
        self.assertEqual(output.getvalue(), "a: passed\nb: not run\n")

    def test_scratch_directory_is_empty_for_each_row_and_removed(self):
        def run(lab, row):
            self.assertEqual(list(lab.scratch.iterdir()), [])
            (lab.scratch / "file").write_text("")
            return {"outcome": "passed"}
        part = self.part(Named("a"), Named("b"), run=run)
        self.assertEqual(self.runs(part)[1], 0)
        self.assertFalse(part.lab.scratch.exists())

    def test_a_killed_part_goes_on_with_the_row_that_it_lost(self):
        """The second row kills the process. Its scratch directory stays, and the next start removes
        it."""
        def kill(lab, row):
            self.ran.append(row.name)
            if row.name == "b":
                (lab.scratch / "left").write_text("")
                os.kill(os.getpid(), signal.SIGKILL)
            return {"outcome": "passed"}
        rows = Named("a"), Named("b"), Named("c")
        child = os.fork()
        if child == 0:
            with contextlib.redirect_stdout(io.StringIO()):
                self.part(*rows, run=kill).run([], False)
            os._exit(0)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), -signal.SIGKILL)
        self.assertEqual(self.runs(self.part(*rows))[:2], (["b", "c"], 0))
        self.assertFalse((self.checkout / "scratch/example").exists())


class Command(unittest.TestCase):
    def lab(self, *words):
        return subprocess.run(
            [sys.executable, CHECKOUT / "scripts/lab", "--build", settings.BUILD, *words],
            capture_output=True, text=True, check=False)

    def test_unknown_name_is_refused(self):
        done = self.lab("programs", "no-such-program")
        self.assertEqual(done.returncode, 2)
        self.assertIn("programs has no row no-such-program; see --list", done.stderr)

    def test_unknown_part_is_refused(self):
        self.assertEqual(self.lab("no-such-part").returncode, 2)

    def test_list_prints_each_row_once(self):
        done = self.lab("programs", "--list")
        self.assertEqual(done.returncode, 0, done.stderr)
        names = [line.split(": ")[0] for line in done.stdout.splitlines()]
        self.assertEqual(names, [row.name for row in programs.rows(None)])


class Rows(unittest.TestCase):
    def test_rows_are_complete(self):
        """Each row has a name, a pinned version and a script of at most ten lines: rows() refuses
        the others."""
        self.assertGreater(len(programs.rows(None)), 80)

    def test_installers_leave_no_temporary_file(self):
        """uv leaves a lock file for each source package that it builds."""
        row = programs.Row(name="a", packages=("b==1",), unpacked=("c==1",), script="print()")
        with tempfile.TemporaryDirectory() as directory:
            place = programs.Place(pathlib.Path(directory))
            with unittest.mock.patch.multiple(programs, command=unittest.mock.DEFAULT,
                                              tidy_cache=unittest.mock.DEFAULT,
                                              uv_of=unittest.mock.DEFAULT) as replaced:
                programs.install_wheels(None, row, place)
        variables = [call.args[1].get("TMPDIR") for call in replaced["command"].call_args_list]
        self.assertEqual(variables, 3 * [place.directory])  # uv twice, and pip


def test_mistakes_are_found():
    good = programs.Row(name="a", packages=("b==1",), script="print()")
    assert good.mistakes() == []
    for change in ({"name": "A b"}, {"packages": ("b",)}, {"packages": ()}, {"script": "\n"},
                   {"script": "pass\n" * 11}, {"language": "klingon"}, {"asks": "gpu"},
                   {"difference": "why"}, {"differs": ("output",)},
                   {"difference": "why", "differs": ("taste",)}):
        assert len(dataclasses.replace(good, **change).mistakes()) == 1, change


class Sandbox(harness.Case):
    def test_programs_do_not_write_to_the_home_directory(self):
        """Only the lab's own directory stays visible below the home directory."""
        with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
            home = pathlib.Path(directory)
            place = programs.Place(home / "scratch")
            place.directory.mkdir()
            user = types.SimpleNamespace(pw_dir=str(home))
            with unittest.mock.patch.object(programs.pwd, "getpwuid", return_value=user):
                done = programs.sandboxed(ROW, place, ["touch", home / "leaked",
                                                       place.directory / "kept"], "/",
                                          world="none")
            self.assertEqual(done.rc, 0, done)
            self.assertEqual(os.listdir(home), ["scratch"])
            self.assertIn("kept", os.listdir(place.directory))


def way(**more):
    return {"exit": 0, "timed_out": False, "out": "took 3 ms\ncuda False\n", "err": "", "opens": 0,
            "nodes": 0, "driver": [], "messages": []} | more


MESSAGE = "cudaguard[7]: %s\n" % messages.text("no_cuda", cause="FORCE_CPU",
                                             asked_by="script.py:2 through libx.so")
RESULT = "cudaguard: FAIL: 1 line asked for CUDA, in 1 of 1 process\n  script.py:2 in <module>\n"
ROW = programs.Row(name="a", packages=("b==1",), script="print()", prints="cuda False", asks=True)


def good_ways():
    """What the five ways of ROW do if all is well. The driver's own warning goes away."""
    asked = way(err="cannot initialise\n", opens=11, nodes=1, driver=["libcuda.so.1"])
    guarded = way(err=MESSAGE, messages=[["no_cuda", "script.py:2 through libx.so"]],
                  out="took 81.2 ms\ncuda False\n")
    return {"unguarded": asked, "hidden": copy.deepcopy(asked), "run": guarded,
            "fence": copy.deepcopy(guarded),
            "verify": way(err=RESULT, verdict="fail", verify_exit=1)}


def quiet_ways():
    """What the five ways of a program do that asks for nothing."""
    ways = {name: way() for name in programs.WAYS}
    ways["verify"] |= {"err": "cudaguard: PASS: no CUDA use\n", "verdict": "pass", "verify_exit": 0}
    return ways


class Judgement(unittest.TestCase):
    # A fault of one way, and the check that finds it.
    FAULTS = (
        ("timeout", "run", {"timed_out": True}),
        ("asks", "unguarded", {"opens": 0, "nodes": 0}),
        ("prints", "unguarded", {"out": "took 3 ms\n"}),
        ("prints", "verify", {"out": "took 3 ms\n"}),
        ("exit", "unguarded", {"exit": 1}),
        ("exit", "fence", {"exit": 139}),
        ("exit", "verify", {"exit": 1}),
        ("opens", "run", {"opens": 1}),
        ("opens", "fence", {"nodes": 1}),
        ("opens", "verify", {"opens": 2}),
        ("driver", "run", {"driver": ["libcuda.so.1"]}),
        ("driver", "verify", {"driver": ["libnvidia-ml.so.1"]}),
        ("output", "run", {"out": "took 3 ms\ncuda False\nmore\n"}),
        ("output", "fence", {"out": "cuda False\n"}),
        ("output", "verify", {"out": "took 3 ms\ncuda False\ncuda False\n"}),
        ("errors", "run", {"err": MESSAGE + "a new warning\n"}),
        ("errors", "verify", {"err": "a new warning\n" + RESULT}),
        ("message", "run", {"messages": []}),
        ("message", "run", {"messages": [["no_nvml", "script.py:2"]]}),
        ("message", "fence", {"messages": [["no_cuda", "threading.py:995"]]}),
        ("verify", "verify", {"verdict": "pass", "verify_exit": 0}),
        ("verify", "verify", {"verdict": "incomplete", "verify_exit": 3}),
        ("verify", "verify", {"verdict": "none", "verify_exit": 125}),
    )

    def test_row_whose_ways_are_all_good_passes(self):
        self.assertEqual(programs.judge(ROW, good_ways()), ("passed", None))

    def test_a_program_that_asks_for_nothing_passes(self):
        row = dataclasses.replace(ROW, asks=False)
        self.assertEqual(programs.judge(row, quiet_ways()), ("passed", None))

    def test_each_check_has_a_fault_above(self):
        self.assertEqual({check for check, _, _ in self.FAULTS}, set(programs.CHECKS))

    def test_nvml_passes_verify(self):
        row = dataclasses.replace(ROW, asks="nvml")
        ways = good_ways()
        for name in ("run", "fence"):
            ways[name]["messages"] = [["no_nvml", "script.py:2"]]
        self.assertEqual(programs.judge(row, ways)[0], "failed")
        ways["verify"] |= {"verdict": "pass", "verify_exit": 0}
        self.assertEqual(programs.judge(row, ways), ("passed", None))

    def test_a_known_difference_explains_only_its_checks(self):
        row = dataclasses.replace(ROW, difference="it prints a number", differs=("output",))
        ways = good_ways()
        ways["run"]["out"] += "number\n"
        self.assertEqual(programs.judge(row, ways), ("differs", "it prints a number"))
        ways["run"]["opens"] = 1
        self.assertEqual(programs.judge(row, ways), ("failed", "run: 1 tries at /dev/nvidia*"))

    def test_a_difference_that_is_gone_fails(self):
        row = dataclasses.replace(ROW, difference="it prints a number", differs=("output",))
        self.assertEqual(programs.judge(row, good_ways())[0], "failed")

    def test_a_row_ends_at_the_first_timeout(self):
        ways = {"unguarded": way(timed_out=True)}
        self.assertEqual(programs.judge(ROW, ways)[0], "failed")
        row = dataclasses.replace(ROW, difference="it waits for a GPU", differs=("timeout",))
        self.assertEqual(programs.judge(row, ways), ("differs", "it waits for a GPU"))

    def test_the_named_text_replaces_the_script(self):
        ways = good_ways()
        for name in ("run", "fence"):
            ways[name]["messages"] = [["no_cuda", "collect_env.py:952"]]
        self.assertEqual(programs.judge(ROW, ways)[0], "failed")
        row = dataclasses.replace(ROW, named="collect_env.py")
        self.assertEqual(programs.judge(row, ways)[0], "passed")


def test_each_fault_fails():
    for fault in Judgement.FAULTS:
        check, name, change = fault
        ways = good_ways()
        ways[name] |= change
        outcome, reason = programs.judge(ROW, ways)
        assert outcome == "failed" and reason, fault
        found = {other for other in programs.CHECKS if programs.FAULTS[other](ROW, ways)}
        assert found == {check} | ({"output"} if check == "prints" else set()), fault


def test_program_that_asks_for_nothing_fails_with_each_fault():
    row = dataclasses.replace(ROW, asks=False)
    for name, change in (("unguarded", {"opens": 2}),
                         ("run", {"messages": [["no_nvml", "script.py:2"]]}),
                         ("verify", {"verdict": "fail", "verify_exit": 1}),
                         ("verify", {"verdict": "incomplete", "verify_exit": 3})):
        ways = quiet_ways()
        ways[name] |= change
        assert programs.judge(row, ways)[0] == "failed", (name, change)


class Page(FrameCase):
    def test_report_writes_its_section_alone(self):
        page = self.checkout / "tests/lab/results/programs.md"
        page.parent.mkdir()
        page.write_text("# Above\n\n| a | b |\n")
        lab = types.SimpleNamespace(checkout=self.checkout)
        results = [
            {"name": "a", "version": "1", "outcome": "differs", "reason": "it | prints",
             "ways": good_ways(), "date": "2026-11-23"},
            {"name": "z", "version": "2", "outcome": "not installed", "reason": "no wheel",
             "date": "2026-11-24"},
            {"name": "y", "outcome": "failed", "reason": "the build ends with 1",
             "date": "2026-11-24"}]
        programs.report(lab, results)
        once = page.read_text()
        programs.report(lab, results)
        self.assertEqual(page.read_text(), once)
        self.assertTrue(once.startswith("# Above\n\n| a | b |\n\n## Programs of the lab\n"))
        self.assertIn("| a | 1 | 12 | 0 | `script.py:2 through libx.so` | FAIL | it \\| prints |\n",
                      once)
        self.assertIn("| y |  | the build ends with 1 |\n| z | 2 | no wheel |\n", once)
        self.assertIn("from 2026-11-23 to 2026-11-24", once)

    def test_page_has_the_results_of_the_other_parts(self):
        driver = {"name": "a", "driver": "535.1", "date": "2026-11-23", "outcome": "passed"}
        self.write_results("driver", driver, {**driver, "date": "2026-11-24"}, {
            "name": "b-open", "outcome": "failed", "reason": "a | b\n" + 99 * "long ",
            "date": "2026-11-24"})
        self.write_results("suites", {
            "name": "zsh", "part": "all", "version": "5.9", "outcome": "passed", "tests": 64,
            "flaky_count": 1, "date": "2026-11-22"})
        for _ in range(2):  # the second call replaces the first one's table
            results_page.write(self.checkout)
            page = (self.checkout / "tests/lab/results/README.md").read_text()
        self.assertTrue(page.startswith(results_page.ABOVE))
        self.assertEqual(page.splitlines()[-3:], [
            "| driver | NVIDIA's kernel module | 535.1 | 2 passed | 2026-11-24 |",
            f"| driver | NVIDIA's open kernel module |  | failed; a \\| b {37 * 'long '}[...] "
            "| 2026-11-24 |",
            "| suites | zsh (all) | 5.9 | passed (64 tests, 1 flaky) | 2026-11-22 |"])

    def write_results(self, part, *facts):
        file = self.checkout / f"tests/lab/results/{part}.jsonl"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(json.dumps(one) + "\n" for one in facts))

    def test_page_is_made_from_the_results(self):
        """Fails if results are committed without the page."""
        shutil.copytree(CHECKOUT / "tests/lab/results", self.checkout / "tests/lab/results")
        page = self.checkout / "tests/lab/results/README.md"
        page.unlink()
        results_page.write(self.checkout)
        self.assertEqual(page.read_text(),
                         (CHECKOUT / "tests/lab/results/README.md").read_text())


class Output(unittest.TestCase):
    def test_digits_times_and_the_guards_lines_are_ignored(self):
        text = textwrap.dedent("""\
            loss 0.25 after 1.5 s at 0x7f12ab in thread FAF8C3 of 7c:be:04 in /tmp/tmpab12/file
            %s""") % MESSAGE
        other = "loss 3 after 812 ms at 0xdeadbeef in thread 7F00AB of 27:a6:1e in /tmp/tmpzz/file\n"
        self.assertEqual(programs.normal(text), programs.normal(other))
        self.assertEqual(programs.normal("a\n" + RESULT), ["a"])

    def test_numbers_of_any_length_are_ignored(self):
        texts = {" ".join(programs.normal(f"seconds={number}\n"))
                 for number in ("8.4e-05", "8.7654321e-05", "0.00012", "0.000123456", "12", "1234567")}
        self.assertEqual(texts, {"seconds=#"})

    def test_words_are_not_ignored(self):
        self.assertNotEqual(programs.normal("cuda False\n"), programs.normal("cuda True\n"))


if __name__ == "__main__":
    unittest.main()
