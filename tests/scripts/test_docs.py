# SPDX-License-Identifier: Apache-2.0
"""README and docs/: every link leads to a page or place, and every file that is named exists."""

import glob
import json
import os
import re
import shutil
import subprocess
import unittest

import pytest

from lab import results_page

from support import harness

PAGES = ("README.md", "docs/*.md", "docs/*/*.md", "ARCHITECTURE.md", "CONTRIBUTING.md",
         "SECURITY.md", "CHANGELOG.md", "tests/gpu/README.md", "tests/lab/*.md",
         "tests/lab/results/*.md", "scripts/packaging/README.md")
LINK = re.compile(r"\]\(([^)\s]+)[^)]*\)|^\[[^\]]+\]:\s*(\S+)|\b(?:src|srcset|href)=\"([^\"]+)\"",
                  re.MULTILINE)
HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.MULTILINE)
# This regular expression finds names of files in the text.
NAMED = re.compile(r"`((?:scripts|docs|tests|shim|policy|\.ci|share/cudaguard)/[\w.*/-]+)`")
MADE = ("tests/gpu/results",)  # a run makes it
# The version in the name of a file, an image or a tag, and in an example of JSON.
VERSIONED = re.compile(r"cudaguard(?:[-_:@]v?|\": \")(\d+\.\d+\.\d+)")


def text_of(page):
    """Returns the page without its code blocks."""
    return re.sub(r"(?ms)^ *```.*?^ *```$", "", page)


def anchors(page):
    """Returns the anchors of a page as GitHub makes them."""
    found = []
    for heading in HEADING.findall(text_of(page)):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.append(name if name not in found else "%s-%d" % (name, found.count(name)))
    return found


def links(path, page):
    """Yields (link, its file, its anchor) of a page at `path`, without other people's pages."""
    # Text in `code` is not a link.
    for match in LINK.finditer(re.sub(r"`[^`\n]*`", "", text_of(page))):
        link = next(part for part in match.groups() if part)
        if not re.match(r"[a-z]+:", link):
            file, _, anchor = link.partition("#")
            yield link, os.path.normpath(os.path.join(os.path.dirname(path), file or path)), anchor


def broken_links(path, page):
    """Returns the links of a page at `path` that lead nowhere."""
    broken = []
    for link, target, anchor in links(path, page):
        if target != path and not os.path.exists(target):
            broken.append(link)
        elif anchor and anchor not in anchors(page if target == path else harness.read(target)):
            broken.append(link)
    return broken


def missing_files(page):
    """Returns the files that a page names and that do not exist."""
    installed = harness.read("tests", "artefacts", "installed.txt")
    missing = []
    for name in NAMED.findall(page):
        if name.startswith("share/"):
            found = "./" + name.rstrip("/") in installed
        else:
            # A pair of .cpp and .h has one name, and TEST means any test.
            name_here = re.sub(r"[A-Z]{3,}", "*", name) + "*"
            found = glob.glob(os.path.join(harness.SOURCE, name_here))
        if not found and name not in MADE:
            missing.append(name)
    return missing


FOUND = sorted(
    os.path.relpath(path, harness.SOURCE) for name in PAGES
    for path in glob.glob(os.path.join(harness.SOURCE, name)))


class Pages(unittest.TestCase):
    def test_links_from_readme_reach_every_page(self):
        start = os.path.join(harness.SOURCE, "README.md")
        found, todo = set(), [start]
        while todo:
            path = todo.pop()
            if path in found or not path.endswith(".md") or not os.path.exists(path):
                continue
            found.add(path)
            todo += [target for _, target, _ in links(path, harness.read(path))]
        for path in glob.glob(os.path.join(harness.SOURCE, "docs", "**", "*.md"), recursive=True):
            self.assertIn(path, found)

    def test_readmes_figures_of_programs_are_the_labs(self):
        """Of all programs, how many try to open a device: in each way of running them."""
        with open(os.path.join(harness.SOURCE, "tests/lab/results/programs.jsonl")) as stream:
            ways = [row["ways"] for row in map(json.loads, stream) if row.get("ways")]
        counts = [len(ways)] + [sum(way[name]["opens"] > 0 for way in ways)
                                for name in ("unguarded", "hidden", "run")]
        readme = " ".join(harness.read("README.md").split())
        found = re.search(r"Of (\d+) \[programs\].* (\d+) tried to open `/dev/nvidia\*`. With the "
                          r"empty variable, (\d+) still did; under `cudaguard run`, only (\d+) ", readme)
        self.assertEqual([int(number) for number in found.groups()], counts)


