# SPDX-License-Identifier: Apache-2.0
"""pytest --cudaguard works in real runs of pytest, with pytest-xdist, too."""

import os
import re

import pytest

from support import built_rows, fixtures, harness, pytest_runs, settings
from support.pytest_runs import ATTEMPT, PLUGIN

HOW = ((), ("-n", "1")) if harness.FULL else ((),)
COMMAND = "cudaguard run -- pytest --cudaguard"
NVML = 'ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2()'

CHILD = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"

SUITE = """
import ctypes, os, subprocess, sys, threading, pytest

CHILD = "@CHILD@"

def attempt():
    @ATTEMPT@

@pytest.fixture
def gpu():
    attempt()

@pytest.fixture
def late():
    yield
    attempt()

def test_clean(): pass
def test_first(): attempt()
def test_again(): attempt()
def test_between(): pass
def test_nvml(): @NVML@
def test_child(): subprocess.run([sys.executable, "-c", CHILD], check=True)
def test_grandchild():
    subprocess.run(["sh", "-c", '"$0" -c "$1"; true', sys.executable, CHILD], check=True)

def test_fork():
    child = os.fork()
    if child == 0:
        attempt()
        os._exit(0)
    os.waitpid(child, 0)

def test_thread():
    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()

@pytest.mark.cudaguard_allow
def test_allowed(): attempt()

@pytest.mark.cudaguard_allow
def test_allowed_child(): subprocess.run([sys.executable, "-c", CHILD], check=True)

@pytest.mark.xfail
def test_expected():
    attempt()
    assert False

def test_skips():
    attempt()
    pytest.skip("no GPU")

def test_setup(gpu): pass
def test_teardown(late): pass

def test_fails():
    attempt()
    assert False, "its own reason"
""".replace("@CHILD@", CHILD).replace("@ATTEMPT@", ATTEMPT).replace("@NVML@", NVML)
ASKED = {"first", "again", "child", "grandchild", "fork", "thread", "expected", "skips", "fails"}
ERRORS = {"setup", "teardown"}
PASS = {"clean", "between", "nvml", "allowed", "allowed_child"}


