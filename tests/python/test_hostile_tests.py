# SPDX-License-Identifier: Apache-2.0
"""Nothing that a test does to Python or to its process reaches the plug-in. If the plug-in cannot
read a record nevertheless, the test that was running fails, and all others go on."""

import os

import pytest

from support import fixtures, harness, pytest_runs
from support.pytest_runs import ATTEMPT, PLUGIN

pytestmark = pytest.mark.all  # many pytests

UNREADABLE = "the records could not be read"
CHILD = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"

# What libraries for tests do (pytest-mock, pyfakefs, freezegun), without the libraries.
WAYS = '''
import builtins, contextlib, ctypes, json, os, resource, shutil, subprocess, sys, time, types
from unittest import mock
import pytest

def refuse(*args, **kwargs): raise PermissionError(13, "refused by the test")
def break_(*args, **kwargs): raise RuntimeError("broken by the test")

def replaced(owner, value, *names): return mock.patch.multiple(owner, **dict.fromkeys(names, value))

@contextlib.contextmanager
def fake_fs():
    """pyfakefs replaces modules and functions in all modules."""
    fake = types.ModuleType("os")
    fake.__dict__.update({name: break_ for name in dir(os) if not name.startswith("_")})
    real = {value for value in vars(os).values() if isinstance(value, types.BuiltinFunctionType)}
    changed = []
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "cudaguard": continue
        for key, value in list(vars(module).items()):
            is_function = isinstance(value, types.BuiltinFunctionType) and value in real
            if value is os or is_function:
                changed.append((module, key, value))
                setattr(module, key, fake if value is os else break_)
    try: yield
    finally:
        for module, key, value in changed: setattr(module, key, value)

@contextlib.contextmanager
def limited(which, most):
    soft, hard = resource.getrlimit(which)
    resource.setrlimit(which, (most, hard))
    try: yield
    finally: resource.setrlimit(which, (soft, hard))

@contextlib.contextmanager
def another_user():
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try: yield
    finally: os.seteuid(0)

@contextlib.contextmanager
def nowhere():
    before = os.getcwd()
    os.mkdir("nowhere")
    os.chdir("nowhere")
    os.rmdir("../nowhere")
    try: yield
    finally: os.chdir(before)

@contextlib.contextmanager
def closed():
    """The plug-in's own descriptors have another file."""
    own, null = [], os.open("/dev/null", os.O_RDWR)
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if "cudaguard-pytest-" in os.readlink("/proc/self/fd/" + number): own.append(int(number))
    assert own or "cudaguard.pytest_plugin" not in sys.modules
    for number in own: os.dup2(null, number)
    yield

FUNCTIONS = ("open read pread write fstat stat close getpid geteuid uname fchmod").split()
WAYS = {
    "mock_open": lambda: mock.patch("builtins.open", mock.mock_open(read_data="x = 1")),
    "open_bytes": lambda: mock.patch("builtins.open", mock.mock_open(read_data=b"x\\n" * 4096)),
    "open_refuses": lambda: replaced(builtins, refuse, "open"),
    "sum": lambda: mock.patch("builtins.sum"),  # pytest itself does without it meanwhile
    "sum_breaks": lambda: replaced(builtins, break_, "sum"),
    "import_breaks": lambda: replaced(builtins, break_, "__import__"),
    "os": lambda: replaced(os, break_, *FUNCTIONS),
    "getcwd": lambda: replaced(os, break_, "getcwd"),
    "path": lambda: replaced(os.path, break_, "join", "exists", "abspath"),
    "environ": lambda: replaced(os, {}, "environ"),
    "loads": lambda: replaced(json, lambda *args, **kwargs: {}, "loads"),
    "json": lambda: replaced(json, break_, "loads", "load", "dumps", "dump", "JSONDecoder"),
    "decode": lambda: replaced(json.JSONDecoder, break_, "decode", "raw_decode"),
    "encode": lambda: replaced(json.JSONEncoder, break_, "encode", "iterencode"),
    "time": lambda: replaced(time, lambda: 0.0, "time", "monotonic", "perf_counter"),
    "pytest": lambda: replaced(pytest, None, "fail", "Item", "TestReport", "ExceptionInfo"),
    "options": lambda: replaced(pytest.Config, lambda *args, **kwargs: 1 << 30, "getoption"),
    "terminal": lambda: replaced(shutil, lambda: (80, 24), "get_terminal_size"),
    "popen": lambda: replaced(subprocess, break_, "Popen", "run"),
    "fake_fs": fake_fs,
    "descriptors": lambda: limited(resource.RLIMIT_NOFILE, 3),
    "another_user": another_user,
    "nowhere": nowhere,
    "closed": closed,
}

def ask(): return ATTEMPT
RUN = subprocess.run
def child():
    user = os.geteuid()
    os.seteuid(os.getuid())  # otherwise, ld.so would ignore LD_PRELOAD
    RUN([sys.executable, "-c", "CHILD"], check=True)
    os.seteuid(user)

@pytest.fixture
def hostile(request):
    """The test is over, and its patches are still there, when the plug-in reads."""
    with contextlib.ExitStack() as stack:
        yield lambda way: stack.enter_context(WAYS[way]())
'''.replace("CHILD", CHILD).replace("ATTEMPT", ATTEMPT)

