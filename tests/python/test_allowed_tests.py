# SPDX-License-Identifier: Apache-2.0
"""pytest --cudaguard-allow-mark: marked tests may use CUDA, the other tests of the session may not.

The fake driver answers 0 to cuInit, the null driver 100.
"""

import os

import pytest

from support import fixtures, harness, pytest_runs
from support.pytest_runs import ATTEMPT, PLUGIN

pytestmark = pytest.mark.all  # each test starts two or more pytests

HOW = ((), ("-n", "2"))
ALLOW = "--cudaguard-allow-mark=gpu"
ENV = {"PATH": os.path.join(harness.BUILD, "bin") + ":" + os.environ["PATH"]}

SUITE = """
import ctypes, pytest

def ask(): return ATTEMPT

@pytest.mark.gpu
def test_gpu(): assert ask() == 0
def test_cpu(): assert ask() == 100
def test_clean(): pass
@pytest.mark.gpu
def test_gpu_fails(): assert ask() == 7, "its own reason"
@pytest.mark.gpu
@pytest.mark.skip
def test_gpu_skips(): pass
@pytest.mark.gpu
class TestClass:
    def test_in_class(self): assert ask() == 0
    @pytest.mark.no_cuda
    def test_not_here(self): ask()
    @pytest.mark.cudaguard_allow
    def test_may_ask(self): assert ask() == 100
""".replace("ATTEMPT", ATTEMPT)
BOTH = "import pytest\n@pytest.mark.gpu\ndef test_gpu(): pass\ndef test_cpu(): pass\n"
OUTCOMES = {"passed": {"gpu", "clean", "in_class", "may_ask"},
            "failure": {"cpu", "gpu_fails", "not_here"}, "skipped": {"gpu_skips"}}


fixture_case = fixtures.lent("case", pytest_runs.Case)


def run(case, *arguments, env=None, **options):
    return case.pytest(ALLOW, *arguments, env={**ENV, **(env or {})}, **options)


def order_of(text):
    """The tests in the order in which pytest -v has reported them, each once."""
    names = [line.partition("::")[2].split()[0] for line in text.splitlines()
             if line.startswith("test_all.py::")]
    return list(dict.fromkeys(name.rpartition("::")[2] for name in names))


def test_control_all_tests_reach_the_driver_without_the_guard(case):
    case.make("test_all.py", SUITE)
    result = case.pytest("-o", "markers=gpu no_cuda cudaguard_allow", guard=False, plugin=())
    result.assert_reached(case)
    assert "assert 0 == 100" in result.cases["cpu"][1], str(result)
    assert "assert 0 == 100" in result.cases["may_ask"][1], str(result)


@pytest.mark.parametrize("arguments", [*HOW, ("-p", "forked"), ("-p", "forked", "-n", "2")])
def test_only_marked_tests_reach_the_driver(case, arguments):
    """There is one summary of all tests. The nearest mark counts."""
    case.make("test_all.py", SUITE)
    case.make("forked.py", pytest_runs.FORKED)
    result = run(case, "--strict-markers", *arguments)
    assert (result.rc, case.outcomes(result)) == (1, OUTCOMES), str(result)
    assert "3 failed, 4 passed, 1 skipped" in result.out
    assert "CUDA was asked for by test_all.py:4 through" in result.cases["cpu"][1]
    assert "its own reason" in result.cases["gpu_fails"][1]
    result.assert_reached(case)


def test_marked_tests_run_last(case):
    case.make("test_all.py", SUITE)
    result = run(case, "-v")
    order = order_of(result.out)
    assert order == ["test_cpu", "test_clean", "test_not_here", "test_may_ask", "test_gpu",
                     "test_gpu_fails", "test_gpu_skips", "test_in_class"], str(result)
    assert "[100%]" in result.out


def test_collect_only_shows_all_tests(case):
    case.make("test_all.py", SUITE)
    result = run(case, "--collect-only", "-q")
    assert "test_all.py::test_gpu\n" in result.out, str(result)
    assert result.init_calls() == [], str(result)


