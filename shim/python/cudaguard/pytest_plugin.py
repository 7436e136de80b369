# SPDX-License-Identifier: Apache-2.0
"""pytest --cudaguard: a test during which CUDA was initialised fails, and says on which line.

    cudaguard run -- pytest -p cudaguard.pytest_plugin --cudaguard

The guard denies the call, as ever, and writes it down; this looks after each phase of a test, and after
each file that is collected, whether something is there. A process that a test has started counts for
it: each test has a report of its own, which its children find in their environment. Works in the
workers of pytest-xdist. A test that may is marked: @pytest.mark.cudaguard_allow.

The marker no_cuda and the fixture cudaguard_attempts check one test, without --cudaguard.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any, Dict, Generator, List, Optional, Sequence, overload

import pytest

from cudaguard import guard as guards
from cudaguard import records

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
    """What a conftest.py imports counts, too. Who is not guarded hears it in pytest_configure."""
    if getattr(early_config.known_args_namespace, "cudaguard", False):
        _start(early_config)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", _ALLOW + ": this test may initialise CUDA (pytest --cudaguard)")
    config.addinivalue_line(
        "markers", _NO_CUDA + ": this test fails if it initialises CUDA, also without --cudaguard")
    _denied(config.getoption("cudaguard_deny"))
    _allowed(config.getoption("cudaguard_allow"))
    if not config.getoption("cudaguard"):
        return
    watcher = _start(config)
    if isinstance(watcher, str):
        raise pytest.UsageError("--cudaguard: %s; start the tests with %s" % (watcher, _COMMAND))
    watcher.read_options(config)
    if hasattr(config, "workerinput"):  # a worker's environment names the controller's own file
        watcher.outer = config.workerinput["cudaguard"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Without --cudaguard the guard is watched from here on, if a test needs it."""
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
    """Fails the test if there is none."""
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
    """The one of the two markers that counts: a test's own one before its class's."""
    return next((mark.name for mark in node.iter_markers() if mark.name in (_ALLOW, _NO_CUDA)), "")


def _start_for_marked(config: pytest.Config) -> "Watcher | str":
    """As _start. If --cudaguard has not started a watcher, this one judges the marked tests alone."""
    watcher = _start(config, whole_suite=False)
    if not isinstance(watcher, str):
        watcher.read_options(config)
    return watcher


def _start(config: pytest.Config, whole_suite: bool = True) -> "Watcher | str":
    """The watcher, or why there can be none."""
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
        return "CUDA is allowed in this process: its policy is not FORCE_CPU"
    config.pluginmanager.register(watcher, _NAME)
    watcher.enter("the import of conftest.py")
    return watcher