SUITE = WAYS + '''
@pytest.mark.parametrize("way", WAYS)
def test_clean(hostile, way): hostile(way)

@pytest.mark.parametrize("way", WAYS)
def test_child(hostile, way):
    child()
    hostile(way)

@pytest.mark.parametrize("way", WAYS)
def test_own(hostile, way):
    ask()
    hostile(way)

def test_file_size(hostile):
    with limited(resource.RLIMIT_FSIZE, 0): ask()

def test_forks():
    if os.fork() == 0: os._exit(0)
    os.wait()

def test_file_of_the_records():
    """Processes of other users find and write it."""
    report = os.environ.get("CUDAGUARD_REPORT", "/dev/null")
    assert os.stat(report).st_mode & 0o777 == 0o666
    assert os.stat(os.path.dirname(report)).st_mode & 0o11 == 0o11
'''

SCOPE = WAYS + '''
@pytest.fixture(scope="%s", autouse=True)
def patched():
    with WAYS["open_refuses"](), WAYS["json"](), WAYS["getcwd"](), another_user(): yield

class TestOne:
    def test_%s(self): pass
    def test_%s_child(self): child()
    def test_%s_own(self): ask()
    def test_%s_again(self): pass
'''.replace("CHILD", CHILD)


fixture_case = fixtures.lent("case", pytest_runs.Case)


def names(suite_case, result, outcome):
    return suite_case.outcomes(result).get(outcome, set())


def test_control_hostile_tests_pass_without_the_guard(case):
    case.make("test_all.py", SUITE)
    result = case.pytest(guard=False, plugin=())
    assert set(case.outcomes(result)) == {"passed"}, str(result)
    result.assert_reached(case)


@pytest.mark.parametrize("arguments", [PLUGIN, (*PLUGIN, "-n", "2"), (*PLUGIN, "--cudaguard-report=out")])
def test_hostile_test_is_judged_as_any_other(case, arguments):
    case.make("test_all.py", SUITE)
    result = case.pytest(plugin=arguments, env={"CUDAGUARD_REPORT": case.path("outer")})
    failed = names(case, result, "failure")
    assert result.rc == 1 and set(case.outcomes(result)) == {"passed", "failure"}, str(result)
    assert names(case, result, "passed") == {
        name for name in result.cases if name.startswith("clean[")} | {"forks", "file_of_the_records"}, str(result)
    doubted = {name for name, (_, text) in result.cases.items() if UNREADABLE in (text or "")}
    assert doubted == {"file_size"}, str(result)
    text = result.cases["file_size"][1]
    assert "asked for by code that could not be written down" in text, text
    assert "--cudaguard-allow" not in text, text
    assert "to allow this: mark the test with @pytest.mark.cudaguard_allow" in text, text
    assert "cudaguard: " not in result.out.replace("cudaguard: a test", ""), str(result)
    for name in failed - {"file_size"}:
        assert "CUDA was asked for by" in result.cases[name][1], str(result)
        assert ("<string>:1 through" in result.cases[name][1]) == name.startswith("child["), name
    # The disk was full for one record only.
    assert len(harness.records(case.path("outer"))) == len(failed) - 1, str(result)
    if "--cudaguard-report=out" in arguments:
        assert len(harness.records(case.path("out"))) == len(failed) - 1, str(result)