@pytest.mark.parametrize("arguments", HOW)
@pytest.mark.parametrize(("chosen", "passed"), [
    ("in_class or test_gpu and not test_gpu_", {"gpu", "in_class"}), ("clean", {"clean"})])
def test_one_kind_of_tests_is_enough(case, chosen, passed, arguments):
    """Without a marked test, there is no second pytest."""
    case.make("test_all.py", SUITE)
    case.make("conftest.py", "open('started', 'a').write('x')\n")
    result = run(case, "-k", chosen, *arguments)
    assert (result.rc, case.outcomes(result)) == (0, {"passed": passed}), str(result)
    starts = len(harness.read(case.path("started")))
    one_pytest = 1 + (2 if arguments else 0)
    assert starts == one_pytest * (1 if chosen == "clean" else 2), str(result)


@pytest.mark.parametrize("arguments", HOW)
def test_unittest_suite_is_divided_by_marks(case, arguments):
    case.make("test_all.py", """
        import ctypes, pytest, unittest
        def ask(): return %s
        class TestOne(unittest.TestCase):
            def test_cpu(self): self.assertEqual(ask(), 100)
            @pytest.mark.gpu
            def test_gpu(self): self.assertEqual(ask(), 0)
        @pytest.mark.gpu
        class TestTwo(unittest.TestCase):
            @classmethod
            def setUpClass(cls): cls.answer = ask()
            def test_class(self): self.assertEqual(self.answer, 0)
            def test_subtests(self):
                with self.subTest("one"): self.assertEqual(ask(), 0)
        """ % ATTEMPT)
    result = run(case, *arguments)
    assert case.outcomes(result) == {"failure": {"cpu"}, "passed": {"gpu", "class", "subtests"}}, (
        str(result))


def test_module_with_the_mark_may_ask_when_it_is_imported(case):
    """The first pytest imports it, too, and gets "no device" there."""
    case.make("test_all.py", """
        import ctypes, pytest
        pytestmark = pytest.mark.gpu
        answer = %s
        def test_gpu(): assert answer == 0
        """ % ATTEMPT)
    result = run(case)
    assert (result.rc, case.outcomes(result)) == (0, {"passed": {"gpu"}}), str(result)


def test_fixtures_of_the_session_are_made_once_for_the_marked_tests(case):
    case.make("test_all.py", """
        import pytest
        @pytest.fixture(scope="session")
        def made():
            with open("made", "a") as stream: stream.write("x")
        @pytest.mark.gpu
        def test_1(made): pass
        def test_2(): pass
        @pytest.mark.gpu
        def test_3(made): pass
        """)
    result = run(case)
    assert result.rc == 0, str(result)
    assert os.path.getsize(case.path("made")) == 1


def test_marked_tests_have_the_users_environment(case):
    """`cudaguard run` has set a preset, which a marked test must not have. It must have the
    module path of the first pytest, too."""
    case.make("test_all.py", """
        import os, sys, pytest
        def test_cpu(): assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
        @pytest.mark.gpu
        def test_gpu():
            assert "CUDA_VISIBLE_DEVICES" not in os.environ
            assert os.environ["OWN"] == "set by conftest.py"
            assert os.environ["CUDAGUARD_REPORT"] == %r
            assert "/added" in sys.path
        """ % case.path("report"))
    case.make("conftest.py", "import os, sys\nos.environ['OWN'] = 'set by conftest.py'\n"
              "if 'CUDA_VISIBLE_DEVICES' in os.environ: sys.path.append('/added')\n")
    result = run(case, env={"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu",
                            "CUDAGUARD_PRESETS": "CUDA_VISIBLE_DEVICES,JAX_PLATFORMS",
                            "CUDAGUARD_REPORT": case.path("report")})
    assert (result.rc, case.outcomes(result)) == (0, {"passed": {"cpu", "gpu"}}), str(result)


@pytest.mark.parametrize(("option", "first", "second", "ran"), [
    ("-x", "assert False", "pass", {"cpu"}), ("-x", "pass", "assert False", {"cpu", "gpu"}),
    ("-x", "pass", "pass", {"cpu", "gpu", "last"}),
    # Of two failures that are allowed, one is in each pytest.
    ("--maxfail=2", "assert False", "assert False", {"cpu", "gpu"})])
