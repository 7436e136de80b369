# SPDX-License-Identifier: Apache-2.0
"""The page in headless Chromium: nothing on its console, nothing fetched, no JavaScript; what it says
can be seen, on a phone too. The pictures are left in BUILD/pages: look at them."""

import os
import unittest

import pytest

from support import browser, harness, page

pytestmark = pytest.mark.full


PICTURES = os.path.join(harness.BUILD, "pages")
LAID_OUT = "document.documentElement.scrollWidth"
# Texts that reach out of the page's right edge, but in what can be scrolled.
REACH_OUT = """[...document.querySelectorAll("main *")].filter(one => !one.closest(".wide, .lane") &&
    one.getBoundingClientRect().right > innerWidth + 1).map(one => one.outerHTML.slice(0, 80))"""


@unittest.skipUnless(browser.PROGRAM, "no Chromium (Debian: chromium-headless-shell)")
class Seen(harness.FolderCase):
    def setUp(self):
        super().setUp()
        page.write(self.folder)
        os.makedirs(PICTURES, exist_ok=True)
        os.mkdir(self.path("profile"))
        self.browser = browser.Browser(self.path("profile"))
        self.addCleanup(self.browser.close)

    def test_pages(self):
        for name in page.NAMES:
            for width in (1280, 390):
                for dark in (False, True):
                    with self.subTest(page=name, width=width, dark=dark):
                        self.browser.open(self.path(name + ".html"), width, dark)
                        self.assertEqual(self.browser.complaints(), ([], []))
                        self.assertEqual(self.browser.value(LAID_OUT), width)
                        self.assertEqual(self.browser.value(REACH_OUT), [])
                        ground = self.browser.value(
                            "getComputedStyle(document.body).backgroundColor")
                        self.assertEqual(ground, "rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
                        if not name.startswith("forged"):
                            self.browser.picture(os.path.join(PICTURES, "%s-%d-%s.png" % (
                                name, width, "dark" if dark else "light")))

    def test_unfolds_by_key(self):
        self.browser.open(self.path("fail.html"))
        rows = "[...document.querySelectorAll('.tree .row')].filter(one => one.checkVisibility())"
        before = self.browser.value(rows + ".length")
        self.browser.value("document.querySelector('.tree summary').focus()")
        for kind in ("keyDown", "keyUp"):
            self.browser.ask("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter",
                             text="\r", windowsVirtualKeyCode=13)
        self.assertEqual(self.browser.value(rows + ".length"), before + 64)

    def test_printed(self):
        """The stacks are unfolded, in dark ink, whatever the screen has."""
        self.browser.open(self.path("fail.html"), media="print")
        self.assertEqual(self.browser.value(
            "document.querySelector('.toucher details li').checkVisibility()"), True)
        self.browser.picture(os.path.join(PICTURES, "fail-print.png"))

    def test_it_sees(self):
        """The checks find what they look for."""
        bad = self.path("bad.html")
        with open(bad, "w", encoding="utf-8") as stream:
            stream.write("<main><img src='/none.png'><p style='width:3000px'>wide</p></main>"
                         "<script>document.title = 'ran'</script>")
        self.browser.open(bad, 390)
        said, asked = self.browser.complaints()
        self.assertEqual(asked, ["file:///none.png"])
        self.assertTrue(said)
        self.assertNotEqual(self.browser.value("document.title"), "ran")
        self.assertNotEqual(self.browser.value(REACH_OUT), [])