@pytest.mark.parametrize("scope", ["function", "class", "module", "package", "session"])
def test_patches_of_each_scope_are_harmless(case, scope):
    case.make("test_a.py", SCOPE % (scope, *"xxxx"))
    case.make("test_b.py", WAYS + "def test_after(): pass\ndef test_after_child(): child()\n")
    result = case.pytest()
    assert case.outcomes(result) == {"passed": {"x", "x_again", "after"},
                                     "failure": {"x_child", "x_own", "after_child"}}, str(result)


def test_failure_of_a_hostile_test_is_judged(case):
    """In a worker, pytest itself does without the text of the failure while the patches are there."""
    case.make("test_all.py", WAYS + """
def test_fails(hostile):
    ask()
    hostile("terminal")
    assert [1] == [2]
def test_next(): pass
""")
    result = case.pytest("-n", "1")
    assert (result.rc, case.outcomes(result)) == (1, {"failure": {"fails"}, "passed": {"next"}}), str(result)
    assert "assert [1] == [2]" in result.out and "CUDA was asked for by" in result.out, str(result)
    control = case.pytest("-n", "1", guard=False, plugin=())
    assert control.rc == 1 and "assert [1] == [2]" in control.out, str(control)


@pytest.mark.parametrize("arguments", [(), ("-n", "2")])
def test_child_that_cannot_write_its_record_is_a_doubt(case, arguments):
    """Its disk is full, which its limit stands for."""
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); "
    case.make("test_all.py", """
import subprocess, sys
def run(text): subprocess.run([sys.executable, "-c", text], check=True)
def test_full(): run(%r)
def test_full_next(): pass
def test_full_clean(): run(%r)
def test_full_both(): run(%r)
""" % (full + CHILD, full + "import ctypes; ctypes.CDLL('libm.so.6')", full + CHILD))
    control = case.pytest(*arguments, guard=False, plugin=())
    assert set(case.outcomes(control)) == {"passed"}, str(control)
    result = case.pytest(*arguments)
    assert case.outcomes(result) == {"failure": {"full", "full_both"},
                                     "passed": {"full_next", "full_clean"}}, str(result)
    assert "could not write its record" in result.cases["full"][1], str(result)


DAMAGE = {
    "removed": "os.unlink(report)",
    "replaced": "os.unlink(report); open(report, 'w').close()",
    "directory": "shutil.rmtree(os.path.dirname(report))",
    "truncated": "subprocess.run([sys.executable, '-c', CHILD]); os.truncate(report, 0)",
    "junk": "open(report, 'a').write('junk\\n')",
    "version": "open(report, 'a').write('{\"v\":2,\"pid\":7}\\n')",
    "frames": "open(report, 'a').write("
              "'{\"v\":1,\"pid\":7,\"decision\":\"deny\",\"python\":[7]}\\n')",
    "killed": "open(report, 'a').write('{\"v\":1,\"pid\":{\"v\":1,\"pid\":7,\"event\":\"start\"}\\n')",
}


@pytest.mark.parametrize("arguments", [(), ("-n", "2")])
def test_unreadable_record_fails_its_test_only(case, arguments):
    case.make("test_all.py", """
import ctypes, os, pytest, shutil, subprocess, sys
CHILD = "%s"
""" % CHILD + "".join("""
def test_%s():
    report = os.environ["CUDAGUARD_REPORT"]
    %s
def test_%s_next(): pass
def test_%s_child(): subprocess.run([sys.executable, "-c", "%s"])
def test_%s_own(): %s
""" % (name, damage, name, name, CHILD, name, ATTEMPT) for name, damage in DAMAGE.items()) + """
@pytest.mark.cudaguard_allow
def test_may(): open(os.environ["CUDAGUARD_REPORT"], "a").write("junk\\n")
def test_fixture(cudaguard_attempts):
    open(os.environ["CUDAGUARD_REPORT"], "a").write("junk\\n")
    try: len(cudaguard_attempts)
    except Exception: pass
""")
    result = case.pytest(*arguments)
    assert result.rc == 1 and set(case.outcomes(result)) == {"passed", "failure"}, str(result)
    assert names(case, result, "passed") == {name + "_next" for name in DAMAGE} | {"may"}, str(result)
    for name in (*DAMAGE, "fixture"):
        assert UNREADABLE in result.cases[name][1], str(result)
    for name in DAMAGE:
        assert "CUDA was asked for by" in result.cases[name + "_child"][1], str(result)
        assert "CUDA was asked for by" in result.cases[name + "_own"][1], str(result)
    assert "outside of any test" not in result.out, str(result)


