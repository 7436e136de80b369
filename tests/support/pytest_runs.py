# SPDX-License-Identifier: Apache-2.0
"""Runs pytest with the plug-in on suites that a test writes."""

import os
import sys
import textwrap
import xml.etree.ElementTree

from support import harness

# scripts/test --all fetches the newest pytest; scripts/test has this one.
FETCHED = os.path.join(harness.DEPS, "frameworks", "pytest", "bin", "python")
PYTHON = FETCHED if os.path.exists(FETCHED) else sys.executable
PACKAGES = os.path.join(harness.SOURCE, "shim", "python")
PLUGIN = ("-p", "cudaguard.pytest_plugin", "--cudaguard")
ATTEMPT = 'ctypes.CDLL("libcuda.so.1").cuInit(0)'

# It is pytest-forked in short: each test runs in a child of its own.
FORKED = """
import os, pickle
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):
    if hasattr(item.config, "workeroutput") or not hasattr(item.config, "workerinput"):
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            reports = runtestprotocol(item, log=False, nextitem=None)
            os.write(writing, pickle.dumps([item.config.hook.pytest_report_to_serializable(
                config=item.config, report=report) for report in reports]))
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as stream:
            data = pickle.loads(stream.read())
        os.waitpid(child, 0)
        for one in data:
            item.ihook.pytest_runtest_logreport(
                report=item.config.hook.pytest_report_from_serializable(
                    config=item.config, data=one))
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True
"""

# The subtests of pytest 9 in short. The report that is logged is a copy of the one that is made.
SUBTESTS = """
import pytest
from _pytest.runner import CallInfo
@pytest.fixture
def subtest(request):
    def run(function):
        call = CallInfo.from_call(function, "call")
        hook = request.node.ihook
        report = hook.pytest_runtest_makereport(item=request.node, call=call)
        hook.pytest_runtest_logreport(report=type(report)._from_json(report._to_json()))
    return run
"""

# They are pytest-rerunfailures and flaky in short: a test that fails runs once more.
RERUN = """
import os
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    if any(report.failed for report in reports):
        for report in reports if os.environ["HOW"] == "rerunfailures" else ():
            report.outcome = "rerun" if report.failed else report.outcome
            item.ihook.pytest_runtest_logreport(report=report)
        item._initrequest()
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True

def pytest_report_teststatus(report):
    return ("rerun", "R", "RERUN") if report.outcome == "rerun" else None
"""


class Case(harness.DirectoryCase):
    def make(self, name, text, mode=0o644):
        return super().make(name, textwrap.dedent(text), mode)

    def pytest(self, *arguments, guard=True, plugin=PLUGIN, env=None, trace=False,
               start=("-m", "pytest"), world="fake"):
        """Runs pytest and adds .cases: {test's name: (passed, failed, error or skipped, message)}.
        Only -n needs what pytest loads by itself, which is a fifth of a short run.
        """
        junit = self.path("junit.xml")
        own = None if "-n" in (*arguments, *plugin) else "1"
        result = harness.run(
            [PYTHON, *start, "-p", "no:cacheprovider", "--rootdir", self.directory, *plugin,
             "--junit-xml", junit, *arguments], world=world, guard=guard, trace=trace, cwd=self.directory,
            env={"PYTHONPATH": PACKAGES + ":" + self.directory, "PYTHONDONTWRITEBYTECODE": "1",
                 "COLUMNS": "200", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": own, **(env or {})})
        result.cases = {}
        if os.path.exists(junit):
            for case in xml.etree.ElementTree.parse(junit).iter("testcase"):
                kinds = [child for child in case if child.tag in ("failure", "error", "skipped")]
                name = case.get("name", "").replace("test_", "", 1)
                result.cases[name] = ((kinds[0].tag, (kinds[0].get("message") or "") + "\n" + (kinds[0].text or "")) if kinds
                                      else ("passed", ""))
            os.unlink(junit)
        return result

    def outcomes(self, result):
        found = {}
        for name, (outcome, _) in result.cases.items():
            found.setdefault(outcome, set()).add(name)
        return found
