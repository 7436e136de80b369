# SPDX-License-Identifier: Apache-2.0
"""The tests of docs/integrations and of scripts/integrations share this module."""

import os
import re
import shutil

from support import harness, launcher

try:
    import yaml
except ImportError:
    yaml = None

HERE = os.path.join(harness.SOURCE, "tests", "integrations")
ENTRY_POINT = harness.program("entry_point")
OPEN = [ENTRY_POINT, "lib=libcuda.so.1"]


def script(*names):
    return os.path.join(harness.SOURCE, "scripts", "integrations", *names)


def read(*names):
    return harness.read(script(*names))


def page(name):
    """Returns the text of docs/integrations/NAME.md."""
    path = os.path.join(harness.SOURCE, "docs", "integrations", name + ".md")
    return harness.read(path)


def blocks(language, name, section=None):
    """Returns the blocks of this language in a page of docs/integrations, or in one of its
    sections.

    A second-level section includes the third-level sections that follow it.
    """
    text = page(name)
    if section:
        found = re.search(r"(?ms)^(##+) %s\n(.*)" % re.escape(section), text)
        text = re.split(r"(?m)^#{2,%d} " % len(found[1]), found[2])[0]
    return re.findall(r"(?ms)^```%s\n(.*?)^```$" % language, text)


def usr_local(directory):
    """Installs a tree at `directory` and returns the bubblewrap arguments that mount it at
    /usr/local."""
    shutil.copytree(harness.LIB, os.path.join(directory, "lib"), symlinks=True)
    os.mkdir(os.path.join(directory, "bin"))
    shutil.copy(launcher.LAUNCHER, os.path.join(directory, "bin"))
    return ["--tmpfs", "/usr/local", "--ro-bind", os.path.join(directory, "bin"), "/usr/local/bin",
            "--ro-bind", os.path.join(directory, "lib"), "/usr/local/lib"]


def others_only(result):
    """Removes the null drivers of a copied tree from a result's driver files."""
    result.driver_files = [path for path in result.driver_files if "/lib/cudaguard/" not in path]
    return result


class Case(launcher.Case):
    def need_yaml(self):
        if yaml is None:
            harness.skip(self, "python3-yaml is not installed")

    def need_root(self, what):
        if os.geteuid() != 0:
            harness.skip(self, "only root can " + what)

    def fake_log(self):
        """The path of an empty log of the fake driver, for what harness.run does not start."""
        return self.make("fake.log", "", 0o666)

    def logged(self):
        return harness.read(self.path("fake.log")).split()

    def validate(self, text, release):
        """Checks a manifest against the schemas of a release of Kubernetes."""
        path = self.make("manifest.yaml", text, 0o644)
        return self.unguarded(self.need_fetched("platforms") + "/kubernetes-validate", "--strict",
                              "-k", release, path)

    def guarded(self, answers, fake_calls):
        """Fails unless the program's answers and the recording fake's log show that it was guarded.
        """
        self.assertEqual((answers.get("cuInit"), fake_calls), ("100", []))

    def reached(self, answers, fake_calls):
        self.assertEqual(answers.get("cuInit"), "0")
        self.assertIn("cuInit", fake_calls)