class Plugin(pytest_runs.Case):
    def test_control_suite_passes_without_the_option(self):
        """Control: unguarded, or without the option, the same tests pass, and the unguarded ones
        reach the driver."""
        self.make("test_all.py", SUITE)
        for guard, plugin in ((False, ()), (True, PLUGIN[:2])):
            result = self.pytest("-o", "markers=cudaguard_allow", guard=guard, plugin=plugin)
            self.assertEqual(result.rc, 1, result)
            self.assertEqual(self.outcomes(result), {
                "passed": PASS | ERRORS | ASKED - {"skips", "expected", "fails"},
                "skipped": {"skips", "expected"}, "failure": {"fails"}}, result)
            if not guard:
                result.assert_reached(self)

    def check_suite(self, *arguments):
        self.make("test_all.py", SUITE)
        result = self.pytest(*arguments, trace=not arguments)
        self.assertEqual(result.rc, 1, result)
        self.assertEqual(self.outcomes(result), {"passed": PASS, "failure": ASKED, "error": ERRORS},
                         result)
        line = 1 + SUITE.split("\n").index("    " + ATTEMPT)
        for name in ASKED - {"fails"} | ERRORS:
            text = result.cases[name][1]
            where = "<string>:1" if "child" in name else "test_all.py:%d" % line
            python = os.path.basename(pytest_runs.PYTHON)
            starter = ", started by %s -m pytest" % python if "child" in name else ""
            self.assertIn("CUDA was asked for by %s through ctypes/cffi%s (cuInit)" % (
                where, starter), text)
            pattern = "'line:%s'" % where if "child" in name else "line:" + where
            self.assertIn("to allow this: --cudaguard-allow %s, or mark the test with "
                          "@pytest.mark.cudaguard_allow" % pattern, text)
            self.assertEqual("in process " in text, name in ("child", "grandchild", "fork"), text)
        # The report has the user's line and its callers, but not the code that runs the test.
        self.assertIn("(cuInit)\n  > test_all.py:%d in attempt\n        %s\n    test_all.py:%d in "
                      "test_first\nto allow this: " % (line, ATTEMPT, 1 + SUITE.split("\n").index(
                          "def test_first(): attempt()")), result.out)
        # The message is the test's own failure. A section of the report says that it asked.
        self.assertIn("its own reason", result.cases["fails"][1])
        self.assertRegex(result.out, r"-+ cudaguard -+\nCUDA was asked for by ")
        self.assertNotIn("outside of any test", result.out)
        result.assert_untouched(self)

    def test_suite_fails_the_tests_that_ask(self):
        self.check_suite()

    def test_suite_in_workers_fails_the_tests_that_ask(self):
        self.check_suite("-n", "2")

    def test_attempts_of_pool_workers_fail_the_test(self):
        """Workers of multiprocessing find the test's report in their environment."""
        self.make("test_pools.py", """
            import ctypes, multiprocessing, pytest
            def attempt(_): return %s
            @pytest.mark.parametrize("way", ["fork", "spawn", "forkserver"])
            def test_pool(way):
                with multiprocessing.get_context(way).Pool(2) as pool:
                    assert pool.map(attempt, [1, 2]) == [100, 100]
            """ % ATTEMPT)
        result = self.pytest()
        for way in ("fork", "spawn", "forkserver"):
            outcome, text = result.cases["pool[%s]" % way]
            self.assertEqual(outcome, "failure", result)
            self.assertRegex(text, r"by test_pools\.py:3 through ctypes/cffi \(cuInit\) in process \d+: ")

    def check_marked(self, how, outcomes, *arguments, **options):
        """Checks no_cuda in a suite that runs without --cudaguard."""
        self.make("test_marked.py", """
            import ctypes, os, pytest, subprocess, sys
            CHILD = "%s"
            def attempt(): %s
            def test_other(): attempt()
            @pytest.mark.no_cuda
            def test_clean(): pass
            @pytest.mark.no_cuda
            def test_asks(): attempt()
            @pytest.mark.no_cuda
            def test_child(): subprocess.run([sys.executable, "-c", CHILD])
            @pytest.mark.no_cuda
            def test_nvml(): %s
            @pytest.mark.no_cuda
            class TestClass:
                def test_in_class(self): attempt()
                @pytest.mark.cudaguard_allow
                def test_may(self): attempt()
            @pytest.mark.skip
            @pytest.mark.no_cuda
            def test_skipped(): pass
            def test_last(): attempt()
            """ % (CHILD, ATTEMPT, NVML))
        result = self.pytest(*how, *arguments, "--strict-markers", plugin=PLUGIN[:2], **options)
        self.assertEqual((result.rc, self.outcomes(result)),
                         (1, {**outcomes, "skipped": {"skipped"}}), result)
        return result

    def test_marked_test_that_asks_fails(self):
        """A marked test fails if it asks. Tests without the marker are unchanged."""
        self.make("conftest.py", "import ctypes\n%s\n" % ATTEMPT)
        for how in HOW:
            result = self.check_marked(how, {
                "passed": {"other", "clean", "nvml", "may", "last"},
                "failure": {"asks", "child", "in_class"}})
            self.assertIn("CUDA was asked for by test_marked.py:4 through ctypes/cffi (cuInit)",
                          result.cases["asks"][1])
            for text in ("outside of any test", "a test that asks", "- cudaguard -"):
                self.assertNotIn(text, result.out)

    def test_marked_test_follows_the_suites_options(self):
        self.check_marked(("--cudaguard-deny=nvml",), {
            "passed": {"other", "clean", "asks", "child", "in_class", "may", "last"},
            "failure": {"nvml"}})
        self.check_marked(("--cudaguard-allow=line:test_marked.py:4",), {
            "passed": {"other", "clean", "asks", "nvml", "in_class", "may", "last"},
            "failure": {"child"}})

    def test_marked_test_passes_its_records_on(self):
        report = self.path("report")
        self.make("test_all.py", "import ctypes, pytest\ndef test_1(): %s\n"
                  "@pytest.mark.no_cuda\ndef test_2(): %s\n" % (ATTEMPT, ATTEMPT))
        self.pytest(plugin=PLUGIN[:2], env={"CUDAGUARD_REPORT": report})
        self.assertEqual([record["code"] for record in harness.records(report)],
                         ["test_all.py:2", "test_all.py:4"])

    def test_marked_test_without_the_guard_is_an_error(self):
        """Each marked test is an error that names the command. The other tests run."""
        for how, reason in (({"guard": False}, "the guard is not loaded in this process"),
                            ({"env": {"CUDAGUARD_POLICY": "OFF"}}, "CUDA is allowed in this process")):
            result = self.check_marked((), {
                "passed": {"other", "may", "last"},
                "error": {"clean", "asks", "child", "nvml", "in_class"}}, **how)
            self.assertRegex(result.cases["clean"][1],
                             'no_cuda: %s.*; start the tests with cudaguard run -- pytest' % reason)

    def test_fixture_has_the_attempts_of_its_test(self):
        """The fixture has this test's attempts so far, also those of its processes."""
        self.make("test_all.py", """
            import ctypes, pytest, subprocess, sys
            def test_other(): %s
            def test_own(cudaguard_attempts):
                assert not cudaguard_attempts and cudaguard_attempts == []
                %s
                (attempt,) = cudaguard_attempts
                assert (attempt.kind, attempt.api, attempt.library) == ("init", "cuInit", "ctypes/cffi")
                assert attempt.code == "test_all.py:6" and attempt.line().function == "test_own"
                %s
                %s
                assert [one.code for one in cudaguard_attempts] == [
                    "test_all.py:%%d" %% line for line in (6, 10, 11)]
                assert cudaguard_attempts[-1].kind == "nvml" and len(cudaguard_attempts) == 3
                assert "CUDA was asked for by test_all.py:6 through" in repr(cudaguard_attempts)
            def test_none(cudaguard_attempts): assert not cudaguard_attempts
            def test_child(cudaguard_attempts):
                subprocess.run([sys.executable, "-c", "%s"])
                assert [one.api for one in cudaguard_attempts] == ["cuInit"]
            def test_fails(cudaguard_attempts):
                %s
                assert not cudaguard_attempts
            """ % (ATTEMPT, ATTEMPT, ATTEMPT, NVML, CHILD, ATTEMPT))
        for how in HOW:
            result = self.pytest(*how, plugin=PLUGIN[:2])
            self.assertEqual(self.outcomes(result), {
                "passed": {"other", "own", "none", "child"}, "failure": {"fails"}}, result)
            self.assertIn("CUDA was asked for by test_all.py:21 through ctypes/cffi (cuInit)",
                          result.cases["fails"][1])
        # An attempt that the test has read still fails it under --cudaguard.
        result = self.pytest()
        self.assertEqual(self.outcomes(result), {
            "passed": {"none"}, "failure": {"other", "own", "child", "fails"}}, result)
        # With CI in the environment, pytest's short summary repeats all lines.
        self.assertIn("  > test_all.py:6 in test_own\n", result.out, result)

    def test_fixture_without_the_guard_is_an_error(self):
        self.make("test_all.py", "def test_1(cudaguard_attempts): pass\n")
        result = self.pytest(guard=False, plugin=PLUGIN[:2])
        self.assertIn("cudaguard_attempts: the guard is not loaded", result.cases["1"][1], result)
        self.assertIn("; start the tests with cudaguard run -- pytest", result.cases["1"][1])

    def test_nearest_marker_counts(self):
        """This also holds with --cudaguard."""
        self.make("test_all.py", """
            import ctypes, pytest
            pytestmark = pytest.mark.cudaguard_allow
            def test_may(): %s
            @pytest.mark.no_cuda
            def test_may_not(): %s
            """ % (ATTEMPT, ATTEMPT))
        for more in ((), ("-n", "1")):
            result = self.pytest("--tb=line", *more)
            self.assertEqual(self.outcomes(result), {"passed": {"may"}, "failure": {"may_not"}},
                             result)
            self.assertRegex(result.out,
                             r"(?m)^/\S+/test_all.py:5: CUDA was asked for by test_all.py:6 ")

    def test_import_that_asks_is_an_error(self):
        """A module that asks when it is imported is an error, once. All tests run."""
        self.make("other.py", "import ctypes\n%s\n" % ATTEMPT)
        self.make("test_asks.py", "import other\ndef test_1(): pass\n")
        self.make("test_asks_no_more.py", "import other\ndef test_2(): pass\n")
        self.make("test_may.py", "import ctypes, pytest\npytestmark = pytest.mark.cudaguard_allow\n"
                  "%s\ndef test_3(): pass\n" % ATTEMPT)
        for arguments in ((), ("-n", "2")) if settings.ALL else ((),):
            result = self.pytest(*arguments)
            self.assertEqual((result.rc, self.outcomes(result)),
                             (1, {"passed": {"1", "2", "3"}, "error": {"asks"}}), result)
            self.assertEqual(result.out.count("ERROR collecting "), 1, result)
            self.assertIn("ERROR collecting test_asks.py", result.out)
            self.assertIn("CUDA was asked for by other.py:2 through ctypes/cffi (cuInit)", result.out)
            self.assertIn("or write pytestmark = pytest.mark.cudaguard_allow into the module", result.out)
            self.assertNotIn("outside of any test", result.out)

    def test_last_failed_keeps_an_import_that_asks(self):
        """pytest's cache forgets a failed collection when the collector's own report passes."""
        self.make("test_asks.py", "import ctypes\n%s\ndef test_asks(): pass\n" % ATTEMPT)
        self.make("test_fails.py", "def test_fails(): assert 0\n")
        self.make("test_good.py", "def test_good(): pass\n")
        for arguments in ((), ("-n", "2")) if settings.ALL else ((),):
            for last_failed in (), ("--lf",), ("--lf",):
                result = self.pytest("-p", "cacheprovider", *last_failed, *arguments)
                self.assertEqual(result.out.count("ERROR collecting test_asks.py"), 1, result)
                self.assertEqual("good" in result.cases, not last_failed, result)
            named = self.pytest("-x", "test_asks.py::test_asks", *arguments)
            self.assertEqual(named.out.count("ERROR collecting test_asks.py"), 1, named)

    def test_other_collection_errors_stop_pytest_as_usual(self):
        """pytest stops as usual, and -x stops at an import that asks, too."""
        self.make("test_asks.py", "import ctypes\n%s\ndef test_asks(): pass\n" % ATTEMPT)
        self.make("test_good.py", "def test_good(): pass\n")
        for names in ((), ("test_asks.py::test_asks", "test_good.py::test_good")):
            self.assertNotIn("good", self.pytest("-x", *names).cases)
        self.make("test_broken.py", "import ctypes\n%s\nassert False, 'its own'\n" % ATTEMPT)
        result = self.pytest()
        self.assertEqual(result.rc, 2, result)
        self.assertIn("Interrupted: 1 error during collection", result.out)
        self.assertIn("its own", result.out)
        self.assertNotIn("good", result.cases)

    def test_conftest_that_asks_is_reported(self):
        self.make("conftest.py", "import ctypes\n%s\n" % ATTEMPT)
        self.make("test_good.py", "def test_good(): pass\n")
        for arguments in HOW:
            result = self.pytest(*arguments)
            self.assertEqual((result.rc, self.outcomes(result)), (1, {"passed": {"good"}}), result)
            self.assertIn("while conftest.py was imported: CUDA was asked for by", result.out)

    def test_attempts_before_the_plugin_are_reported(self):
        """An earlier plug-in has asked: the line is unknown, but the attempt is not ignored."""
        self.make("early.py", "import ctypes\n%s\n" % ATTEMPT)
        self.make("test_good.py", "def test_good(): pass\n")
        result = self.pytest(plugin=("-p", "early", *PLUGIN))
        self.assertEqual(result.rc, 1, result)
        self.assertIn("1 call before the plug-in was loaded", result.out)

    def test_attempt_after_the_test_ends_is_reported(self):
        self.make("test_late.py", """
            import os, subprocess, sys, time
            def test_starts():
                os.mkfifo("go")
                subprocess.Popen([sys.executable, "-c", "import ctypes; open('go').read(); "
                    "ctypes.CDLL('libcuda.so.1').cuInit(0); open('done', 'w')"],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            def test_waits():
                open("go", "w").close()
                while not os.path.exists("done"): time.sleep(0.05)
            """)
        for arguments in HOW:
            result = self.pytest(*arguments)
            self.assertEqual((result.rc, self.outcomes(result)),
                             (1, {"passed": {"starts", "waits"}}), result)
            self.assertIn("after test_late.py::test_starts, by a process that it started: CUDA was "
                          "asked for by", result.out)
            for name in ("done", "go"):
                os.unlink(self.path(name))

    def test_temporary_files_are_removed(self):
        self.make("test_all.py", "import ctypes\ndef test_own(): %s\n" % ATTEMPT)
        os.mkdir(self.path("tmp"))
        self.pytest("-n", "1", "--basetemp", self.path("base"), env={"TMPDIR": self.path("tmp")})
        self.assertEqual(os.listdir(self.path("tmp")), [])