def test_file_that_became_shorter_is_a_doubt_once(case, monkeypatch):
    """The next records are read nevertheless. The control only appends."""
    monkeypatch.syspath_prepend(pytest_runs.PACKAGES)
    from cudaguard import originals
    path = case.path("records")
    file = originals.RecordFile(path)

    def write(how, data):
        with open(path, how) as stream:
            stream.write(data)
        return file.read()

    assert file.read() == ([], "")
    assert write("ab", b"1\n") == ([b"1\n"], "")
    assert write("ab", b"22\n") == ([b"22\n"], "")
    assert write("wb", b"3\n") == ([], path + " was truncated")
    assert write("ab", b"4\n") == ([b"4\n"], "")
    assert write("wb", b"") == ([], path + " was truncated")
    assert file.read() == ([], "")
    assert write("ab", b"5\n") == ([b"5\n"], "")
    file.close()


def test_incomplete_record_fails_the_session(case):
    """It is the trace of a process that was killed, or whose disk was full."""
    case.make("test_all.py", """
        import os
        def test_1(): open(os.environ["CUDAGUARD_REPORT"], "a").write('{"v":1,"ts":7')
        def test_2(): pass
        """)
    result = case.pytest()
    assert (result.rc, case.outcomes(result)) == (1, {"passed": {"1", "2"}}), str(result)
    assert "after test_all.py::test_1: " + UNREADABLE in result.out, str(result)
    assert result.out.count(UNREADABLE) == 1, str(result)


@pytest.mark.parametrize(("option", "env", "rc", "text"), [
    ("--cudaguard-report=/dev/full", None, 1, "--cudaguard-report /dev/full is not complete: OSError"),
    ("--cudaguard-report=removed", None, 1, "removed is not complete: it was removed"),
    ("-q", "/dev/full", 0, "cudaguard: not all records were written to /dev/full: OSError")])
def test_output_that_cannot_be_written_is_reported(case, option, env, rc, text):
    case.make("test_all.py", """
        import ctypes, os, pytest
        @pytest.mark.cudaguard_allow
        def test_1():
            %s
            if os.path.exists("removed"): os.unlink("removed")
        def test_2(): pass
        """ % ATTEMPT)
    result = case.pytest(option, env={"CUDAGUARD_REPORT": env})
    assert (result.rc, case.outcomes(result)) == (rc, {"passed": {"1", "2"}}), str(result)
    assert text in result.out, str(result)
    assert "INTERNALERROR" not in result.out


def test_pytest_in_a_test_leaves_the_records_alone(case):
    """It has a watcher or a hint of its own, which is then the guard's only one."""
    case.make("inner/test_in.py", "import pytest\n@pytest.mark.no_cuda\ndef test_in(): pass\n")
    case.make("inner/test_hint.py", "def test_in(): pass\n")
    case.make("test_all.py", """
        import ctypes, pytest
        @pytest.mark.parametrize("name", ["in", "hint"])
        def test_inner(name):
            path = "inner/test_%%s.py" %% name
            assert pytest.main(["-p", "cudaguard.pytest_plugin", "-o", "cudaguard=false", path]) == 0
            %s
        def test_next(): %s
        def test_last(): pass
        """ % (ATTEMPT, ATTEMPT))
    result = case.pytest("test_all.py")
    assert case.outcomes(result) == {"passed": {"last"},
                                     "failure": {"inner[in]", "inner[hint]", "next"}}, str(result)
    for name, line in (("inner[in]", 7), ("inner[hint]", 7), ("next", 8)):
        assert "by test_all.py:%d through" % line in result.cases[name][1], str(result)