def test_failures_stop_the_session(case, option, first, second, ran):
    case.make("test_all.py", """
        import pytest
        def test_cpu(): %s
        @pytest.mark.gpu
        def test_gpu(): %s
        @pytest.mark.gpu
        def test_last(): pass
        """ % (first, second))
    result = run(case, option)
    assert set(result.cases) == ran, str(result)
    assert ("stopping after " in result.out) == (len(ran) < 3), str(result)
    assert "did not run" not in result.out


@pytest.mark.parametrize(("way", "end"), [("os._exit(0)", "exit code 0"),
                                           ("os.abort()", "SIGABRT")])
def test_tests_that_did_not_run_fail_the_session(case, way, end):
    """One test ends the process of the marked tests."""
    case.make("test_all.py", """
        import os, pytest
        def test_cpu(): pass
        @pytest.mark.gpu
        def test_gpu(): pass
        @pytest.mark.gpu
        def test_ends():
            print("its last words", flush=True)
            %s
        @pytest.mark.gpu
        def test_last(): pass
        """ % way)
    result = run(case)
    assert (result.rc, case.outcomes(result)) == (
        1, {"passed": {"cpu", "gpu"}, "failure": {"ends"}}), str(result)
    assert "their pytest ended with %s in this test" % end in result.cases["ends"][1]
    assert "1 of 3 tests did not run" in result.out


def test_error_of_the_second_pytest_is_shown(case):
    case.make("test_all.py", BOTH)
    case.make("conftest.py", "import os\nif os.environ['CUDAGUARD_POLICY'] == 'OFF': 1 / 0\n")
    result = run(case, env={"CUDAGUARD_POLICY": "FORCE_CPU"})
    assert (result.rc, case.outcomes(result)) == (1, {"passed": {"cpu"}}), str(result)
    assert "1 of 1 tests did not run: their pytest ended with exit code 4" in result.out, str(result)
    assert "ZeroDivisionError" in result.out


def test_interrupt_ends_both_pytests(case):
    """The signal goes to the first pytest only, which is the parent of the second."""
    case.make("test_all.py", """
        import os, pytest, signal
        @pytest.mark.gpu
        def test_gpu():
            os.kill(os.getppid(), signal.SIGINT)
            while True: signal.pause()
        """)
    result = run(case)
    assert result.rc == 2, str(result)
    assert "KeyboardInterrupt" in result.out


def test_output_is_shown_if_pytest_does_not_capture_it(case):
    case.make("test_all.py", "import pytest\n@pytest.mark.gpu\ndef test_gpu(): print('its words')\n")
    assert "its words" not in run(case).out
    assert "its words" in run(case, "-s").out


def test_command_line_may_be_long(case):
    """One word of a command line has at most 128 KiB."""
    case.make("test_all.py", SUITE)
    result = run(case, *["--deselect=" + letter * 100000 for letter in "xy"])
    assert case.outcomes(result) == OUTCOMES, str(result)


@pytest.mark.parametrize(("arguments", "env", "reason"), [
    (PLUGIN[:2], {}, "--cudaguard-allow-mark needs --cudaguard"),
    ((*PLUGIN, "--cudaguard-allow-mark=g p"), {}, '--cudaguard-allow-mark "g p" is not accepted'),
    ((*PLUGIN, "--cudaguard-allow-mark=no_cuda"), {}, '"no_cuda" is not accepted'),
    (PLUGIN, {"CUDAGUARD_PRESETS": "fence,JAX_PLATFORMS"},
     "--cudaguard-allow-mark: the fence of this process allows no CUDA; start the tests with"),
    ((*PLUGIN, "--cudaguard-deny=context"),
     {"CUDAGUARD_PRESETS": "fence", "CUDAGUARD_POLICY": "NO_CONTEXT"},
     "start the tests with cudaguard run --policy NO_CONTEXT -- pytest --cudaguard "
     "--cudaguard-deny=context, without --fence"),
    (PLUGIN, {"PATH": "/nowhere"}, "--cudaguard-allow-mark: the command cudaguard: there is no")])
