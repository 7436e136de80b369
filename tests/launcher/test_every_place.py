# SPDX-License-Identifier: Apache-2.0
"""verify and reports name every place in the code that asks for CUDA, not only the first one of a
process. The guard's message stays one per process and kind."""

import os
import sys
import sysconfig

import pytest

from support import harness, launcher, messages
from launcher import test_verify_tree
from support.observed import box

TWO = """import ctypes
def first(): ctypes.CDLL("libcuda.so.1").cuInit(0)
def second(): ctypes.CDLL("libcuda.so.1").cuInit(0)
first()
second()
"""
# The same line asks from many stacks, and one stack asks often.
LOOP = """import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def ask(depth): return ask(depth - 1) if depth else cuda.cuInit(0)
for depth in range(200): ask(depth)
for i in range(20000): ask(0)
"""
# Each code object is freed before the next one is made, and most often has the same address. So
# does the name of its file.
NAMES = """import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
for i in range(20):
    open("%s/cell%02d.py" % (sys.argv[1], i), "w").close()
    exec(compile("cuda.cuInit(0)", "%s/cell%02d.py" % (sys.argv[1], i), "exec"), {"cuda": cuda})
"""
# The same, but all lines are in one file, as in the scripts that sphinx-gallery runs.
BLOCKS = """import ast, ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
for number, block in enumerate(open(sys.argv[1])):
    tree = ast.increment_lineno(ast.parse(block), number)
    exec(compile(tree, sys.argv[1], "exec"), {"cuda": cuda})
"""
# One line asks through one module after another.
MODULES = """import importlib, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    importlib.import_module(name)
"""


class Case(test_verify_tree.Case):
    def interpreter(self, *words):
        return [sys.executable, *words]

    def lines(self):
        """The lines that the result names."""
        return [place["line"] for place in self.document["places"]]

    def recorded(self, words, **env):
        """Runs the words with the guard preloaded. Returns the lines of the records and the
        messages."""
        report = self.path("report.jsonl")
        result = harness.run(words, world="none", trace=False,
                             env=box.environment(CUDAGUARD_REPORT=report, **env))
        self.assertEqual((result.rc, result.fake_calls), (0, []), result)
        lines = [record.get("code", "") for record in harness.records(report)]
        return lines, [line for line in result.err.splitlines() if line.startswith("cudaguard[")]


