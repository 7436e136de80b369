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
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Any, Callable, Dict, Generator, List, Set

import pytest

from cudaguard import installation

OPTION = "--cudaguard-reports-of-marked"  # only the second pytest has it
_OUTPUT = "cudaguard_marked"  # a worker of pytest-xdist names its marked tests
# `python -m pytest` would add the current directory to sys.path.
_START = ("import json, sys; sys.path[:], arguments = json.load(open(sys.argv[1])); import pytest; "
          "sys.exit(pytest.main(arguments))")
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
        self.path = "" if hasattr(config, "workerinput") else config.getoption(
            "cudaguard_reports_of_marked")
        self.pid = os.getpid()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: List[pytest.Item]) -> None:
        items[:] = [item for item in items if self.is_marked(item)]

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self._write({"start": nodeid, "location": location})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        data.pop("node", None)  # pytest-xdist's worker, which is no text
        self._write({"report": data})

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        self._write({"finish": nodeid, "location": location})

    def _write(self, message: Dict[str, Any]) -> None:
        if not self.path or os.getpid() != self.pid:
            return
        with open(self.path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(message, default=str) + "\n")


class FirstPytest:
    """The plug-in of the first pytest: it leaves the marked tests out, and runs the second one."""

    def __init__(self, config: pytest.Config, is_marked: Callable[[pytest.Item], bool],
                 report: str | None) -> None:
        self.config = config
        self.is_marked = is_marked
        self.report = report  # CUDAGUARD_REPORT of the second pytest
        self.command = launcher()
        self.marked: Set[str] = set()
        self.running: Dict[str, Any] = {}  # the location of each test that runs
        self.finished: Set[str] = set()
        self.error = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: List[pytest.Item]) -> None:
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
        if self.marked and outcome.excinfo is None and not hasattr(self.config, "workerinput"):
            try:
                self._run(session)
            except BaseException as error:
                if not hasattr(outcome, "force_exception"):  # pluggy before 1.1
                    raise
                outcome.force_exception(error)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.marked.update(getattr(node, "workeroutput", {}).get(_OUTPUT, ()))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput[_OUTPUT] = sorted(self.marked)
        elif self.error and session.exitstatus in _ENDS:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.error:
            terminalreporter.section("cudaguard: tests that may use CUDA", red=True)
            terminalreporter.write_line(self.error)

    def _run(self, session: pytest.Session) -> None:
        directory = tempfile.mkdtemp(prefix="cudaguard-pytest-")
        try:
            self._run_in(session, directory)
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _run_in(self, session: pytest.Session, directory: str) -> None:
        reports, output, start = (os.path.join(directory, name)
                                  for name in ("reports", "output", "start"))
        open(reports, "wb").close()
        params = self.config.invocation_params
        with open(start, "w", encoding="utf-8") as stream:
            json.dump([sys.path, [OPTION + "=" + reports, *map(str, params.args)]], stream)
        environment = self._environment()
        # With -s and --pdb, the second pytest writes to the terminal itself.
        shown = self.config.getoption("capture") == "no" or self.config.getoption("usepdb")
        with open(output, "wb") as stream, open(reports, "rb") as lines:
            process = subprocess.Popen(
                [self.command, "run", "--policy=OFF", "--", sys.executable, "-c", _START,
                 start], cwd=str(params.dir), env=environment,
                stdin=None if shown else subprocess.DEVNULL, stdout=None if shown else stream,
                stderr=None if shown else subprocess.STDOUT)
            try:
                stopped = self._follow(session, process, lines)
            finally:
                _end(process)
        if stopped:
            return
        code = process.returncode
        end = "their pytest ended with " + (
            "exit code %d" % code if code >= 0 else signal.Signals(-code).name)
        for nodeid, location in self.running.items():
            self.config.hook.pytest_runtest_logreport(report=pytest.TestReport(
                nodeid, location, {}, "failed", end + " in this test", "call"))
        missing = self.marked - self.finished - set(self.running)
        if missing or process.returncode not in _ENDS:
            with open(output, encoding="utf-8", errors="replace") as stream:
                text = stream.read()
            self.error = "%d of %d tests did not run: %s\n%s" % (len(missing), len(self.marked), end, text)

    def _environment(self) -> Dict[str, str]:
        environment = dict(os.environ)
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
                    self._report(json.loads(start))
                    start = b""
                if session.shouldfail or session.shouldstop:
                    return True
            if ended:
                return False
            try:
                process.wait(_PERIOD)
            except subprocess.TimeoutExpired:
                pass

    def _report(self, message: Dict[str, Any]) -> None:
        hook = self.config.hook
        if "start" in message:
            self.running[message["start"]] = message["location"]
            hook.pytest_runtest_logstart(nodeid=message["start"], location=message["location"])
        elif "finish" in message:
            self.finished.add(message["finish"])
            self.running.pop(message["finish"], None)
            hook.pytest_runtest_logfinish(nodeid=message["finish"], location=message["location"])
        else:
            data = message["report"]
            if isinstance(data["longrepr"], list):
                data["longrepr"] = tuple(data["longrepr"])  # JSON has no tuples
            report = hook.pytest_report_from_serializable(config=self.config, data=data)
            hook.pytest_runtest_logreport(report=report)


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
