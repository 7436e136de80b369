# SPDX-License-Identifier: Apache-2.0
"""pytest --cudaguard: a test that initialises CUDA fails, and its report names the line.

    cudaguard run -- pytest -p cudaguard.pytest_plugin --cudaguard

The guard denies the call as usual and records it. The plug-in reads the records after each phase of
a test and after the collection of each file. An attempt by a process that a test has started counts
for the test: each test has its own report file, whose path is in the environment. Works in the
workers of pytest-xdist. The marker @pytest.mark.cudaguard_allow allows a test to initialise CUDA,
which the guard denies nevertheless. allowed_tests.py gives tests with another marker real CUDA.

The marker no_cuda and the fixture cudaguard_attempts check one test, without --cudaguard.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from typing import Any, Dict, Generator, List, Optional, Sequence, overload

import pytest

from cudaguard import allowed_tests, installation, records
from cudaguard import guard as guards

_NAME = "cudaguard-watcher"
_REPORT = "CUDAGUARD_REPORT"
_ALLOW = "cudaguard_allow"
_NO_CUDA = "no_cuda"
_FIXTURE = "cudaguard_attempts"
_COMMAND = "cudaguard run -- pytest --cudaguard"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cudaguard", "CUDA in tests (cudaguard)")
    group.addoption("--cudaguard", action="store_true", default=False,
                    help="a test fails during which CUDA was initialised; needs the guard: " + _COMMAND)
    group.addoption("--cudaguard-deny", action="append", default=[], metavar="KINDS",
                    help="what makes a test fail, instead of init: a list of init, nvml, opencl")
    group.addoption("--cudaguard-allow", action="append", default=[], metavar="PATTERN",
                    help="code that may: lib:NAME, module:NAME, line:FILE:LINE")
    group.addoption("--cudaguard-allow-mark", action="append", default=[], metavar="MARK",
                    help="tests with this mark may use CUDA; they run last, in a process of their own")
    group.addoption("--cudaguard-report", default="", metavar="FILE",
                    help="write each attempt to FILE, a line of JSON with its test")
    allowed_tests.add_option(group)
    for name, kind in (("cudaguard", "bool"), ("cudaguard_deny", "args"),
                       ("cudaguard_allow", "linelist"), ("cudaguard_allow_mark", "args"),
                       ("cudaguard_report", None)):
        parser.addini(name, "as --%s, which goes before it" % name.replace("_", "-"), kind)


def _option(config: pytest.Config, name: str) -> Any:
    """The value of the command line; without one, that of the ini file."""
    return config.getoption(name) or config.getini(name)


def _marks(config: pytest.Config) -> List[str]:
    marks: List[str] = _option(config, "cudaguard_allow_mark")
    for mark in marks:
        if not mark.isidentifier() or mark == _NO_CUDA:
            raise pytest.UsageError(
                '--cudaguard-allow-mark "%s" is not accepted (accepted: the name of a mark)' %
                records.shown(mark))
    return marks


def _allowed(patterns: List[str]) -> List[str]:
    for pattern in patterns:
        if not pattern.startswith(records.CODE) or pattern.endswith(":"):
            raise pytest.UsageError(
                '--cudaguard-allow "%s" is not accepted (accepted: lib:PATTERN, module:PATTERN, '
                "line:FILE:NUMBER)" % records.shown(pattern))
    return patterns


def _denied(lists: List[str]) -> List[str]:
    words = [word for text in lists for word in text.split(",")] or ["init"]
    for word in words:
        if word not in records.KINDS:
            raise pytest.UsageError('--cudaguard-deny "%s" is not accepted (accepted: %s)' % (
                records.shown(word), ", ".join(records.KINDS)))
    return words


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Starts early, because imports by conftest.py count. pytest_configure reports errors."""
    known = early_config.known_args_namespace
    if known.cudaguard_reports_of_marked is None and (
            known.cudaguard or early_config.getini("cudaguard")):
        _start(early_config)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", _ALLOW + ": this test may initialise CUDA (pytest --cudaguard)")
    config.addinivalue_line(
        "markers", _NO_CUDA + ": this test fails if it initialises CUDA, also without --cudaguard")
    marks = _marks(config)
    for mark in marks:
        config.addinivalue_line(
            "markers", mark + ": this test may use CUDA (pytest --cudaguard-allow-mark)")
    _denied(_option(config, "cudaguard_deny"))
    _allowed(_option(config, "cudaguard_allow"))
    if not _option(config, "cudaguard"):
        for name in ("cudaguard_allow_mark", "cudaguard_report"):
            if config.getoption(name):
                raise pytest.UsageError("--%s needs --cudaguard" % name.replace("_", "-"))
        return
    if allowed_tests.is_second(config):
        config.pluginmanager.register(allowed_tests.SecondPytest(config, _is_marked))
        return
    watcher = _start(config)
    if isinstance(watcher, str):
        raise pytest.UsageError("--cudaguard: %s; start the tests with %s" % (watcher, _COMMAND))
    watcher.read_options(config)
    if hasattr(config, "workerinput"):  # a worker's environment names the controller's own file
        watcher.outer, watcher.report = config.workerinput["cudaguard"]
    else:
        watcher.open_report(config)
    if marks:
        _register_first(config, watcher)