class Verify(Case):
    def test_line_that_asks_after_an_allowed_line_fails(self):
        program = self.make("two.py", TWO)
        words = self.interpreter(program)
        result, _ = self.tree(words, ["--allow", "line:two.py:2"])
        self.ends(result, 1, "FAIL: 1 line asked for CUDA, in 1 of", "two.py:3 in second",
                  "  allowed: ", "two.py:2 in f")
        self.assertEqual(self.lines(), ["two.py:2", "two.py:3"], result)
        result, _ = self.tree(words, ["--allow", "line:two.py:[23]"])
        self.ends(result, 0, "PASS: no CUDA use except in 1 allowed process")
        unguarded = harness.run(words, world="none", guard=False, trace=False,
                                env=box.environment())
        self.assertIn("cuInit:initialised", unguarded.fake_calls, unguarded)

    def test_module_that_asks_after_an_allowed_module_fails(self):
        packages = os.path.join(self.path("environment"), "site-packages")
        os.makedirs(packages)
        for name in ("trainer", "tool"):
            with open(os.path.join(packages, name + ".py"), "w", encoding="utf-8") as stream:
                stream.write("import ctypes\nctypes.CDLL('libcuda.so.1').cuInit(0)\n")
        words = self.interpreter(self.make("modules.py", MODULES), packages, "trainer", "tool")
        result, _ = self.tree(words, ["--allow", "module:trainer"])
        self.ends(result, 1, "FAIL: 1 line asked for CUDA", "tool.py:2 in <module>")
        self.assertEqual(self.lines(), ["modules.py:4"], result)
        result, _ = self.tree(words, ["--allow", "module:trainer", "--allow", "module:tool"])
        self.ends(result, 0, "PASS: no CUDA use except in 1 allowed process")
        unguarded = harness.run(words, world="none", guard=False, trace=False,
                                env=box.environment())
        self.assertEqual(unguarded.fake_calls.count("cuInit"), 2, unguarded)

    def test_place_in_native_code_is_its_return_address(self):
        result, _ = self.tree([launcher.program("native")])
        self.ends(result, 1, "FAIL: 2 lines asked for CUDA")
        self.assertEqual(self.lines(), ["native.c:%d" % launcher.line_of("native.c", mark)
                                        for mark in ("asks first", "asks often")], result)

    def test_limit_lines_that_ask_through_one_call_of_a_runtime(self):
        """Both lines call the runtime, which calls cuInit at one place."""
        result, _ = self.tree([launcher.program("runtime_user")])
        self.ends(result, 1, "FAIL: 1 line asked for CUDA")
        self.assertEqual(self.lines(), ["runtime_user.c:%d" % launcher.line_of("runtime_user.c", "asks first")], result)

    def test_limit_python_that_was_loaded_after_an_attempt(self):
        library = os.path.join(sysconfig.get_config_var("LIBDIR") or "",
                               sysconfig.get_config_var("INSTSONAME") or "")
        if ".so" not in library or not os.path.exists(library):
            harness.skip(self, "no shared libpython (python3-dev)")
        program = launcher.program("embeds")
        result, _ = self.tree([program, library])
        self.ends(result, 1, "FAIL: 2 lines asked for CUDA", "<string>:3", "<string>:4")
        result, _ = self.tree([program, library, "first"])
        self.ends(result, 1, "FAIL: 1 place asked for CUDA")

    def test_repeated_call_is_reported_once(self):
        program = self.make("loop.py", LOOP)
        report = self.path("report.jsonl")
        result, _ = self.tree(self.interpreter(program), ["--report", report])
        self.ends(result, 1, "FAIL: 1 line asked for CUDA")
        asked = [record for record in harness.records(report) if "api" in record]
        self.assertEqual(len(asked), 1, asked)

    def test_code_of_the_same_file_in_place_of_freed_code_is_new(self):
        script = self.make("script.py", "cuda.cuInit(0)\n" * 20)
        result, _ = self.tree(self.interpreter(self.make("blocks.py", BLOCKS), script))
        self.ends(result, 1, "FAIL: 20 lines asked for CUDA")

    def test_file_name_in_place_of_a_freed_one_is_new(self):
        result, _ = self.tree(self.interpreter(self.make("names.py", NAMES), self.directory))
        self.ends(result, 1, "FAIL: 20 lines asked for CUDA")

    def test_library_in_place_of_an_unloaded_one_is_new(self):
        libraries = [self.copied("asks.so", "trainer.so"), self.copied("asks.so", "tool.so")]
        words = [launcher.program("each"), *libraries]
        unguarded = harness.run(words, world="none", guard=False, trace=False,
                                env=box.environment())
        addresses = {line.split()[0] for line in unguarded.out.splitlines()}
        self.assertEqual(len(addresses), 1, unguarded)  # the control
        result, _ = self.tree(words, ["--allow", "lib:trainer.so"])
        self.ends(result, 1, "cuInit by tool.so", "  allowed: trainer.so")

    @pytest.mark.all
    def test_more_places_than_a_guard_records_are_incomplete(self):
        most = 2048
        for count, rc, doubts in ((most, 0, 0), (most + 1, 3, 1)):
            program = self.make("many.py", "import ctypes\nf = ctypes.CDLL('libcuda.so.1').cuInit\n"
                                + "f(0)\n" * count)
            report = self.path("report%d.jsonl" % count)
            result, tree = self.tree(self.interpreter(program),
                                     ["--allow", "line:many.py:*", "--report", report])
            self.assertEqual(result.rc, rc, result.err[-2000:])
            self.assertEqual(len(tree["doubts"]), doubts, tree["doubts"])
            records = [record for record in harness.records(report) if "api" in record]
            self.assertEqual([record.get("last_place") for record in records],
                             [None] * most + [True] * doubts)
            for record in records[-2:]:
                self.validates(record, "guard", "record", "record.schema.json")
        self.assertRegex(tree["doubts"][0],
                         r"^python\S* \(\d+\) asked from more places than a guard records$")


class Recorded(Case):
    """The same with a report and without verify."""

    def test_report_has_every_line_and_the_message_is_one(self):
        program = self.make("two.py", TWO)
        lines, printed = self.recorded(self.interpreter(program))
        self.assertEqual((lines, len(printed)), (["two.py:2", "two.py:3"], 1), printed)

    @pytest.mark.all
    def test_full_table_of_places_loses_no_message(self):
        """Each function that asks later is reported, and one that is known once more."""
        program = self.make("many.py", "import ctypes\nnvml = ctypes.CDLL('libnvidia-ml.so.1')\n" +
                            "nvml.nvmlInit()\n" * 2060 + "ctypes.CDLL('libcuda.so.1').cuInit(0)\n")
        lines, printed = self.recorded(self.interpreter(program))
        self.assertEqual((len(lines), lines[-1]), (2048 + 3, "many.py:2063"), lines[-3:])
        self.assertEqual([bool(messages.find(line, "no_cuda")) for line in printed], [False, True])
