# SPDX-License-Identifier: Apache-2.0
"""What the packages say of cudaguard is the same everywhere: the sentence and the address that
CMakeLists.txt has."""

import os
import re
import zipfile

from support import harness, packaged


def read(*path):
    with open(os.path.join(harness.SOURCE, *path), encoding="utf-8") as stream:
        return stream.read()


def project(word):
    return re.search(r"^ +%s \"(.*)\"" % word, read("CMakeLists.txt"), re.MULTILINE)[1]


def test_readme_begins_with_the_projects_sentence():
    assert "\n\n**%s**\n" % project("DESCRIPTION") in read("README.md")


class Wheel(packaged.Case):
    def test_pip_show_has_the_sentence_and_the_addresses(self):
        with zipfile.ZipFile(packaged.released(self, packaged.WHEEL)) as archive:
            metadata = archive.read("cudaguard-%s.dist-info/METADATA" % packaged.version()).decode()
        home = project("HOMEPAGE_URL")
        for line in ("Summary: " + project("DESCRIPTION"), "Project-URL: Homepage, " + home,
                     "Project-URL: Changelog, %s/blob/main/CHANGELOG.md" % home):
            self.assertIn("\n%s\n" % line, metadata)