def _register_first(config: pytest.Config, watcher: "Watcher") -> None:
    if "fence" in os.environ.get("CUDAGUARD_PRESETS", "").split(","):
        raise pytest.UsageError("--cudaguard-allow-mark: the fence of this process allows no CUDA; "
                                "start the tests with %s, without --fence" % _COMMAND)
    try:
        first = allowed_tests.FirstPytest(config, _is_marked, watcher.outer)
    except installation.NotUsable as error:
        raise pytest.UsageError("--cudaguard-allow-mark: the command cudaguard: %s" % error) from error
    config.pluginmanager.register(first)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Without --cudaguard, starts a watcher now if a test needs one."""
    if any(_nearest(item) == _NO_CUDA or _FIXTURE in getattr(item, "fixturenames", ())
           for item in session.items):
        _start_for_marked(session.config)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if _nearest(item) == _NO_CUDA:
        _watcher_for(item.config, _NO_CUDA)


@pytest.fixture
def cudaguard_attempts(request: pytest.FixtureRequest) -> "Attempts":
    """The CUDA attempts that this test has made so far, its processes included. A sequence."""
    return Attempts(_watcher_for(request.config, _FIXTURE))


def _watcher_for(config: pytest.Config, what: str) -> "Watcher":
    """The watcher. Fails the test if there can be none."""
    watcher = _start_for_marked(config)
    if isinstance(watcher, str):
        pytest.fail('%s: %s; start the tests with "cudaguard run -- pytest"' % (what, watcher),
                    pytrace=False)
    return watcher


def pytest_unconfigure(config: pytest.Config) -> None:
    watcher = config.pluginmanager.getplugin(_NAME)
    if watcher is not None:
        watcher.stop()


def _nearest(node: pytest.Collector | pytest.Item) -> str:
    """The name of the marker that applies: a test's own marker goes before its class's."""
    names = (_ALLOW, _NO_CUDA, *_marks(node.config))
    return next((mark.name for mark in node.iter_markers() if mark.name in names), "")


def _is_marked(item: pytest.Item) -> bool:
    """True if the test may use CUDA (--cudaguard-allow-mark)."""
    return _nearest(item) in _marks(item.config)


def _start_for_marked(config: pytest.Config) -> "Watcher | str":
    """Like _start, but a watcher that this starts judges only the tests that are marked no_cuda."""
    watcher = _start(config, whole_suite=False)
    if not isinstance(watcher, str):
        watcher.read_options(config)
    return watcher


def _start(config: pytest.Config, whole_suite: bool = True) -> "Watcher | str":
    """The watcher, or the reason why there can be none."""
    watcher = config.pluginmanager.getplugin(_NAME)
    if watcher is not None:
        return watcher  # type: ignore[no-any-return]
    found = guards.find()
    if found is None:
        return "the guard is not loaded in this process, or is an older one"
    directory = tempfile.mkdtemp(prefix="cudaguard-pytest-")
    watcher = Watcher(found, directory, whole_suite)
    if not found.watch(watcher.own):
        shutil.rmtree(directory, ignore_errors=True)
        if found.watch():
            return "a rule of /etc/cudaguard.conf has report=, so the records go there"
        return "CUDA is allowed in this process: its policy is not FORCE_CPU"
    config.pluginmanager.register(watcher, _NAME)
    watcher.enter("the import of conftest.py")
    return watcher


class Watcher:
    """Reads the guard's records. One file has those of this process. Each test has its own file for
    the processes that it starts. Must be used from one thread."""

    def __init__(self, found: guards.Guard, directory: str, whole_suite: bool) -> None:
        self.guard = found
        self.directory = directory
        self.own = os.path.join(directory, "own")
        self.denied: List[str] = []
        self.allowed: List[str] = []
        self.marks: List[str] = []
        self.report = ""  # --cudaguard-report
        self.whole_suite = whole_suite  # False: judge only the tests that are marked no_cuda
        self.session: List[str] = []  # attempts for which no test is to blame
        self.outer = os.environ.get(_REPORT)  # what another reader expects, e.g. `cudaguard verify`
        if self.outer and not self.outer.startswith("/"):
            self.outer = os.path.abspath(self.outer)
        self.pid = os.getpid()
        self.count = found.attempts()
        self.read: Dict[str, int] = {}  # position up to which each file was read
        self.names: Dict[str, str] = {}  # the test of each file
        self.imports = 0  # collected modules with a CUDA attempt
        self.current = ""
        self.when = "while conftest.py was imported"  # outside of tests and collection
        self.phases = 0
        self.attempts: List[records.Attempt] = []  # of the current test, file or directory
        self.judged = 0  # number of attempts that were judged
        if self.count:
            self.blame_session_for(["%d calls before the plug-in was loaded" % self.count])

    def read_options(self, config: pytest.Config) -> None:
        self.denied = _denied(_option(config, "cudaguard_deny"))
        self.allowed = _allowed(_option(config, "cudaguard_allow"))
        self.marks = _marks(config)

    def open_report(self, config: pytest.Config) -> None:
        name = _option(config, "cudaguard_report")
        if not name:
            return
        self.report = os.path.join(str(config.invocation_params.dir), name)
        try:
            open(self.report, "wb").close()
        except OSError as error:
            raise pytest.UsageError("--cudaguard-report %s" % records.shown(
                "%s: %s" % (name, error.strerror))) from error

    def stop(self) -> None:
        if os.getpid() != self.pid:
            return
        if self.outer is None:
            os.environ.pop(_REPORT, None)
        else:
            os.environ[_REPORT] = self.outer
        shutil.rmtree(self.directory, ignore_errors=True)

    def enter(self, name: str) -> None:
        """Assigns all attempts from now on to this test, file or directory."""
        self.blame_session()
        self.current = os.path.join(self.directory, str(len(self.names)))
        self.names[self.current] = name
        os.environ[_REPORT] = self.current
        self.phases = 0
        self.attempts = []
        self.judged = 0

    def look(self) -> List[records.Attempt]:
        """All attempts of the current test."""
        self.attempts += self.take()
        return self.attempts

    def take(self) -> List[records.Attempt]:
        """The attempts since the last call."""
        attempts = self._take(self.own) + self._take(self.current)
        count = self.guard.attempts()
        if count > self.count and not any(attempt.pid == os.getpid() for attempt in attempts):
            attempts.append(records.Attempt("init", "%d calls" % (count - self.count), os.getpid(), "",
                                            "code that could not be written down", "", [], ""))
        self.count = count
        self.guard.watch()
        return attempts

    def _take(self, path: str) -> List[records.Attempt]:
        attempts = []
        for line in records.lines_of(path, self.read.get(path, 0)):
            self.read[path] = self.read.get(path, 0) + len(line)
            attempt = records.parse(line)
            self._hand_on(line, attempt)
            self._report(line, self.names.get(path) or self.names[self.current])
            if attempt is not None:
                attempts.append(attempt)
        return attempts

    def _hand_on(self, line: bytes, attempt: Optional[records.Attempt]) -> None:
        """Appends the record to the file that it would be in without the plug-in."""
        if not self.outer:
            return
        path = self.outer.replace("%p", str(attempt.pid if attempt else self.pid))
        path = path.replace("%u", str(os.geteuid())).replace(
            "%h", os.uname().nodename.replace("/", "_"))
        _append(path, line)

    def _report(self, line: bytes, test: str) -> None:
        """Appends the record to the file of --cudaguard-report."""
        if not self.report:
            return
        record = records.value_of(line)
        if isinstance(record, dict):
            _append(self.report, json.dumps(
                {**record, "test": test}, separators=(",", ":")).encode() + b"\n")

    def stories(self, attempts: List[records.Attempt]) -> List[str]:
        return [records.story(attempt, attempt.pid == os.getpid()) for attempt in attempts]

    def bad(self, attempts: List[records.Attempt]) -> List[records.Attempt]:
        denied = [attempt for attempt in attempts if attempt.kind in self.denied]
        return records.not_allowed(denied, self.allowed)

    def blame_session(self) -> None:
        attempts = self.bad(self.take())
        self.blame_session_for(["%s: %s" % (self.when, story) for story in self.stories(attempts)])

    def blame_session_for(self, texts: List[str]) -> None:
        if self.whole_suite:
            self.session += texts

    def judge(self, node: pytest.Collector | pytest.Item,
              report: pytest.CollectReport | pytest.TestReport) -> str:
        """The text of the attempts that must fail a report, unless it has failed already. Other
        attempts become a section of the report."""
        attempts = self.look()[self.judged:]
        self.judged += len(attempts)
        marker = _nearest(node)
        if not self.whole_suite and marker != _NO_CUDA:
            return ""
        bad = [] if marker == _ALLOW or marker in self.marks else self.bad(attempts)
        text = "\n".join(self.stories(bad or attempts))
        if bad and not report.failed:
            return text
        if text:
            report.sections.append(("cudaguard", text))
        return ""

    # --- pytest's hooks ---

    def pytest_report_header(self) -> str:
        kinds = " or ".join(records.KINDS[word] for word in self.denied)
        text = "cudaguard: a test that asks for %s fails" % kinds
        if self.marks:
            text += ", unless it is marked " + " or ".join(self.marks)
        return text

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, None]:
        self.enter("the collection of " + (collector.nodeid or "the session"))
        outcome = yield
        bad = self.judge(collector, outcome.get_result())
        if bad:
            # A second report, because pytest runs no test of a collector whose own report fails.
            # pytest-xdist shows one error for all workers, but only if the error is plain text.
            is_worker = hasattr(collector.config, "workerinput")
            self.imports += 1
            collector.ihook.pytest_collectreport(report=pytest.CollectReport(
                collector.nodeid, "failed", bad if is_worker else _failure(collector, bad), []))
        self.when = "after the collection of " + collector.nodeid

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, Any, None]:
        """Hides failed imports, because pytest runs no test if the collection failed. A CUDA
        attempt during an import must not stop the session."""
        session.testsfailed -= self.imports
        yield
        session.testsfailed += self.imports

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, None]:
        self.enter(item.nodeid)
        yield
        if self.phases == 0:
            self.take()  # the test ran and was judged in its own process (pytest-forked)
        self.when = "after " + item.nodeid

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, None]:
        outcome = yield
        self.phases += 1
        report = outcome.get_result()
        bad = self.judge(item, report)
        if bad:
            report.outcome = "failed"
            report.longrepr = _failure(item, bad)
            if hasattr(report, "wasxfail"):
                del report.wasxfail  # this is not the failure that the test expects

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.blame_session()
        for path, name in self.names.items():
            attempts = self.bad(self._take(path))
            self.blame_session_for(["after %s, by a process that it started: %s" % (name, story)
                                    for story in self.stories(attempts)])
        output = getattr(session.config, "workeroutput", None)  # exists in a worker of pytest-xdist
        if output is not None:
            output["cudaguard"] = self.session
        elif self.session and session.exitstatus in (pytest.ExitCode.OK,
                                                     pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["cudaguard"] = (self.outer, self.report)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.session += getattr(node, "workeroutput", {}).get("cudaguard", [])

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.session:
            return
        terminalreporter.section("cudaguard: asked for outside of any test", red=True)
        for text in dict.fromkeys(self.session):  # each worker reports it
            terminalreporter.write_line(text)


def _append(path: str, line: bytes) -> None:
    """Appends the line by one write, because workers of pytest-xdist share the file."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return
    try:
        os.write(file, line)
    finally:
        os.close(file)


class Attempts(Sequence[records.Attempt]):
    """The attempts so far. Each access asks the guard, which records one attempt of each kind
    between two accesses."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    @overload
    def __getitem__(self, index: int) -> records.Attempt: ...

    @overload
    def __getitem__(self, index: slice) -> List[records.Attempt]: ...

    def __getitem__(self, index: int | slice) -> records.Attempt | List[records.Attempt]:
        return self._watcher.look()[index]

    def __len__(self) -> int:
        return len(self._watcher.look())

    def __eq__(self, other: object) -> bool:
        return list(self) == other

    def __repr__(self) -> str:
        return "[%s]" % ",\n".join(self._watcher.stories(list(self)))


def _failure(node: pytest.Collector | pytest.Item, text: str) -> Any:
    """The text as an exception, so that pytest shows its first line in the short summary."""
    try:
        pytest.fail(text, pytrace=False)
    except pytest.fail.Exception:
        return node.repr_failure(pytest.ExceptionInfo.from_current())
