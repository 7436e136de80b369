# SPDX-License-Identifier: Apache-2.0
"""pytest --cudaguard: a test that initialises CUDA fails, and its report names the line.

    cudaguard run -- pytest -p cudaguard.pytest_plugin --cudaguard

The guard denies the call as usual and records it. The plug-in reads the records after each phase of
a test and after the collection of each file. An attempt by a process that a test has started counts
for the test: each test has its own report file, whose path is in the environment. Works in the
workers of pytest-xdist. The marker @pytest.mark.cudaguard_allow allows a test to initialise CUDA,
which the guard denies nevertheless. allowed_tests.py gives tests with another marker real CUDA.
With --cudaguard-deny=context, the policy is NO_CONTEXT: tests may query the GPUs.

A test may replace any function of Python while the plug-in works, so most hooks call only what
originals.py has bound. No error of the plug-in's own leaves a hook. If it cannot read a record, the
test that was running fails, because it may have asked.

The marker no_cuda and the fixture cudaguard_attempts check one test, without --cudaguard.
"""

from __future__ import annotations

import builtins
import os
from typing import Any, Dict, Generator, List, Optional, Sequence, Set, Tuple, overload

import pytest
from _pytest._code.code import ReprFileLocation as _ReprFileLocation

from cudaguard import allowed_tests, installation, records
from cudaguard import guard as guards
from cudaguard.originals import OutputFile, Real, RecordFile, reason_of

__builtins__ = dict(vars(builtins))  # type: ignore[assignment]  # see originals.py

# A test may replace these in the module pytest.
_fail, _Item, _TestReport, _ExceptionInfo = (pytest.fail, pytest.Item, pytest.TestReport,
                                             pytest.ExceptionInfo)

_NAME = "cudaguard-watcher"
_REPORT = "CUDAGUARD_REPORT"
_ALLOW = "cudaguard_allow"
_NO_CUDA = "no_cuda"
_FIXTURE = "cudaguard_attempts"
_COMMAND = "cudaguard run -- pytest --cudaguard"
_CONTEXT = "context"  # the word of --cudaguard-deny
_HINT = "cudaguard-hint"
_HINTS = 5  # lines
_RULE = ("the rule of /etc/cudaguard.conf for this process has report=, so its records go there; only "
         "an administrator can remove that")
# The collector's own report, the collector, and a second report, which fails.
_FailedImport = Tuple[pytest.CollectReport, pytest.Collector, pytest.CollectReport]
_UNREADABLE = "the records could not be read, so this may have asked for CUDA: "


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cudaguard", "CUDA in tests (cudaguard)")
    group.addoption("--cudaguard", action="store_true", default=False,
                    help="a test fails during which CUDA was initialised; needs the guard: " + _COMMAND)
    group.addoption("--cudaguard-deny", action="append", default=[], metavar="KINDS",
                    help="what makes a test fail, instead of init: a list of " + ", ".join(records.KINDS))
    group.addoption("--cudaguard-allow", action="append", default=[], metavar="PATTERN",
                    help="code that may: lib:NAME, module:NAME, line:FILE:LINE")
    group.addoption("--cudaguard-allow-mark", action="append", default=[], metavar="MARK",
                    help="tests with this mark may use CUDA; they run last, in a process of their own")
    group.addoption("--cudaguard-report", metavar="FILE",
                    help="write each attempt to FILE, a line of JSON with its test")
    allowed_tests.add_option(group)
    for name, kind in (("cudaguard", "bool"), ("cudaguard_deny", "args"),
                       ("cudaguard_allow", "linelist"), ("cudaguard_allow_mark", "args"),
                       ("cudaguard_report", None)):
        parser.addini(name, "the same as --%s, which overrides it" % name.replace("_", "-"), kind)


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
        if _CONTEXT in words and word in ("init", "opencl"):  # as in shim/launcher/commands/plan.cpp
            raise pytest.UsageError("--cudaguard-deny: context and %s contradict each other; "
                                    "leave one out" % word)
    return words


def _command(config: pytest.Config, option: str = "") -> str:
    """The command that starts the tests so that --cudaguard-deny works."""
    is_context = _CONTEXT in _denied(_option(config, "cudaguard_deny"))
    return "cudaguard run%s -- pytest%s%s" % (
        " --policy NO_CONTEXT" if is_context else "", option,
        " --cudaguard-deny=context" if is_context else "")


