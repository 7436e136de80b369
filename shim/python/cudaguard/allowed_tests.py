# SPDX-License-Identifier: Apache-2.0
"""pytest --cudaguard-allow-mark: a second pytest runs the marked tests, and may use CUDA.

One process cannot run both kinds of tests. If it refuses CUDA, the null driver is loaded, and
frameworks keep its answer. If it allows CUDA, an unmarked test can use what a marked test has
initialised, by calls that the guard does not see, and passes.

So the second pytest runs after the last unmarked test, with the same command line but under the
policy OFF. It has the same plug-ins: with -n it has workers of its own, and with --forked it forks
for each test. It writes its reports to a file, which the first pytest reads. There is one summary,
one exit code and one JUnit file.
"""

from __future__ import annotations

import argparse
import builtins
import os
import shutil
import signal
import subprocess
import sys
from typing import Any, Callable, Dict, Generator, List, Set

import pytest

from cudaguard import installation
from cudaguard.originals import OutputFile, Real, decoded, reason_of

__builtins__ = dict(vars(builtins))  # type: ignore[assignment]  # see originals.py

OPTION = "--cudaguard-reports-of-marked"  # only the second pytest has it
_OUTPUT = "cudaguard_marked"  # a worker of pytest-xdist names its marked tests
_MARKS = "cudaguard_marks"  # and the marks that its tests have
# The program of the second pytest. `python -m pytest` would add the current directory to sys.path,
# and a program that calls pytest.main() would do all its other work again.
_START = """
import json, sys
with open(sys.argv[1]) as _stream:
    _first = json.load(_stream)
sys.path[:], sys.argv[:] = _first["path"], _first["argv"]
if hasattr(sys, "orig_argv"):
    sys.orig_argv[:] = _first["orig_argv"]
if _first["file"]:
    __file__ = _first["file"]
if _first["module"]:
    try:
        import importlib.machinery, importlib.util
        # A directory or an archive has been started.
        _finder = importlib.machinery.PathFinder if _first["module"] == "__main__" else importlib.util
        __spec__ = _finder.find_spec(_first["module"])
        __package__ = __spec__.parent
    except Exception:
        __spec__ = None
import pytest
sys.exit(pytest.main(_first["arguments"]))
"""
_PERIOD = 0.05  # seconds between two looks at the file
_ENDS = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


def add_option(group: Any) -> None:
    group.addoption(OPTION, default=None, help=argparse.SUPPRESS)


def is_second(config: pytest.Config) -> bool:
    return bool(config.getoption("cudaguard_reports_of_marked"))


def launcher() -> str:
    """The path of the command `cudaguard`. Raises NotUsable."""
    try:
        return installation.launcher()
    except installation.NotUsable:
        found = shutil.which("cudaguard")
        if found is None:
            raise
        return found


class SecondPytest:
    """The plug-in of the second pytest: it keeps the marked tests only, and writes the reports."""

    def __init__(self, config: pytest.Config, is_marked: Callable[[pytest.Item], bool]) -> None:
        self.config = config
        self.is_marked = is_marked
        # A worker of pytest-xdist sends its reports to its controller, which writes them.
        self.file = None if hasattr(config, "workerinput") else OutputFile(
            config.getoption("cudaguard_reports_of_marked"))
        self.pid = os.getpid()
        self.lost: Set[str] = set()  # the tests with a report that cannot be written

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: List[pytest.Item]) -> None:
        items[:] = [item for item in items if self.is_marked(item)]

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self._write({"start": nodeid, "location": location})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        try:
            data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
            data.pop("node", None)  # pytest-xdist's worker, which is no text
            line = Real.encode({"report": data})
        except Exception as error:
            again = report.nodeid in self.lost  # each phase of the test has the same properties
            self.lost.add(report.nodeid)
            line = Real.encode({
                "lost": report.nodeid, "location": report.location, "when": report.when,
                "outcome": "passed" if again and not report.failed else "failed",
                "reason": reason_of(error), "text": str(report.longrepr) if report.failed else ""})
        self._write_line(line)

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        self._write({"finish": nodeid, "location": location})

    def _write(self, message: Dict[str, Any]) -> None:
        self._write_line(Real.encode(message))

    def _write_line(self, line: str) -> None:
        """The file keeps what it cannot write now. If it never can, the first pytest finds that tests
        have not ended."""
        if self.file is not None and Real.getpid() == self.pid:
            self.file.append(line.encode() + b"\n")