class Watcher:
    """Reads what the guard writes: this process's calls in one file, and in one for each test those
    of the processes that were started during it. From one thread."""

    def __init__(self, found: guards.Guard, directory: str, whole_suite: bool) -> None:
        self.guard = found
        self.directory = directory
        self.own = os.path.join(directory, "own")
        self.denied: List[str] = []
        self.allowed: List[str] = []
        self.whole_suite = whole_suite  # not only the tests that are marked no_cuda
        self.session: List[str] = []  # what no test is to blame for
        self.outer = os.environ.get(_REPORT)  # what somebody else reads; `cudaguard verify` does
        if self.outer and not self.outer.startswith("/"):
            self.outer = os.path.abspath(self.outer)
        self.pid = os.getpid()
        self.count = found.touches()
        self.read: Dict[str, int] = {}  # how far each file was read
        self.names: Dict[str, str] = {}  # of each test's file
        self.imports = 0  # collected modules that asked
        self.current = ""
        self.when = "while conftest.py was imported"  # outside of tests and of what is collected
        self.phases = 0
        self.attempts: List[records.Attempt] = []  # of the current test, file or directory
        self.judged = 0  # how many of these
        if self.count:
            self.blame_session_for(["%d calls before the plug-in was loaded" % self.count])

    def read_options(self, config: pytest.Config) -> None:
        self.denied = _denied(config.getoption("cudaguard_deny"))
        self.allowed = _allowed(config.getoption("cudaguard_allow"))

    def stop(self) -> None:
        if os.getpid() != self.pid:
            return
        if self.outer is None:
            os.environ.pop(_REPORT, None)
        else:
            os.environ[_REPORT] = self.outer
        shutil.rmtree(self.directory, ignore_errors=True)

    def enter(self, name: str) -> None:
        """From now on what is asked for is this test's, file's or directory's."""
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
        """What was asked for since the last time."""
        attempts = self._take(self.own) + self._take(self.current)
        count = self.guard.touches()
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
            if attempt is not None:
                attempts.append(attempt)
        return attempts

    def _hand_on(self, line: bytes, attempt: Optional[records.Attempt]) -> None:
        """To where the record would have gone without us."""
        if not self.outer:
            return
        path = self.outer.replace("%p", str(attempt.pid if attempt else self.pid))
        path = path.replace("%u", str(os.geteuid())).replace(
            "%h", os.uname().nodename.replace("/", "_"))
        try:
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            return
        try:
            os.write(file, line)
        finally:
            os.close(file)

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
        """The attempts that must fail a report that has not failed; others are a section of it."""
        attempts = self.look()[self.judged:]
        self.judged += len(attempts)
        marker = _nearest(node)
        if not self.whole_suite and marker != _NO_CUDA:
            return ""
        bad = [] if marker == _ALLOW else self.bad(attempts)
        text = "\n".join(self.stories(bad or attempts))
        if bad and not report.failed:
            return text
        if text:
            report.sections.append(("cudaguard", text))
        return ""

    # --- pytest's hooks ---

    def pytest_report_header(self) -> str:
        kinds = " or ".join(records.KINDS[word] for word in self.denied)
        return "cudaguard: a test that asks for %s fails" % kinds

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, None]:
        self.enter("the collection of " + (collector.nodeid or "the session"))
        outcome = yield
        bad = self.judge(collector, outcome.get_result())
        if bad:
            # This is a second report, because pytest runs no tests of a collector whose own one fails.
            # From several workers pytest-xdist shows one error, if it is plain text.
            is_worker = hasattr(collector.config, "workerinput")
            self.imports += 1
            collector.ihook.pytest_collectreport(report=pytest.CollectReport(
                collector.nodeid, "failed", bad if is_worker else _failure(collector, bad), []))
        self.when = "after the collection of " + collector.nodeid

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, Any, None]:
        """pytest runs no test if the collection failed. An import that asks is no reason for that."""
        session.testsfailed -= self.imports
        yield
        session.testsfailed += self.imports

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, None]:
        self.enter(item.nodeid)
        yield
        if self.phases == 0:
            self.take()  # it ran in a process of its own (pytest-forked), which has judged it
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
                del report.wasxfail  # an expected failure is another one

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.blame_session()
        for path, name in self.names.items():
            attempts = self.bad(self._take(path))
            self.blame_session_for(["after %s, by a process that it started: %s" % (name, story)
                                    for story in self.stories(attempts)])
        output = getattr(session.config, "workeroutput", None)  # of a worker of pytest-xdist
        if output is not None:
            output["cudaguard"] = self.session
        elif self.session and session.exitstatus in (pytest.ExitCode.OK,
                                                     pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["cudaguard"] = self.outer

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.session += getattr(node, "workeroutput", {}).get("cudaguard", [])

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.session:
            return
        terminalreporter.section("cudaguard: asked for outside of any test", red=True)
        for text in dict.fromkeys(self.session):  # each worker says it
            terminalreporter.write_line(text)


class Attempts(Sequence[records.Attempt]):
    """Looks at the guard each time it is read. Between two looks the guard writes down one attempt of
    each kind."""

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
    """As pytest shows an exception, so that its first line is in the short summary as well."""
    try:
        pytest.fail(text, pytrace=False)
    except pytest.fail.Exception:
        return node.repr_failure(pytest.ExceptionInfo.from_current())