def _with_advice(config: pytest.Config, why: str, option: str = "") -> str:
    """Why the tests cannot be watched, and what to do. The user cannot change the machine's rules."""
    if why == _RULE:
        return why
    return "%s; start the tests with %s" % (why, _command(config, option))


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Starts early, because imports by conftest.py count. pytest_configure reports errors."""
    known = early_config.known_args_namespace
    if known.cudaguard_reports_of_marked is not None:
        return
    if known.cudaguard or early_config.getini("cudaguard"):
        _start(early_config)
    elif known.capture != "no" and os.environ.get("CUDAGUARD_LOG") not in ("off", "error"):
        _start_hint(early_config)


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
        raise pytest.UsageError("--cudaguard: " + _with_advice(config, watcher, " --cudaguard"))
    watcher.read_options(config)
    if watcher.mismatch():
        raise pytest.UsageError(
            "--cudaguard: " + _with_advice(config, watcher.mismatch(), " --cudaguard"))
    if hasattr(config, "workerinput"):  # a worker's environment names the controller's own file
        watcher.outer, path = config.workerinput["cudaguard"]
        watcher.report = OutputFile(path) if path else None
    else:
        watcher.open_report(config)
    if marks:
        _register_first(config, watcher)


def _register_first(config: pytest.Config, watcher: "Watcher") -> None:
    if "fence" in os.environ.get("CUDAGUARD_PRESETS", "").split(","):
        raise pytest.UsageError("--cudaguard-allow-mark: the fence of this process allows no CUDA; "
                                "start the tests with %s, without --fence" % _command(config, " --cudaguard"))
    try:
        first = allowed_tests.FirstPytest(config, _is_marked, watcher.marks, watcher.outer)
    except installation.NotUsable as error:
        raise pytest.UsageError("--cudaguard-allow-mark: the command cudaguard: %s" % error) from error
    config.pluginmanager.register(first)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Without --cudaguard, starts a watcher now if a test needs one."""
    marks = _marks(session.config)
    if any(_nearest(item, marks) == _NO_CUDA or _FIXTURE in getattr(item, "fixturenames", ())
           for item in session.items):
        _start_for_marked(session.config)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if _nearest(item, _marks(item.config)) == _NO_CUDA:
        _watcher_for(item.config, _NO_CUDA)


@pytest.fixture
def cudaguard_attempts(request: pytest.FixtureRequest) -> "Attempts":
    """The CUDA attempts that this test has made so far, its processes included. A sequence."""
    return Attempts(_watcher_for(request.config, _FIXTURE))


def _watcher_for(config: pytest.Config, what: str) -> "Watcher":
    """The watcher. Fails the test if there can be none."""
    watcher = _start_for_marked(config)
    if isinstance(watcher, str):
        _fail("%s: %s" % (what, _with_advice(config, watcher)), pytrace=False)
    return watcher


def pytest_unconfigure(config: pytest.Config) -> None:
    watcher = config.pluginmanager.getplugin(_NAME)
    if watcher is not None:
        watcher.stop()


def _nearest(node: pytest.Collector | pytest.Item, marks: List[str]) -> str:
    """The name of the marker that applies: a test's own marker goes before its class's."""
    names = (_ALLOW, _NO_CUDA, *marks)
    return next((mark.name for mark in node.iter_markers() if mark.name in names), "")


def _is_marked(item: pytest.Item) -> bool:
    """True if the test may use CUDA (--cudaguard-allow-mark)."""
    marks = _marks(item.config)
    return _nearest(item, marks) in marks


def _start_for_marked(config: pytest.Config) -> "Watcher | str":
    """Like _start, but a watcher that this starts judges only the tests that are marked no_cuda."""
    watcher = _start(config, whole_suite=False)
    if isinstance(watcher, str):
        return watcher
    watcher.read_options(config)
    return watcher.mismatch() or watcher