class _NotStarted(Exception):
    """The second pytest could not be started, because of the cause."""


class FirstPytest:
    """The plug-in of the first pytest: it leaves the marked tests out, and runs the second one."""

    def __init__(self, config: pytest.Config, is_marked: Callable[[pytest.Item], bool],
                 marks: List[str], report: str | None) -> None:
        self.config = config
        self.is_marked = is_marked
        self.unused = set(marks)  # the marks that no collected test has
        self.pid = os.getpid()
        self.start = _start_of_this_process()
        self.options = _python_options()
        self.report = report  # CUDAGUARD_REPORT of the second pytest
        self.command = launcher()
        self.marked: Set[str] = set()
        self.running: Dict[str, Any] = {}  # the location of each test that runs
        self.finished: Set[str] = set()
        self.error = ""

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: List[pytest.Item]) -> Generator[None, Any, None]:
        self.unused -= {mark.name for item in items for mark in item.iter_markers()}
        outcome = yield  # -k and -m deselect tests
        outcome.get_result()
        if self.config.getoption("collectonly"):
            return
        self.marked = {item.nodeid for item in items if self.is_marked(item)}
        items[:] = [item for item in items if not self.is_marked(item)]

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, Any, None]:
        # Without pytest-xdist, pytest's progress counts the marked tests from the start.
        session.testscollected += len(self.marked)
        counted = len(self.marked)
        outcome = yield
        session.testscollected += len(self.marked) - counted
        is_first = os.getpid() == self.pid and not hasattr(self.config, "workerinput")
        if self.marked and outcome.excinfo is None and is_first:
            try:
                self._run(session)
            except (OSError, _NotStarted) as error:  # for example, the disk is full
                self.error = "%d of %d tests did not run: %s" % (
                    len(self.marked - self.finished), len(self.marked),
                    reason_of(error.__cause__ or error))
            except BaseException as error:
                if not hasattr(outcome, "force_exception"):  # pluggy before 1.1
                    raise
                outcome.force_exception(error)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", {})
        self.marked.update(output.get(_OUTPUT, ()))
        self.unused.intersection_update(output.get(_MARKS, ()))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput[_OUTPUT] = sorted(self.marked)
            self.config.workeroutput[_MARKS] = sorted(self.unused)
        elif self.error and session.exitstatus in _ENDS:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.error:
            terminalreporter.section("cudaguard: tests that may use CUDA", red=True)
            terminalreporter.write_line(self.error)
        for mark in self.config.getoption("cudaguard_allow_mark"):
            if mark in self.unused:
                terminalreporter.write_line(
                    "cudaguard: --cudaguard-allow-mark=%s: no test has this mark" % mark, yellow=True)

    def _run(self, session: pytest.Session) -> None:
        directory = ""
        try:
            directory = Real.mkdtemp(prefix="cudaguard-pytest-")
            self._run_in(session, directory)
        finally:
            if directory:
                Real.rmtree(directory, ignore_errors=True)

    def _run_in(self, session: pytest.Session, directory: str) -> None:
        output, reports = directory + "/output", directory + "/reports"
        # With -s and --pdb, the second pytest writes to the terminal itself.
        shown = self.config.getoption("capture") == "no" or self.config.getoption("usepdb")
        with Real.open_file(output, "wb") as stream, Real.open_file(reports, "wb+") as lines:
            try:
                process = self._start_second(directory, reports, None if shown else stream)
            except Exception as error:  # for example, a conftest.py has replaced subprocess.Popen
                raise _NotStarted from error
            try:
                stopped = self._follow(session, process, lines)
            finally:
                _end(process)
        if stopped:
            return
        end = "their pytest ended with " + _end_of(process.returncode)
        for nodeid, location in self.running.items():
            self.config.hook.pytest_runtest_logreport(report=pytest.TestReport(
                nodeid, location, {}, "failed", end + " in this test", "call"))
        missing = self.marked - self.finished - set(self.running)
        if missing or process.returncode not in _ENDS:
            with Real.open_file(output, encoding="utf-8", errors="replace") as stream:
                self.error = "%d of %d tests did not run: %s\n%s" % (
                    len(missing), len(self.marked), end, stream.read())

    def _start_second(self, directory: str, reports: str, stream: Any) -> Any:
        """The process. Its output goes to the stream; None: to the terminal."""
        params = self.config.invocation_params
        start = directory + "/start"
        with Real.open_file(start, "w", encoding="utf-8") as file:
            file.write(Real.encode({**self.start, "path": sys.path, "arguments": [
                OPTION + "=" + reports, *map(str, params.args)]}))
        return Real.popen(
            [self.command, "run", "--policy=OFF", "--", sys.executable, *self.options, "-c", _START,
             start], cwd=str(params.dir), env=self._environment(),
            stdin=None if stream is None else subprocess.DEVNULL, stdout=stream,
            stderr=None if stream is None else subprocess.STDOUT)

    def _environment(self) -> Dict[str, str]:
        environment = dict(Real.environ)
        environment.pop("CUDAGUARD_REPORT", None)
        if self.report is not None:
            environment["CUDAGUARD_REPORT"] = self.report
        # pytest-cov begins with an empty file of this name, and adds the files NAME.* at its end.
        measured = getattr(self.config.pluginmanager.getplugin("_cov"), "cov_controller", None)
        if measured is not None:
            environment["COVERAGE_FILE"] = measured.cov.get_option("run:data_file") + ".marked"
        return environment

    def _follow(self, session: pytest.Session, process: Any, lines: Any) -> bool:
        """Reports as the second pytest does, until it ends. True if the first one must stop."""
        start = b""
        while True:
            ended = process.poll() is not None  # before the read, which then finds everything
            for line in lines:
                start += line
                if start.endswith(b"\n"):
                    self._report(decoded(start.decode("utf-8", "replace")))
                    start = b""
                if session.shouldfail or session.shouldstop:
                    return True
            if ended:
                return False
            Real.sleep(_PERIOD)

    def _report(self, message: Any) -> None:
        hook = self.config.hook
        if not isinstance(message, dict):
            return  # the file is damaged, so tests will be missing
        if "start" in message:
            self.running[message["start"]] = message["location"]
            hook.pytest_runtest_logstart(nodeid=message["start"], location=message["location"])
        elif "finish" in message:
            self.finished.add(message["finish"])
            self.running.pop(message["finish"], None)
            hook.pytest_runtest_logfinish(nodeid=message["finish"], location=message["location"])
        else:
            hook.pytest_runtest_logreport(report=self._report_of(message))

    def _report_of(self, message: Dict[str, Any]) -> pytest.TestReport:
        if "report" in message:
            data = message["report"]
            try:
                if isinstance(data["longrepr"], list):
                    data["longrepr"] = tuple(data["longrepr"])  # JSON has no tuples
                report: pytest.TestReport = self.config.hook.pytest_report_from_serializable(
                    config=self.config, data=data)
                return report
            except Exception as error:
                message = {"lost": data["nodeid"], "location": data["location"], "when": data["when"],
                           "outcome": "failed", "reason": reason_of(error), "text": ""}
        text = "its report cannot be passed on by the second pytest: %s" % message["reason"]
        shown = None if message["outcome"] == "passed" else "\n".join(
            filter(None, (message["text"], text)))
        return pytest.TestReport(message["lost"], message["location"], {}, message["outcome"], shown,
                                 message["when"])


def _start_of_this_process() -> Dict[str, Any]:
    """What tests can see of the command that has started pytest."""
    main = sys.modules["__main__"]
    return {"argv": list(sys.argv), "orig_argv": list(getattr(sys, "orig_argv", ())),
            "file": getattr(main, "__file__", None),
            "module": getattr(getattr(main, "__spec__", None), "name", None)}


def _python_options() -> List[str]:
    """The interpreter's options (-O, -X, -W and so on), which are not in sys.argv."""
    try:
        options: List[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    except ValueError:  # the program has changed sys.warnoptions
        options = []
    for name, value in sys._xoptions.items():
        word = name if value is True else "%s=%s" % (name, value)
        if word not in options:  # the function knows only a few names of -X
            options += ["-X", word]
    return options


def _end_of(code: int) -> str:
    if code >= 0:
        return "exit code %d" % code
    try:
        return signal.Signals(-code).name
    except ValueError:
        return "signal %d" % -code


def _end(process: Any) -> None:
    """Ends the second pytest as Ctrl-C does, if it has not ended."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