def test_labs_page_is_made_from_its_results(tmp_path):
    """Fails if results are committed without the page."""
    results = "tests/lab/results"
    shutil.copytree(os.path.join(harness.SOURCE, results), tmp_path / results)
    page = tmp_path / results / "README.md"
    page.unlink()
    results_page.write(tmp_path)
    assert page.read_text() == harness.read(results, "README.md")


def test_each_section_of_the_changes_is_short():
    """A merge once brought back 157 items that had been removed."""
    sections = re.split(r"(?m)^## ", harness.read("CHANGELOG.md"))[1:]
    assert sections
    for section in sections:
        assert len(section.rstrip().splitlines()) <= 15, section[:60]


def test_every_link_leads_somewhere():
    for page in FOUND:
        path = os.path.join(harness.SOURCE, page)
        assert broken_links(path, harness.read(path)) == [], page


def test_every_named_file_exists():
    for page in FOUND:
        assert missing_files(harness.read(page)) == [], page


def other_versions(text, version):
    return sorted(set(VERSIONED.findall(text)) - {version})


def test_pages_name_the_version_of_cmake():
    """CHANGELOG.md has all versions."""
    version, = re.findall(r"project\(cudaguard VERSION ([\d.]+)",
                          harness.read("CMakeLists.txt"))
    pages = [page for page in FOUND if page != "CHANGELOG.md"] + [
        "scripts/integrations/kubernetes/" + name
        for name in ("pod.yaml", "policy.yaml", "kyverno-policy.yaml")] + ["tests/lab/engines.py"]
    texts = {page: harness.read(page) for page in pages}
    assert sum(bool(VERSIONED.search(text)) for text in texts.values()) >= 5
    assert {page: other for page, text in texts.items()
            if (other := other_versions(text, version))} == {}


@pytest.mark.parametrize(("names", "linked"), [
    (["README.md", "CHANGELOG.md", "LICENSE", "SECURITY.md"], {"CHANGELOG.md", "SECURITY.md"}),
    # Debian's package has its own names for the others.
    (["README.md", "SECURITY.md"], {"SECURITY.md"})])
def test_installed_pages_have_no_broken_link(tmp_path, names, linked):
    doc = tmp_path / "share" / "doc" / "cudaguard"
    doc.mkdir(parents=True)
    scripts = os.path.join(harness.SOURCE, "scripts")
    shutil.copytree(os.path.join(scripts, "integrations"), tmp_path / "share" / "cudaguard")
    subprocess.run([os.path.join(scripts, "packaging", "install-docs"), doc, *names], check=True)
    pages = [str(page) for page in doc.glob("**/*.md")]
    assert len(pages) > 10
    for page in pages:
        assert broken_links(page, harness.read(page)) == [], page
    readme = harness.read(doc / "README.md")
    assert {name for name in ("CHANGELOG.md", "SECURITY.md") if "(%s)" % name in readme} == linked


def test_control_mistakes_of_a_page_are_found():
    """The anchors are those of GitHub."""
    path = os.path.join(harness.SOURCE, "docs", "page.md")
    page = ("# A `b`: [c d](verify.md)\n## it's, here_2 - so\n## A `b`: c d\n[a](verify.md) [c](#a-b-c-d-1)\n"
            "[d](#it's) [e](../README.md#install) [f](verify.md#nothing \"t\") <img src=\"no.svg\">\n"
            "`[h](no.md)` [i](https://example.com/x)\n[j]: none.md\n```text\n# a\n[k](no.md)\n```\n"
            "`scripts/test`, `scripts/none`, `docs/*.md`, `share/cudaguard/no`, cudaguard:0.1.2\n")
    assert broken_links(path, page) == ["#it's", "verify.md#nothing", "no.svg", "none.md"]
    assert missing_files(page) == ["scripts/none", "share/cudaguard/no"]
    assert other_versions(page, "0.2.0") == ["0.1.2"]
