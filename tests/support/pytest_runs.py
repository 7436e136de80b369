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


class Case(harness.DirectoryCase):
    def make(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as stream:
            stream.write(textwrap.dedent(text))

    def pytest(self, *arguments, guard=True, plugin=PLUGIN, env=None, trace=False):
        """Runs pytest and adds .cases: {test's name: (passed, failed, error or skipped, message)}.
        """
        junit = self.path("junit.xml")
        result = harness.run(
            [PYTHON, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", self.directory, *plugin,
             "--junit-xml", junit, *arguments], guard=guard, trace=trace, cwd=self.directory,
            env={"PYTHONPATH": PACKAGES, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200",
                 "PYTEST_DISABLE_PLUGIN_AUTOLOAD": None, **(env or {})})
        result.cases = {}
        if os.path.exists(junit):
            for case in xml.etree.ElementTree.parse(junit).iter("testcase"):
                kinds = [child for child in case if child.tag in ("failure", "error", "skipped")]
                name = case.get("name").replace("test_", "", 1)
                result.cases[name] = ((kinds[0].tag, kinds[0].get("message") or "") if kinds
                                      else ("passed", ""))
            os.unlink(junit)
        return result

    def outcomes(self, result):
        found = {}
        for name, (outcome, _) in result.cases.items():
            found.setdefault(outcome, set()).add(name)
        return found