def test_wrong_use_is_an_error_before_any_test_runs(case, arguments, env, reason):
    case.make("test_all.py", SUITE)
    result = run(case, plugin=arguments, env=env)
    assert (result.rc, result.cases, result.init_calls()) == (4, {}, []), str(result)
    assert reason in result.err, str(result)


def test_ini_file_sets_the_options(case):
    case.make("pytest.ini", """
        [pytest]
        cudaguard = true
        cudaguard_allow_mark = gpu
        cudaguard_deny = nvml
        cudaguard_allow = line:test_all.py:4
        cudaguard_report = report
        """)
    case.make("test_all.py", """
        import ctypes, pytest
        def ask(): return ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2()
        def test_allowed(): ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2()
        def test_nvml(): ask()
        @pytest.mark.gpu
        def test_gpu(): assert %s == 0
        def test_cpu(): assert %s == 100
        """ % (ATTEMPT, ATTEMPT))
    result = case.pytest(plugin=PLUGIN[:2], env=ENV)
    assert case.outcomes(result) == {"failure": {"nvml"}, "passed": {"allowed", "gpu", "cpu"}}, (
        str(result))
    assert len(harness.records(case.path("report"))) == 3
    # An option of the command line goes before the file's.
    result = case.pytest("--cudaguard-deny=init", plugin=PLUGIN[:2], env=ENV)
    assert case.outcomes(result)["failure"] == {"cpu"}, str(result)
    result = case.pytest("-o", "cudaguard=false", plugin=PLUGIN[:2], env=ENV)
    assert case.outcomes(result)["failure"] == {"gpu"}, str(result)


COMMAND = """
import json, multiprocessing, sys, pytest, warnings
MAIN = sys.modules["__main__"]
def facts():
    return [list(sys.argv), getattr(MAIN, "__file__", None), getattr(MAIN.__spec__, "name", None),
            repr(sys.flags), sys.warnoptions, sys._xoptions, getattr(sys, "orig_argv", None)]
def test_first():
    with open("facts", "w") as stream: json.dump(facts(), stream)
@pytest.mark.gpu
def test_second():
    with open("facts") as stream: assert json.load(stream) == json.loads(json.dumps(facts()))
@pytest.mark.gpu
def test_optimised(): assert __debug__ == ("-O" not in sys.orig_argv)
"""


@pytest.mark.parametrize("start", [
    ("-X", "dev", "-B", "-m", "pytest"),
    ("-O", "-bb", "-X", "int_max_str_digits=1000", "-Werror::UserWarning", "-m", "pytest"),
    ("start.py",), ("app",)])
def test_second_pytest_has_the_same_command_line(case, start):
    case.make("test_all.py", COMMAND)
    for name in ("start.py", "app/__main__.py"):
        case.make(name, "import pytest, sys\n"
                  "if __name__ == '__main__': sys.exit(pytest.main([*sys.argv[1:], '-q']))\n")
    result = run(case, start=start)
    assert case.outcomes(result) == {"passed": {"first", "second", "optimised"}}, str(result)


@pytest.mark.parametrize("arguments", [(), ("-p", "forked")])
def test_hostile_marked_test_is_reported(case, arguments):
    """The second pytest writes a report while the test's patches are active. A report that it
    cannot pass on fails its test only."""
    case.make("test_all.py", """
        import builtins, ctypes, json, os, pytest, resource
        def break_(*args, **kwargs): raise RuntimeError("broken by the test")
        def test_cpu(): pass
        @pytest.mark.gpu
        def test_json(monkeypatch):
            for name in ("dumps", "dump", "loads", "JSONEncoder"): monkeypatch.setattr(json, name, break_)
            monkeypatch.setattr(builtins, "open", break_)
            for name in ("open", "write", "getpid"): monkeypatch.setattr(os, name, break_)
        @pytest.fixture
        def limits():
            before = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
            yield
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        @pytest.mark.gpu
        def test_limits(limits): pass
        @pytest.mark.gpu
        def test_limits_fail(limits): assert False, "its own reason"
        @pytest.mark.gpu
        def test_lost(record_property): record_property("x", {(1, 2): 3})
        @pytest.mark.gpu
        def test_lost_fails(record_property):
            record_property("x", {(1, 2): 3})
            assert False, "its other reason"
        @pytest.mark.gpu
        def test_object(record_property): record_property("x", object())
        @pytest.mark.gpu
        def test_last(): assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
        """)
    case.make("forked.py", pytest_runs.FORKED)
    result = run(case, *arguments)
    assert (result.rc, case.outcomes(result)) == (1, {
        "passed": {"cpu", "json", "limits", "object", "last"},
        "failure": {"limits_fail", "lost", "lost_fails"}}), str(result)
    assert "its own reason" in result.cases["limits_fail"][1]
    assert "its report cannot be passed on by the second pytest: TypeError: " in result.cases["lost"][1]
    assert "its other reason" in result.cases["lost_fails"][1]


