# SPDX-License-Identifier: Apache-2.0
"""What the tests of docs/integrations and of scripts/'s integrations share."""

import os
import re
import shutil

from support import harness, launcher

PLATFORMS = os.path.join(harness.DEPS, "frameworks", "platforms", "bin")
HERE = os.path.join(harness.SOURCE, "tests", "integrations")
ENTRY_POINT = harness.program("entry_point")
OPEN = [ENTRY_POINT, "lib=libcuda.so.1"]


def script(*names):
    return os.path.join(harness.SOURCE, "scripts", *names)


def read(*names):
    with open(script(*names), encoding="utf-8") as stream:
        return stream.read()


def page(name):
    """The text of docs/integrations/NAME.md."""
    path = os.path.join(harness.SOURCE, "docs", "integrations", name + ".md")
    with open(path, encoding="utf-8") as stream:
        return stream.read()


def blocks(language, name, section=None):
    """The blocks of this language in a page of docs/integrations, or in one section of it.

    A section of the second level has those of the third that follow it."""
    text = page(name)
    if section:
        found = re.search(r"(?ms)^(##+) %s\n(.*)" % re.escape(section), text)
        text = re.split(r"(?m)^#{2,%d} " % len(found[1]), found[2])[0]
    return re.findall(r"(?ms)^```%s\n(.*?)^```$" % language, text)


def usr_local(directory):
    """An installed tree, made at `directory`, and bubblewrap's words for it at /usr/local."""
    shutil.copytree(harness.LIB, os.path.join(directory, "lib"), symlinks=True)
    os.mkdir(os.path.join(directory, "bin"))
    shutil.copy(launcher.LAUNCHER, os.path.join(directory, "bin"))
    return ["--tmpfs", "/usr/local", "--ro-bind", os.path.join(directory, "bin"), "/usr/local/bin",
            "--ro-bind", os.path.join(directory, "lib"), "/usr/local/lib"]


def others_only(result):
    """Takes the null drivers of a copied tree from a result's driver files."""
    result.driver_files = [path for path in result.driver_files if "/lib/cudaguard/" not in path]
    return result


class Case(launcher.Case):
    def need_platforms(self):
        if not os.path.exists(PLATFORMS):
            harness.skip(self, "run scripts/fetch-frameworks %s platforms" % harness.DEPS)

    def need_root(self, what):
        if os.geteuid() != 0:
            harness.skip(self, "only root can " + what)

    def guarded(self, answers, fake_calls):
        """What a program said and what the recording fake has seen of it."""
        self.assertEqual((answers.get("cuInit"), fake_calls), ("100", []))

    def reached(self, answers, fake_calls):
        self.assertEqual(answers.get("cuInit"), "0")
        self.assertIn("cuInit", fake_calls)