def _start(config: pytest.Config, whole_suite: bool = True) -> "Watcher | str":
    """The watcher, or the reason why there can be none."""
    watcher = config.pluginmanager.getplugin(_NAME)
    if watcher is not None:
        return watcher  # type: ignore[no-any-return]
    found = guards.find()
    if found is None:
        return "the guard is not loaded in this process, or is an older one"
    try:
        watcher = Watcher(found, whole_suite)
    except OSError as error:
        return "the directory for its records: %s" % reason_of(error)
    if not watcher.is_watching:
        watcher.own.close()
        watcher.remove_files()
        if found.watch():
            return _RULE
        return "CUDA is allowed in this process, by its policy"
    config.pluginmanager.register(watcher, _NAME)
    watcher.hint = config.pluginmanager.getplugin(_HINT)
    watcher.enter("the import of conftest.py")
    return watcher


def _start_hint(config: pytest.Config) -> None:
    """If the user has a report, the lines are in it."""
    found = guards.find()
    if found is None or os.environ.get(_REPORT):
        return
    try:
        hint = Hint(found)
    except OSError:
        return  # a hint is not worth an error
    if hint.is_watching:
        config.pluginmanager.register(hint, _HINT)
    else:
        hint.pytest_unconfigure()


def _calls(number: int) -> str:
    return "1 call" if number == 1 else "%d calls" % number


def _is_unreadable(doubt: str) -> bool:
    return doubt.startswith(_UNREADABLE)


class Hint:
    """Names the lines of this process that asked, if nothing else does. The guard prints no message
    into the file to which pytest redirects stderr. No test sees a difference: only the guard knows
    the name of the file."""

    def __init__(self, found: guards.Guard) -> None:
        """Raises OSError."""
        self.guard = found
        self.directory = Real.mkdtemp(prefix="cudaguard-pytest-")
        self.pid = Real.getpid()
        self.texts: List[str] = []
        self.file = RecordFile(self.directory + "/own")
        self.is_watching = not found.refuses_contexts() and found.watch(self.file.path)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        lines, _ = self.file.read()
        attempts = [attempt for attempt in map(records.parse, lines) if attempt is not None]
        # The name of a short-lived process means nothing to a reader.
        self.texts[:0] = [records.headline(attempt, True) for attempt in attempts]
        output = getattr(session.config, "workeroutput", None)  # exists in a worker of pytest-xdist
        if output is not None:
            output[_HINT] = self.texts

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.texts += getattr(node, "workeroutput", {}).get(_HINT, [])

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        texts = list(dict.fromkeys(self.texts))
        for text in texts[:_HINTS]:
            terminalreporter.write_line("cudaguard: " + text)
        if len(texts) > _HINTS:
            terminalreporter.write_line("cudaguard: and %d more" % (len(texts) - _HINTS))
        if texts:
            terminalreporter.write_line("cudaguard: to fail the tests that ask: " + _COMMAND)

    def pytest_unconfigure(self) -> None:
        self.file.close()
        if Real.getpid() == self.pid:
            self.guard.watch("")
            Real.rmtree(self.directory, ignore_errors=True)