make_plugin_case = fixtures.lent("plugin_case", Plugin)


@pytest.mark.parametrize("arguments", HOW)
@pytest.mark.parametrize(
    ("guard", "env", "reason"),
    [(False, {}, "the guard is not loaded in this process, or is an older one"),
     (True, {"CUDAGUARD_POLICY": "VALIDATE"}, "CUDA is allowed in this process")])
def test_option_without_the_guard_is_an_error(plugin_case, guard, env, reason, arguments):
    """There is one clear error before any test runs, and the exit code is 4, pytest's for wrong
    use."""
    plugin_case.make("test_all.py", SUITE)
    result = plugin_case.pytest(*arguments, guard=guard, env=env)
    assert result.rc == 4, str(result)
    assert len(result.err.strip().splitlines()) == 1, str(result)
    assert re.search("ERROR: --cudaguard: %s.*%s$" % (reason, COMMAND), result.err.strip())
    assert (result.cases, result.init_calls()) == ({}, []), str(result)


@pytest.mark.parametrize(
    ("words", "failed"),
    [(["opencl", "nvml"], {"opencl", "nvml"}),
     *([(["init,nvml"], {"cuda", "nvml"})] if harness.FULL else [])])
def test_deny_option_selects_what_fails(plugin_case, words, failed):
    plugin_case.make("test_two.py", """
            import ctypes
            def test_cuda(): %s
            def test_nvml(): %s
            def test_opencl():
                try: ctypes.CDLL("libnvidia-opencl.so.1")
                except OSError: pass
            """ % (ATTEMPT, NVML))
    result = plugin_case.pytest(*("--cudaguard-deny=" + word for word in words))
    assert plugin_case.outcomes(result).get("failure") == failed, str(result)


