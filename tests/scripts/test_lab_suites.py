# SPDX-License-Identifier: Apache-2.0
"""How scripts/lab suites reads the output of test suites, and how it compares the runs."""

import types
import unittest


from lab import results_of, suites

TAP = """=== t0000-basic.sh
ok 1 - verify that the running shell supports "local"
ok 2 # skip missing PERL
not ok 3 - fails
not ok 4 - known breakage # TODO known breakage
    ok 1 - of a subtest
ok 5 - twice
ok 6 - twice
# passed all
1..6
=== t0001-init.sh
ok 1 - verify that the running shell supports "local"
"""
REGRTEST = """== CPython 3.11.2 (main, Nov 30 2024, 21:22:50) [GCC 12.2.0]
0:00:03 load avg: 1.20 [  1/433] test_grammar passed
test_backslash (test.test_grammar.TokenTests.test_backslash) ... ok
test_long (test.test_grammar.TokenTests.test_long)
The docstring of a test. ... FAIL
test_one (test.test_x.Test.test_one) ... skipped 'no reason'
test_two (test.test_x.Test.test_two) ... expected failure
test_three (test.test_x.Test.test_three) ... warnings.py:1: UserWarning: a warning
  ok = 1
Child (4711) exited with code 4.
skipped 'no GPU'
0:00:09 load avg: 1.90 [ 12/433/1] test_os failed (1 failure)
0:00:09 load avg: 1.90 [ 13/433/1] test_tk skipped (resource denied)
0:00:10 load avg: 1.90 [ 14/433/1] test_asyncio.test_events passed
"""


class Readers(unittest.TestCase):
    def test_tap_has_the_names_of_files_and_no_subtests(self):
        self.assertEqual(results_of.tap(TAP), {
            't0000-basic.sh: verify that the running shell supports "local"': "ok",
            "t0000-basic.sh: 2": "skipped", "t0000-basic.sh: fails": "failed",
            "t0000-basic.sh: known breakage": "ok", "t0000-basic.sh: twice": "ok",
            "t0000-basic.sh: twice #2": "ok",
            't0001-init.sh: verify that the running shell supports "local"': "ok"})

    def test_regrtest_has_files_and_tests(self):
        self.assertEqual(results_of.regrtest(REGRTEST), {
            "test_grammar": "ok", "test.test_grammar.TokenTests.test_backslash": "ok",
            "test.test_grammar.TokenTests.test_long": "failed",
            "test.test_x.Test.test_one": "skipped", "test.test_x.Test.test_two": "ok",
            "test.test_x.Test.test_three": "skipped", "test_os": "failed", "test_tk": "skipped",
            "test_asyncio.test_events": "ok"})

    def test_automake_reader_gives_the_result_of_each_test(self):
        self.assertEqual(
            results_of.automake("PASS: tests/a.sh\nFAIL: tests/b.sh\nSKIP: c.pl\nXFAIL: d\n"
                                "# PASS:  2\nERROR: e\n"),
            {"tests/a.sh": "ok", "tests/b.sh": "failed", "c.pl": "skipped", "d": "ok",
             "e": "failed"})

    def test_pytest_reader_gives_the_result_of_each_test(self):
        text = ("test/a.py::T::test_x[1-2 3] PASSED          [  1%]\n"
                "test/a.py::test_y SKIPPED (no GPU)          [ 50%]\n"
                "test/a.py::test_z FAILED                    [100%]\nFAILED test/a.py::test_z\n")
        with self.assertRaisesRegex(ValueError, "pytest did not finish"):
            results_of.pytest(text)
        text += "============= 1 failed, 1 passed, 1 skipped in 61.02s (0:01:01) =============\n"
        self.assertEqual(results_of.pytest(text),
                         {"test/a.py::T::test_x[1-2 3]": "ok", "test/a.py::test_y": "skipped",
                          "test/a.py::test_z": "failed"})

    def test_perl_reader_gives_the_result_of_each_file(self):
        self.assertEqual(
            results_of.perl("t/base/cond ....................... ok\nop/a.t ... skipped\n"
                            "t/io/b ..... FAILED at test 3\nt/io/c .... # Failed\n"),
            {"t/base/cond": "ok", "op/a.t": "skipped", "t/io/b": "failed", "t/io/c": "failed"})

    def test_sqlite_reader_gives_the_result_of_each_test(self):
        text = ("a-1.1... Ok\na-1.2...\n! a-1.2 expected: [1]\n! a-1.2 got:      [2]\n"
                "a-1.3... Omitted\n")
        self.assertEqual(results_of.sqlite(text),
                         {"a-1.1": "ok", "a-1.2": "failed", "a-1.3": "skipped"})

    def test_zsh_reader_gives_the_result_of_each_file(self):
        text = ("./A01grammar.ztst: starting.\n./A01grammar.ztst: all tests successful.\n"
                "./B01cd.ztst: starting.\n./B01cd.ztst: test failed.\n"
                "./V08zpty.ztst: skipped (no zpty)\n")
        self.assertEqual(results_of.zsh(text), {"A01grammar.ztst": "ok", "B01cd.ztst": "failed",
                                                "V08zpty.ztst": "skipped"})

    def test_openssh_reader_gives_the_result_of_each_test(self):
        self.assertEqual(results_of.openssh("run test connect.sh ...\nok simple connect\n"
                                            "failed sftp chroot\nSKIPPED: no sudo\n"),
                         {"simple connect": "ok", "sftp chroot": "failed", "no sudo": "skipped"})

    def test_test_whose_output_differs_is_failed(self):
        text = ("=== run-alias\nwarning: none\n=== run-array\n3c3\n< a\n---\n> b\n"
                "=== run-x\n12,13d11\n")
        self.assertEqual(results_of.differences(text),
                         {"run-alias": "ok", "run-array": "failed", "run-x": "failed"})