class Watcher:
    """Reads the guard's records. One file has those of this process. Each test has its own file for
    the processes that it starts. Must be used from one thread."""

    def __init__(self, found: guards.Guard, whole_suite: bool) -> None:
        """Raises OSError."""
        self.guard = found
        self.hint: Optional[Hint] = None
        self.directories: List[str] = []
        self.is_watching = False
        self.kind = _CONTEXT if found.refuses_contexts() else "init"  # what the guard refuses
        self.denied: List[str] = []
        self.allowed: List[str] = []
        self.marks: List[str] = []
        self.report: Optional[OutputFile] = None  # --cudaguard-report
        self.outputs: Dict[str, OutputFile] = {}  # for which `outer` stands
        self.whole_suite = whole_suite  # False: judge only the tests that are marked no_cuda
        self.session: List[str] = []  # attempts for which no test is to blame
        self.notices: List[str] = []  # do not fail the session
        self.used: Set[str] = set()  # the patterns that have matched
        self.outer = os.environ.get(_REPORT)  # what another reader expects, e.g. `cudaguard verify`
        if self.outer and not self.outer.startswith("/"):
            self.outer = os.path.abspath(self.outer)
        self.pid = os.getpid()
        self.count = found.attempts()
        self.files: List[Tuple[RecordFile, str]] = []  # the file of each test
        self.imports = 0  # collected modules with a CUDA attempt, reported
        self.failed_imports: List[_FailedImport] = []  # not yet reported
        self.name = ""  # the current test, file or directory
        self.number = 0  # of the last file
        self.current: Optional[RecordFile] = None
        self.when = "while conftest.py was imported"  # outside of tests and collection
        self.phases = 0
        self.attempts: List[records.Attempt] = []  # of the current test, file or directory
        self.judged = 0  # number of attempts that were judged
        self.doubts: List[str] = []  # what is not known of the current test
        self.doubted = 0  # number of doubts that were judged
        self.failed: List[Tuple[pytest.TestReport, str]] = []  # reports that have not yet counted
        self.has_failed = False  # a report of the current test
        self.has_blamed = False  # for a record that could not be read
        self.initialised: Set[Tuple[int, int]] = set()  # processes in which cuInit has succeeded
        self.in_vain: Dict[Tuple[int, int], str] = {}  # others: what they called without success
        self.open_files()
        if self.count:
            self.blame_session_for([_calls(self.count) + " before the plug-in was loaded"])

    def open_files(self) -> None:
        """Makes a directory for the records, and the guard use it. Raises OSError."""
        directory = Real.mkdtemp(prefix="cudaguard-pytest-")
        self.directories.append(directory)
        # A test may change the user. Its processes then must find the file whose name they have.
        Real.chmod(directory, 0o711)
        self.own = RecordFile(directory + "/own")
        self.is_watching = self.guard.watch(self.own.path)

    def remove_files(self) -> None:
        for directory in self.directories:
            Real.rmtree(directory, ignore_errors=True)

    def read_options(self, config: pytest.Config) -> None:
        self.denied = _denied(_option(config, "cudaguard_deny"))
        self.allowed = _allowed(_option(config, "cudaguard_allow"))
        self.marks = _marks(config)

    def mismatch(self) -> str:
        """Why the policy of this process does not allow what --cudaguard-deny distinguishes. Empty if
        it does."""
        if _CONTEXT in self.denied and self.kind != _CONTEXT:
            return "--cudaguard-deny=context needs the policy NO_CONTEXT"
        if _CONTEXT not in self.denied and self.kind == _CONTEXT:
            return ("queries are allowed in this process: its policy is NO_CONTEXT, for "
                    "--cudaguard-deny=context")
        return ""

    def open_report(self, config: pytest.Config) -> None:
        name = _option(config, "cudaguard_report")
        if config.getoption("cudaguard_report") == "":
            raise pytest.UsageError("--cudaguard-report needs a value")
        if not name:
            return
        self.report = OutputFile(os.path.join(str(config.invocation_params.dir), name))
        try:
            self.report.make_empty()
        except OSError as error:
            raise pytest.UsageError("--cudaguard-report %s" % records.shown(
                "%s: %s" % (name, error.strerror))) from error

    def stop(self) -> None:
        if Real.getpid() != self.pid:
            return
        if self.outer is None:
            Real.environ.pop(_REPORT, None)
        else:
            Real.environ[_REPORT] = self.outer
        self.guard.watch(self.outer or "")
        for file in (self.own, self.current):
            if file is not None:
                file.close()
        self.remove_files()

    def doubt(self, reason: str) -> None:
        """The current test may have made an attempt that is not known."""
        self.add_doubt(_UNREADABLE + reason)

    def add_doubt(self, text: str) -> None:
        text = records.shown(text)
        if text not in self.doubts:
            self.doubts.append(text)

    def doubt_in_vain(self) -> None:
        """Where contexts count, a process without CUDA proves nothing, as under `verify`. Call this
        when its phase has ended, because cuInit may succeed after something else has failed."""
        own = Real.getpid()
        for process, api in self.in_vain.items():
            if _CONTEXT in self.denied and process not in self.initialised:
                # Workers of pytest-xdist must give the same text for the same import.
                self.add_doubt("%s got no CUDA (%s), so it could make no context" % (
                    "this process" if process[0] == own else "process %d" % process[0], api))
        self.in_vain = {}

    def enter(self, name: str) -> None:
        """Assigns all attempts from now on to this test, file or directory."""
        self.blame_session()
        self.name = name
        self.phases = 0
        self.attempts = []
        self.judged = 0
        self.doubts = []
        self.doubted = 0
        try:
            if not self.own.is_in_place():  # a test has removed it
                self.own.close()
                self.open_files()
            self.guard.watch(self.own.path)  # pytest in a test may have named another file
            self.open_next(name)
        except Exception as error:
            # For example, no descriptor is left. The last test's file also serves this one.
            if self.current is None or not self.current.is_in_place():
                self.doubt(reason_of(error))

    def open_next(self, name: str) -> None:
        """Makes the file for a test. Raises OSError."""
        self.number += 1
        file = RecordFile("%s/%d" % (self.directories[-1], self.number))
        if self.current is not None:
            self.current.close()
        self.current = file
        self.files.append((file, name))
        Real.environ[_REPORT] = file.path

    def look(self) -> List[records.Attempt]:
        """All attempts of the current test."""
        self.attempts += self.take()
        return self.attempts

    def take(self) -> List[records.Attempt]:
        """The attempts since the last call. Raises nothing."""
        attempts = []
        for file in (self.own, self.current):
            if file is not None:
                attempts += self._take(file, self.name)
        count = self.guard.attempts()
        pid = Real.getpid()
        if count > self.count and not any(attempt.pid == pid for attempt in attempts):
            attempts.append(records.Attempt(self.kind, _calls(count - self.count), pid, "",
                                            records.UNWRITTEN, "", [], ""))
        self.count = count
        self.guard.watch()
        return attempts

    def _take(self, file: RecordFile, name: str) -> List[records.Attempt]:
        attempts = []
        lines, problem = file.read()
        if problem:
            self.doubt(problem)
        for line in lines:
            attempt = None
            try:
                attempt = records.parse(line)
                if not records.is_whole(line):
                    self.doubt("a record is damaged: %r" % line[:60])
                self._note_outcome(records.record_of(records.value_of(line)), attempt)
                self._hand_on(line, attempt)
                self._report(line, name)
            except Exception as error:
                self.doubt(reason_of(error))
            if attempt is not None:
                attempts.append(attempt)
        return attempts

    def _note_outcome(self, record: records.Record, attempt: Optional[records.Attempt]) -> None:
        if attempt is None:
            return
        if record.event == "init" and record.decision == "allow" and record.result <= 0:
            self.initialised.add(attempt.process())
        elif records.is_in_vain(record) and not any(
                records.may(attempt, pattern) for pattern in self.allowed):
            self.in_vain.setdefault(attempt.process(), attempt.api)

    def _hand_on(self, line: bytes, attempt: Optional[records.Attempt]) -> None:
        """Appends the record to the file that it would be in without the plug-in."""
        if not self.outer or Real.getpid() != self.pid:  # a forked child's parent does this
            return
        path = self.outer.replace("%p", str(attempt.pid if attempt else self.pid))
        path = path.replace("%u", str(Real.geteuid())).replace(
            "%h", Real.uname().nodename.replace("/", "_"))
        self.outputs.setdefault(path, OutputFile(path)).append(line)

    def _report(self, line: bytes, test: str) -> None:
        """Appends the record to the file of --cudaguard-report."""
        if self.report is None or Real.getpid() != self.pid:
            return
        record = records.value_of(line)
        if isinstance(record, dict):
            self.report.append(Real.encode({**record, "test": test}).encode() + b"\n")

    def stories(self, attempts: List[records.Attempt]) -> List[str]:
        pid = Real.getpid()
        return [records.story(attempt, attempt.pid == pid) for attempt in attempts]

    def bad(self, attempts: List[records.Attempt]) -> List[records.Attempt]:
        denied = [attempt for attempt in attempts if attempt.kind in self.denied]
        return records.not_allowed(denied, self.allowed)

    def note_used(self, attempts: List[records.Attempt]) -> None:
        """Remembers which patterns match something."""
        self.used.update(pattern for pattern in self.allowed if pattern not in self.used and
                         any(records.may(attempt, pattern) for attempt in attempts))

    def blame_session(self) -> None:
        """Blames no test for the attempts and doubts since the last judgement."""
        try:
            attempts = records.without_tables(self.take())
            self.note_used(attempts)
            self.doubt_in_vain()
            for file in (self.own, self.current):
                rest = "" if file is None else file.rest()
                if rest:
                    self.doubt(rest)
            texts = self.stories(self.bad(attempts))
        except Exception as error:
            self.doubt(reason_of(error))
            texts = []
        doubts = self.doubts[self.doubted:]
        self.doubted = len(self.doubts)
        self.has_blamed |= any(map(_is_unreadable, doubts))
        self.blame_session_for(["%s: %s" % (self.when, text) for text in texts + doubts])
        self.give_hint(texts)

    def give_hint(self, stories: List[str]) -> None:
        if self.hint is not None:
            self.hint.texts += [story.partition("\n")[0] for story in stories]

    def may_ask(self, marker: str) -> bool:
        return marker == _ALLOW or marker in self.marks

    def blame_session_for(self, texts: List[str]) -> None:
        if self.whole_suite:
            self.session += texts

    def judge(self, node: pytest.Collector | pytest.Item,
              report: pytest.CollectReport | pytest.TestReport) -> str:
        """The text of the attempts that must fail a report, unless it has failed already. Other
        attempts become a section of the report. Raises nothing."""
        marker = _nearest(node, self.marks)
        try:
            attempts = self.look()[self.judged:]
            self.judged += len(attempts)
            attempts = records.without_tables(attempts)
            self.note_used(attempts)
            self.doubt_in_vain()
            may = self.may_ask(marker)
            bad = [] if may else self.bad(attempts)
            texts = self.stories(bad or attempts)
        except Exception as error:
            self.doubt(reason_of(error))
            bad, texts = [], []
        doubts = self.doubts[self.doubted:]
        self.doubted = len(self.doubts)
        if not self.whole_suite and marker != _NO_CUDA:
            self.give_hint(texts)
            return ""
        text = "\n".join(texts + doubts if bad else doubts + texts)
        self.has_blamed |= not may and any(map(_is_unreadable, doubts))
        must_fail = bad or (doubts and not may)
        if must_fail and not report.failed:
            if bad and marker != _NO_CUDA:
                text += "\n" + records.remedy(bad, isinstance(node, _Item))
            return text
        if must_fail and isinstance(report, _TestReport):
            self.failed.append((report, text))  # it may be repeated
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
            self.failed_imports.append((outcome.get_result(), collector, pytest.CollectReport(
                collector.nodeid, "failed", bad if is_worker else _failure(collector, bad), [])))
        self.when = "after the collection of " + collector.nodeid

    @pytest.hookimpl(hookwrapper=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> Generator[None, Any, None]:
        """The second report comes after the collector's own, for which --lf forgets failures."""
        yield
        self._report_imports([one for one in self.failed_imports if one[0] is report])

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self) -> None:
        self._report_imports(self.failed_imports)  # pytest does not report every collector that passes

    def _report_imports(self, failed: List[_FailedImport]) -> None:
        self.failed_imports = [one for one in self.failed_imports if one not in failed]
        for _, collector, report in failed:
            self.imports += 1
            collector.ihook.pytest_collectreport(report=report)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, Any, None]:
        """Hides failed imports, because pytest runs no test if the collection failed. A CUDA
        attempt during an import must not stop the session."""
        if session.shouldfail:  # -x or --maxfail
            raise session.Failed(session.shouldfail)
        session.testsfailed -= self.imports
        yield
        session.testsfailed += self.imports

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, None]:
        self.enter(item.nodeid)
        self.failed = []
        self.has_failed = False
        outcome = yield
        # A framework that keeps the driver's first answer does not ask again in the next run.
        self.session += ["%s, in a run that was repeated: %s" % (item.nodeid, text.partition("\n")[0])
                         for _, text in self.failed]
        self.failed = []
        is_whole = outcome.excinfo is None  # False after Ctrl-C and pytest.exit
        if is_whole and self.phases == 0:  # the test's own process judged it (pytest-forked)
            self._blame_lost(item)
            self.doubts = []
            self.in_vain = {}
        self.when = ("after %s" if is_whole else "in %s, which was interrupted") % item.nodeid

    def _blame_lost(self, item: pytest.Item) -> None:
        """If the child has judged the attempts in a report that only the child knows, such as a
        subtest's, no test has failed."""
        marker = _nearest(item, self.marks)
        try:
            attempts = records.without_tables(self.take())
            self.note_used(attempts)
            texts = self.stories(self.bad(attempts))
        except Exception as error:
            texts = [reason_of(error)]
        if (self.whole_suite or marker == _NO_CUDA) and not (self.has_failed or self.may_ask(marker)):
            self.session += ["%s, whose report was lost: %s" % (item.nodeid, text) for text in texts]

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
            self.failed.append((report, bad))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """pytest-rerunfailures reports a failure as "rerun", and flaky does not report it, if a later
        run may pass. A failure that counts makes the others of the test superfluous. The report of a
        subtest is a copy."""
        self.has_failed |= report.failed
        if report.outcome == "failed" and any(
                one.nodeid == report.nodeid and _text_of(one) == _text_of(report)
                for one, _ in self.failed):
            self.failed = []

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.blame_session()
        try:
            self._blame_late_attempts()
        except Exception as error:
            self.blame_session_for([_UNREADABLE + reason_of(error)])
        output = getattr(session.config, "workeroutput", None)  # exists in a worker of pytest-xdist
        if output is not None:
            output["cudaguard"] = (self.session, self.notices, sorted(self.used))
        elif self.session and session.exitstatus in (pytest.ExitCode.OK,
                                                     pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _blame_late_attempts(self) -> None:
        self.doubts = []
        for file, name in self.files:
            attempts = self._take(file, name)
            self.note_used(attempts)
            self.blame_session_for(["after %s, by a process that it started: %s" % (name, story)
                                    for story in self.stories(self.bad(attempts))])
            file.close()
        self.doubt_in_vain()
        if not self.has_blamed:  # otherwise, the same removed directory is the reason
            self.blame_session_for(self.doubts)
        if self.report is not None:
            problem = self.report.append() or ("it was removed" if self.report.was_removed() else "")
            if problem:
                self.blame_session_for(["--cudaguard-report %s is not complete: %s" % (
                    self.report.path, problem)])
        for path, output in self.outputs.items():
            problem = output.append()
            if problem:
                self.notices.append("not all records were written to %s: %s" % (path, problem))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["cudaguard"] = (self.outer, self.report.path if self.report else "")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        session, notices, used = getattr(node, "workeroutput", {}).get("cudaguard", ([], [], []))
        self.session += session
        self.notices += notices
        self.used.update(used)

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        if self.session:
            terminalreporter.section("cudaguard: asked for outside of any test", red=True)
        for text in dict.fromkeys(self.session):  # each worker reports it
            terminalreporter.write_line(text)
        patterns = [] if config.getoption("collectonly") else config.getoption("cudaguard_allow")
        unused = [pattern for pattern in patterns if pattern not in self.used]
        for text in dict.fromkeys(self.notices + [
                "--cudaguard-allow=%s matches no CUDA attempt" % pattern for pattern in unused]):
            terminalreporter.write_line(records.shown("cudaguard: " + text), yellow=True)


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
        return self._known()[index]

    def __len__(self) -> int:
        return len(self._known())

    def _known(self) -> List[records.Attempt]:
        attempts = records.without_tables(self._watcher.look())
        unread = list(filter(_is_unreadable, self._watcher.doubts))
        if unread:
            _fail(unread[-1], pytrace=False)
        return attempts

    def __eq__(self, other: object) -> bool:
        return list(self) == other

    def __repr__(self) -> str:
        return "[%s]" % ",\n".join(self._watcher.stories(list(self)))


def _text_of(report: pytest.TestReport) -> str:
    """The failure. Raises nothing."""
    try:
        return str(report.longrepr)
    except Exception:  # the test has replaced something that pytest uses
        return ""


def _failure(node: pytest.Collector | pytest.Item, text: str) -> Any:
    """The text as an exception, so that pytest shows its first line in the short summary. Raises
    nothing."""
    try:
        try:
            _fail(text, pytrace=False)
        except _fail.Exception:
            failure: Any = node.repr_failure(_ExceptionInfo.from_current())
        # In CI, pytest's short summary has the whole message, and JUnit's always. Both also print
        # the failure itself. The place would be that of _fail() above; pytest 7 has none.
        crash = failure.reprcrash or _ReprFileLocation("", 0, "")
        failure.reprcrash = crash
        if getattr(failure, "chain", None):  # of which pytest-xdist makes the failure anew
            failure.chain[-1] = (failure.chain[-1][0], crash, failure.chain[-1][2])
        crash.message = text.partition("\n")[0]
        if isinstance(node, _Item):
            path, line, _ = node.location
            crash.path, crash.lineno = str(node.config.rootpath / path), (line or 0) + 1
        return failure
    except Exception:  # the test has replaced something that pytest uses
        return text