@pytest.mark.parametrize(("pattern", "failed"), [("line:test_two.py:3", {"import"}),
                                                 ("module:other", {"cuda"})])
def test_allow_option_permits_code(plugin_case, pattern, failed):
    """tests/vectors has the patterns."""
    plugin_case.make("other.py", "import ctypes\n%s\n" % ATTEMPT)
    plugin_case.make("test_two.py", """
            import ctypes
            def test_cuda(): %s
            def test_import(): import other
            """ % ATTEMPT)
    result = plugin_case.pytest("--cudaguard-allow", pattern)
    assert plugin_case.outcomes(result).get("failure") == failed, str(result)


def test_wrong_use_of_an_option_is_an_error(plugin_case):
    result = plugin_case.pytest("--cudaguard-report=report", plugin=PLUGIN[:2])
    assert result.rc == 4 and "--cudaguard-report needs --cudaguard" in result.err, str(result)
    for option, pattern, accepted in (
            ("allow", "lib:", ""),
            ("deny", "init,gpu", " (accepted: %s)" % ", ".join(built_rows.DENIED))):
        result = plugin_case.pytest("--cudaguard-%s=%s" % (option, pattern))
        assert result.rc == 4, str(result)
        pattern = pattern.rpartition(",")[2]
        assert '--cudaguard-%s "%s" is not accepted%s' % (option, pattern, accepted) in result.err
