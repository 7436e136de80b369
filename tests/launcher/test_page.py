# SPDX-License-Identifier: Apache-2.0
"""The file that verify --html and report --html write has the right contents, whatever the records
are. What a browser makes of it is in test_page_browser.py."""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import pytest

from support import harness, launcher, page, recorded

pytestmark = pytest.mark.all

try:
    import html5lib
except ImportError:
    html5lib = None
needs_parser = unittest.skipUnless(html5lib, "no html5lib (Debian: python3-html5lib)")

SOURCES = os.path.join(harness.SOURCE, "shim", "launcher", "print", "page")
MOST = 2 << 20  # bytes, but of the largest samples
MOST_LARGEST = {"large_report": 6 << 20, "worst": 7 << 20}


def source_of(name):
    return harness.read(os.path.join(SOURCES, name))


def policy_hash(text):
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


class Pages(harness.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.directory = tempfile.mkdtemp(prefix="cg-")
        cls.addClassCleanup(shutil.rmtree, cls.directory, True)
        page.write(cls.directory, *page.NAMES)

    def bytes_of(self, name):
        return harness.bytes_of(os.path.join(self.directory, name + ".html"))

    def parts(self, name):
        return page.Parts(self.bytes_of(name))

    def test_document_follows_the_schema(self):
        for name in ("fail", "failed", "pass"):
            self.validates(self.parts(name).loaded(), "launcher", "print", "verify.schema.json")
        schema = recorded.schema("launcher", "print", "report.schema.json")
        for name in ("report", "small_report"):
            document = self.parts(name).loaded()
            for field, one in (("place", document["places"][0]),
                               ("call", document["calls"][0]),
                               ("process", document["processes"][0]),
                               ("group", document["groups"]["exe"]["rows"][0])):
                harness.jsonschema.Draft202012Validator(
                    dict(schema["$defs"][field], **{"$defs": schema["$defs"]})).validate(one)

    def test_document_of_records_is_limited(self):
        """A cluster has hundreds of thousands of processes; the groups count them all."""
        document = self.parts("report").loaded()
        self.assertEqual(len(document["processes"]), document["process_count"])
        self.assertEqual(document["groups"]["host"]["count"], 40)
        self.assertEqual(sum(one["asking"] for one in document["groups"]["host"]["rows"]), 3000)

    def test_policy_names_the_script_and_the_style_alone(self):
        for name in page.NAMES:
            parts = self.parts(name)
            self.assertEqual(parts.policy,
                             "default-src 'none'; base-uri 'none'; form-action 'none'; "
                             "script-src '%s'; style-src '%s'"
                             % (policy_hash(parts.script), policy_hash(parts.style)), name)
            self.assertEqual((parts.script, parts.style),
                             (source_of("page.js"), source_of("page.css")), name)

    def test_nothing_of_a_record_is_markup(self):
        clean = self.parts("pass")
        for name in ("forged", "forged_report"):
            parts = self.parts(name)
            # Parts matches only if neither has "<"; what surrounds them is constant.
            self.assertEqual(parts.head, clean.head, name)
            self.assertTrue(parts.document.isascii(), name)
            self.assertEqual(page.HIDDEN.findall(parts.all), [], name)
            self.assertIn("\\u003c/details>\\u003cscript>alert(1)\\u003c/script>",
                          parts.document, name)
            self.assertIn("]]>-->\\u003c!--", parts.document, name)

    def test_forged_texts_stay_as_they_are(self):
        command = self.parts("forged").loaded()["command"]
        self.assertEqual(command[0], "</details><script>alert(1)</script>\"'&<b onclick=x>\0\x1b[31m"
                         "\ufffd\ufffd(\u202egpj.exe\n\r\t\x85\uffff</style>]]>--><!--\U0001f600 "
                         "http://e.example/")
        self.assertEqual(command[2], "<" * 9000)

    def test_script_makes_text_nodes_alone(self):
        script = source_of("page.js")
        self.assertEqual(re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|setHTML|DOMParser|"
                                    r"document\.write|\beval\b|Function\(|\bsrc\b|cssText|import\(|"
                                    r"fetch\(|XMLHttpRequest|</script|<!--", script), [])

    @needs_parser
    def test_pages_are_valid_html(self):
        for name in ("empty", "fail", "pass"):
            self.assertEqual(page.mistakes(self.bytes_of(name).decode(), html5lib), [], name)

    def test_pages_stay_small(self):
        for name in page.NAMES:
            self.assertLess(len(self.bytes_of(name)), MOST, name)

    @pytest.mark.full
    def test_largest_pages_stay_within_their_limits(self):
        page.write(self.directory, *page.LARGEST)
        for name in page.LARGEST:
            self.assertLess(len(self.bytes_of(name)), MOST_LARGEST[name], name)
        # Only the attempts that the page shows have a stack.
        sites = self.parts("worst").loaded()["calls"]
        self.assertEqual(len(sites), 500)
        self.assertEqual(sum(bool(one["python"]) for one in sites), 40)


class Written(harness.DirectoryCase):
    """The launcher itself writes the pages."""

    def written(self, name):
        return harness.bytes_of(self.path(name))

    def test_page_of_verify_has_the_document_and_the_text(self):
        done = subprocess.run([launcher.LAUNCHER, "verify", "--json", self.path("a.json"), "--html",
                               self.path("a.html"), "--", "sh", "-c", "true; exit 3"],
                              capture_output=True, check=False, text=True)
        self.assertEqual(done.returncode, 2)
        parts = page.Parts(self.written("a.html"))
        self.assertEqual(parts.loaded(), json.loads(self.written("a.json")))
        self.assertEqual(parts.text, done.stderr)

    def test_page_of_report_has_the_document_and_the_text(self):
        self.make("r.jsonl", '{"v":1,"ts":3,"pid":9,"exe":"/a","argv":["<a&b>"],"api":"cuInit",'
                  '"decision":"deny","caller":"/x+0x1"}\n')
        done = subprocess.run([launcher.LAUNCHER, "report", "--html", self.path("a.html"),
                               self.path("r.jsonl")], capture_output=True, check=True, text=True)
        parts = page.Parts(self.written("a.html"))
        self.assertEqual(parts.text, done.stdout)
        self.assertEqual([one["command"] for one in parts.loaded()["processes"]], ["<a&b>"])