def test_forked_test_is_recorded_once(case):
    """The child judges the test, and its parent passes the record on."""
    case.make("forked.py", pytest_runs.FORKED)
    case.make("test_all.py", "import ctypes\ndef test_1(): %s\n" % ATTEMPT)
    result = case.pytest("-p", "forked", "--cudaguard-report=own",
                         env={"CUDAGUARD_REPORT": case.path("outer")})
    assert case.outcomes(result) == {"failure": {"1"}}, str(result)
    assert len(harness.records(case.path("outer"))) == 1, str(result)
    assert len(harness.records(case.path("own"))) == 1, str(result)


@pytest.mark.parametrize("arguments", [(), ("-n", "1")], ids=["alone", "xdist"])
@pytest.mark.parametrize("how", ["rerunfailures", "flaky"])
def test_run_that_is_repeated_counts(case, how, arguments):
    """A framework that keeps the driver's first answer does not ask in the second run."""
    case.make("rerun.py", pytest_runs.RERUN)
    case.make("test_all.py", """
        import ctypes, functools
        @functools.lru_cache(None)
        def is_available(): return %s == 0
        def test_once(): is_available()
        def test_always(): %s
        def test_never(): pass
        def test_raises():
            runs.append(is_available())
            if len(runs) == 1: raise OSError("the first run fails for a reason of its own")
        runs = []
        """ % (ATTEMPT, ATTEMPT))
    how = {"HOW": how}
    repeated = "test_all.py::test_once, in a run that was repeated: CUDA was asked for by test_all.py:4 "
    result = case.pytest("-p", "rerun", *arguments, "-k", "once or never", env=how)
    assert (result.rc, result.out.count(repeated)) == (1, 1), str(result)
    result = case.pytest("-p", "rerun", *arguments, "-k", "raises", env=how)
    assert (result.rc, result.out.count(repeated.replace("once", "raises"))) == (1, 1), str(result)
    result = case.pytest("-p", "rerun", *arguments, "-k", "always or never", env=how)
    assert (result.rc, result.out.count("in a run that")) == (1, 0), str(result)
    control = case.pytest("-p", "rerun", *arguments, env=how, guard=False, plugin=())
    assert control.rc == 0 and "cuInit" in control.fake_calls, str(control)


@pytest.mark.parametrize(("phase", "end"), [("call", "raise KeyboardInterrupt"),
                                            ("setup", "pytest.exit('bye', 1)")])
def test_attempt_of_an_interrupted_test_is_in_it(case, end, phase):
    case.make("test_all.py", """
        import ctypes, pytest
        def ask():
            %s
            %s
        @pytest.fixture
        def setup(): %s
        def test_1(setup): ask()
        """ % (ATTEMPT, end, "ask()" if phase == "setup" else "pass"))
    result = case.pytest()
    text = "test_all.py::test_1, which was interrupted: CUDA was asked for by test_all.py:4 "
    assert result.rc != 0 and "in " + text in result.out, str(result)
    control = case.pytest(guard=False, plugin=())
    assert "cuInit" in control.fake_calls and "cudaguard" not in control.out, str(control)


@pytest.mark.parametrize("arguments, lost", [
    ((), 0), (("-n", "1"), 0), (("-p", "forked"), 1), (("-p", "forked", "-n", "1"), 1)],
    ids=["alone", "xdist", "forked", "forked_xdist"])
def test_subtest_fails_its_test_or_the_session(case, arguments, lost):
    """It is no run that was repeated. pytest-forked loses its report."""
    case.make("sub.py", pytest_runs.SUBTESTS)
    case.make("forked.py", pytest_runs.FORKED)
    case.make("test_all.py", """
        import ctypes, pytest
        def test_sub(subtest):
            for _ in range(2):
                subtest(lambda: %s)
        @pytest.mark.cudaguard_allow
        def test_may(subtest): subtest(lambda: %s)
        def test_fails(): %s
        @pytest.mark.no_cuda
        def test_marked(subtest): subtest(lambda: %s)
        """ % ((ATTEMPT,) * 4))
    result = case.pytest("-p", "sub", *arguments, "-k", "not marked")
    assert result.rc == 1 and "CUDA was asked for by test_all.py:5 " in result.out, str(result)
    assert ("outside of any test" in result.out) == bool(lost), str(result)
    assert result.out.count("whose report was lost") == lost, str(result)
    for name, plugin in (("sub", pytest_runs.PLUGIN), ("marked", pytest_runs.PLUGIN[:2])):
        only = case.pytest("-p", "sub", *arguments, "-k", "test_may or test_" + name, plugin=plugin)
        assert only.rc == 1, str(only)
    control = case.pytest("-p", "sub", *arguments, guard=False, plugin=())
    assert control.rc == 0 and "cuInit" in control.fake_calls, str(control)