@pytest.mark.parametrize(("way", "reason"), [
    ("tempfile.tempdir = '/nowhere'", "FileNotFoundError: "),
    ("subprocess._cleanup = None", "TypeError: ")])  # gevent replaces such functions
def test_error_of_the_first_pytest_is_shown(case, way, reason):
    """It cannot start the second one."""
    case.make("test_all.py", "import pytest, subprocess, tempfile\n@pytest.mark.gpu\n"
              "def test_gpu(): pass\ndef test_cpu(): %s\n" % way)
    result = run(case)
    assert (result.rc, case.outcomes(result)) == (1, {"passed": {"cpu"}}), str(result)
    assert "1 of 1 tests did not run: " + reason in result.out, str(result)


def test_exit_of_another_plugin_at_a_marked_test_keeps_its_code(case):
    case.make("conftest.py", "import pytest\ndef pytest_runtest_logreport(report):\n"
              "    if 'test_gpu' in report.nodeid: pytest.exit('enough', returncode=42)\n")
    case.make("test_all.py", BOTH)
    result = run(case)
    assert result.rc == 42 and "Exit: enough" in result.out, str(result)


@pytest.mark.parametrize("arguments", HOW)
def test_report_has_each_attempt_and_its_test(case, arguments):
    """It begins anew in each session. `cudaguard report` reads it."""
    case.make("test_all.py", SUITE)
    case.make("test_import.py", "import ctypes\n%s\n" % ATTEMPT)
    case.make("sub/conftest.py", "")
    for _ in range(2):
        result = run(case, "--cudaguard-report=sub/report", *arguments)
        found = {(record["test"], record["code"])
                 for record in harness.records(case.path("sub", "report"))}
        assert found == {("the collection of test_import.py", "test_import.py:2"),
                         ("test_all.py::test_cpu", "test_all.py:4"),
                         ("test_all.py::TestClass::test_not_here", "test_all.py:4"),
                         ("test_all.py::TestClass::test_may_ask", "test_all.py:4")}, str(result)
    for record in harness.records(case.path("sub", "report")):
        case.validates(record, "guard", "record", "record.schema.json")
    shown = harness.run([os.path.join(harness.BUILD, "bin", "cudaguard"), "report",
                         case.path("sub", "report")], guard=False, trace=False)
    assert "asked by test_all.py:4 through ctypes/cffi: cuInit" in shown.out, str(shown)


DOCUMENT = '{"v":1,"cudaguard":"0.2.0"}'  # of verify --json


@pytest.mark.parametrize(("name", "why"), [
    ("", " needs a value"), ("none/report", " none/report: No such file or directory"),
    *((name, " %s: the file has other contents (accepted: a new file or records)" % name)
      for name in ("test_all.py", "result.json"))])
def test_report_that_cannot_be_written_is_an_error(case, name, why):
    """Who forgets the name of the report names a test, which must not be lost."""
    case.make("test_all.py", SUITE)
    case.make("result.json", DOCUMENT)
    result = run(case, "--cudaguard-report=" + name)
    assert (result.rc, result.cases) == (4, {}), str(result)
    assert "--cudaguard-report%s\n" % why in result.err
    for own, text in ("test_all.py", SUITE), ("result.json", DOCUMENT):
        assert harness.read(case.path(own)) == text