class Comparison(unittest.TestCase):
    def test_flaky_and_differing_tests_are_distinguished(self):
        unguarded = {"same": "ok", "flaky": "ok", "differs": "ok", "gone": "ok"}
        guarded = {"same": "ok", "flaky": "failed", "differs": "failed", "more": "ok"}
        again = {"same": "ok", "flaky": "failed", "differs": "ok", "gone": "ok"}
        differing, flaky = results_of.compared(unguarded, guarded, again)
        self.assertEqual(differing, {"differs": ["ok", "failed", "ok"],
                                     "gone": ["ok", "missing", "ok"],
                                     "more": ["missing", "ok", "missing"]})
        self.assertEqual(flaky, {"flaky": ["ok", "failed", "failed"]})

    def judged(self, differing, tests=5):
        row = suites.Row("a", "all", (), "tap", 3, known=(("^known", "a reason"),))
        return suites.judged(row, [dict.fromkeys(range(tests), "ok")] * 3, differing)

    def test_equal_results_pass(self):
        self.assertEqual(self.judged({}), {"outcome": "passed"})

    def test_known_difference_has_its_reason(self):
        facts = self.judged({"known one": ["ok", "failed", "ok"]})
        self.assertEqual((facts["outcome"], facts["reason"]), ("differs", "a reason"))

    def test_unknown_difference_fails(self):
        facts = self.judged({"known one": [], "other": ["ok", "failed", "ok"]})
        self.assertEqual((facts["outcome"], facts["reason"]), ("failed", "1 tests differ: other"))

    def test_run_without_tests_fails(self):
        self.assertEqual(self.judged({}, 2)["outcome"], "failed")

    def test_first_error_is_the_reason(self):
        self.assertEqual(suites.reason("a\nfatal: b\nc\n"), "fatal: b")
        self.assertEqual(suites.reason("a\nc\n"), "c")


def test_every_row_has_a_reader_and_a_script():
    for row in suites.rows(types.SimpleNamespace()):
        assert callable(getattr(results_of, row.reader)), row.name
        for function in ("get", "build", "tests"):
            assert f"\n{function}() {{" in row.script, row.name