def test_message_is_one_line_in_the_summary_and_in_junit(case):
    """With CI in the environment, pytest's short summary has whole messages. The stack is in the
    report of the failure."""
    case.need_fetched("pytest")  # pytest 7 has no such lines
    case.make("test_all.py", """
        import ctypes
        def helper(): %s
        def test_1(): helper()
        def test_2(): helper()
        """ % ATTEMPT)
    result = case.pytest(env={"CI": "true"})
    for number in (1, 2):
        assert result.cases[str(number)][1].splitlines()[0] == (
            "CUDA was asked for by test_all.py:3 through ctypes/cffi (cuInit)"), str(result)
        assert result.out.count("test_all.py:%d in test_%d" % (number + 3, number)) == 1, str(result)


@pytest.mark.parametrize("arguments", [(), ("-n", "1")])
def test_pattern_that_matches_nothing_is_named(case, arguments):
    case.make("test_all.py", """
        import ctypes, pytest
        def test_1(): %s
        @pytest.mark.gpu
        def test_2(): pass
        """ % ATTEMPT)
    path = os.path.join(harness.BUILD, "bin") + ":" + os.environ["PATH"]
    result = case.pytest("--cudaguard-allow=lib:ctypes*", "--cudaguard-allow=lib:libc10",
                         "--cudaguard-allow-mark=gpu", "--cudaguard-allow-mark=gpuu", "-k", "test_1",
                         *arguments, env={"PATH": path})
    assert (result.rc, case.outcomes(result)) == (0, {"passed": {"1"}}), str(result)
    shown = [line for line in result.out.splitlines() if line.startswith("cudaguard: --")]
    assert sorted(shown) == ["cudaguard: --cudaguard-allow-mark=gpuu: no test has this mark",
                             "cudaguard: --cudaguard-allow=lib:libc10 matches no CUDA attempt"]


HINT = "cudaguard: to fail the tests that ask: cudaguard run -- pytest --cudaguard\n"


@pytest.mark.parametrize(("arguments", "env", "is_shown"), [
    ((), {}, True), (("-n", "1"), {}, True), (("-s",), {}, False),
    ((), {"CUDAGUARD_LOG": "off"}, False), ((), {"CUDAGUARD_REPORT": "/dev/null"}, False)])
def test_hint_names_the_line_without_the_option(case, arguments, env, is_shown):
    """pytest redirects stderr to a file into which the guard prints nothing."""
    case.make("test_all.py", """
        import ctypes, os, pytest
        def test_1(): %s
        @pytest.mark.no_cuda
        def test_2(): pass
        def test_3(): %s
        def test_4(): assert "cudaguard-pytest" in os.environ["CUDAGUARD_REPORT"]
        """ % (ATTEMPT, ATTEMPT))
    case.make("test_import.py", "import ctypes\n%s\n" % ATTEMPT)
    os.mkdir(case.path("tmp"))
    result = case.pytest(*arguments, plugin=PLUGIN[:2], env={"TMPDIR": case.path("tmp"), **env})
    assert (result.rc, case.outcomes(result)) == (0, {"passed": {"1", "2", "3", "4"}}), str(result)
    lines = ["cudaguard: CUDA was asked for by %s through ctypes/cffi (cuInit)\n" % place
             for place in ("test_all.py:3", "test_all.py:6", "test_import.py:2")]
    for line in (*lines, HINT):
        assert result.out.count(line) == is_shown, str(result)
    left = [name for name in os.listdir(case.path("tmp")) if name.startswith("cudaguard")]
    assert left == [], str(result)


def test_hint_changes_nothing_for_the_tests(case):
    case.make("test_all.py", """
        import os
        def test_1(): assert "CUDAGUARD_REPORT" not in os.environ
        """)
    result = case.pytest(plugin=PLUGIN[:2])
    assert result.rc == 0 and "cudaguard: " not in result.out, str(result)
