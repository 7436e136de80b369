# SPDX-License-Identifier: Apache-2.0
"""The page in headless Chromium: what it shows, on a phone too; that forged records run nothing and
fetch nothing; the keyboard; printing; no JavaScript. The pictures are left in BUILD/pages: look at
them."""

import os
import re
import unittest

import pytest

from support import browser, harness, page

pytestmark = pytest.mark.full

try:
    import html5lib
except ImportError:
    html5lib = None

PICTURES = os.path.join(harness.BUILD, "pages")
LAID_OUT = "document.documentElement.scrollWidth"
# Texts that reach out of the page's right edge, but in what can be scrolled.
REACH_OUT = """[...document.querySelectorAll("main *")].filter(one => !one.closest(".wide, .lane") &&
    one.getBoundingClientRect().right > innerWidth + 1).map(one => one.outerHTML.slice(0, 80))"""
TEXT = "document.querySelector('main').textContent"
ROWS = "[...document.querySelectorAll('.tree .row')].filter(one => one.checkVisibility()).length"

TEXTS = {
    "fail": [
        "FAIL ppo.py:159 and envs.py:22 asked for CUDA",
        "2 lines asked for CUDA, in 66 of 72 processes; the program ended with exit code 1. First attempt, "
        "4.90 s after the start: cuInit from libc10_cuda.so, refused.",
        "Coverage: 3 programs unguarded, 1 program of unknown kind, attempts may be missing.",
        "python3 ppo.py --env-id HalfCheetah-v4 --num-envs 64",
        "/home/u/cleanrl/ppo.py:159 in <module>device = torch.device(\"cuda\" if "
        "torch.cuda.is_available() and args.cuda else \"cpu\")",
        "Native stack, 4 frames",
        "libc10_cuda.so+0x41e93c10::cuda::device_count()",
        "64 × python3 sampler.py --rank * 41250–41313", "monitor.py:17 not denied",
        "No native stack: no libgcc_s in the process", "--allowmonitor.py",
        "render --frames 300 41330 unguarded, has the driver",
        "has the driver: counts as a CUDA attempt", "72 programs started: 68 guarded, 3 unguarded, 1 unknown.",
        "2 × /usr/bin/ffmpegunguardedits environment has no LD_PRELOAD",
        "suunknownits memory cannot be read: another user's",
        "In doubt: su may not be guarded; to accept it: --allow program:su.",
        "refused: cuInit by libc10_cuda.so", "134 records, 1 cut short"],
    "allowed": ["INCOMPLETE Attempts may be missing", "Coverage: attempts may be missing.",
                "dlopen(\"libcuda.so.1\") from libprobe.so, refused; first 1.50 s after the start",
                "In doubt: there is no /proc.", "Not waited for: probe-daemon &lt; (14)",
                "libprobe.so allowed", ", allowed by the guard"],
    "bypassed": ["FAIL static and 2 others asked for CUDA or NVML", "--denyCUDA, NVML",
                 "0xc020462a RM_CONTROL, an ioctl that bypassed the guard and that the fence refused",
                 "Sudo and setuid programs got no more rights under the fence"],
    "pass": ["PASS No process asked for CUDA", "No CUDA use (3 processes checked).",
             "3 programs started: 3 guarded.", "2026-11-21 10:25:48",
             "3.84 s", "exit code 0", "--denyCUDA"],
    "failed": ["FAIL The program failed", "No CUDA use (1 process checked), but the program was "
               "killed by signal 11 (Segmentation fault).", "1 program started: 1 guarded."],
    "report": ["3,000 processes on 40 hosts attempted to use CUDA or NVML", "412 files of",
               "/home/shared/project/train.py:88 1,663 CUDA", "and 20 more rows, not shown",
               "1 line left out that is no cudaguard record", "Users7", "Hosts40",
               "Rules Rule Processes Attempts Last (UTC) /etc/cudaguard.conf:2 2,679 CUDA, NVML",
               "none 162 CUDA",
               "What it did User Host Rule", "7 users 40 hosts /etc/cudaguard.conf:2"],
    "small_report": ["66 processes attempted to use CUDA or NVML", "Each bar spans"],
    "empty": ["0 processes attempted to use CUDA or NVML", "0 records"],
    "large": ["1 line asked for CUDA, in 1,000 of 10,000 processes", "more processes, not shown"],
    "large_report": ["100,000 processes on 40 hosts", "Of the first 4,000 processes"],
    "forged": ["</details><script>alert(1)</script>\"'&<b onclick=x>⟨U+0000⟩⟨U+001B⟩[31m��(⟨U+202E⟩"
               "gpj.exe⏎⟨U+000D⟩⟨U+0009⟩⟨U+0085⟩⟨U+FFFF⟩</style>]]>--><!--😀 http://e.example/"],
}
TEXTS["forged_report"] = TEXTS["worst"] = TEXTS["forged"]


def without_blanks(text):
    return re.sub(r"\s+", "", text)


@unittest.skipUnless(browser.PROGRAM, "no Chromium (Debian: chromium-headless-shell)")
class Seen(harness.DirectoryCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.makedirs(PICTURES, exist_ok=True)

    def setUp(self):
        super().setUp()
        os.mkdir(self.path("profile"))
        self.browser = browser.Browser(self.path("profile"))
        self.addCleanup(self.browser.close)

    def open(self, name, *words, **named):
        if not os.path.exists(self.path(name + ".html")):
            page.write(self.directory, name)
        self.browser.open(self.path(name + ".html"), *words, **named)

    def press(self, key, code, **more):
        for kind in ("keyDown", "keyUp"):
            self.browser.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                             windowsVirtualKeyCode=code, **more)

    def looks_right(self, width, dark):
        self.assertEqual(self.browser.complaints(), ([], []))
        self.assertEqual(self.browser.value(LAID_OUT), width)
        self.assertEqual(self.browser.value(REACH_OUT), [])
        background = self.browser.value("getComputedStyle(document.body).backgroundColor")
        self.assertEqual(background, "rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")

    def test_pages_look_right_at_every_width_and_scheme(self):
        for name in page.NAMES:
            for width in (1280, 420, 390):
                for dark in (False, True):
                    self.open(name, width, dark)
                    self.looks_right(width, dark)
                    if not name.startswith("forged"):
                        self.browser.picture(os.path.join(PICTURES, "%s-%d-%s.png" % (
                            name, width, "dark" if dark else "light")))

    def test_each_page_shows_its_texts(self):
        for name, texts in TEXTS.items():
            self.open(name)
            text = without_blanks(self.browser.value(TEXT))
            for wanted in texts:
                self.assertIn(without_blanks(wanted), text, (name, wanted))
        self.open("fail")
        self.assertEqual(self.browser.value("document.title"),
                         "FAIL: ppo.py:159 and envs.py:22 asked for CUDA")

    @unittest.skipUnless(html5lib, "no html5lib (Debian: python3-html5lib)")
    def test_forged_records_make_no_element(self):
        """What the script has made, as HTML, has our own elements and attributes alone."""
        for name in [one for one in page.NAMES if one != "large"]:
            self.open(name)
            self.assertEqual(self.browser.complaints(), ([], []), name)
            made = "<!DOCTYPE html>" + self.browser.value("document.documentElement.outerHTML")
            self.assertEqual(page.mistakes(made, html5lib), [], name)
            self.assertEqual(self.browser.value("document.querySelectorAll('h1').length"), 1, name)

    def test_pages_policy_blocks_injected_content(self):
        """Were an escape missing, the policy would still refuse the script, the style, the picture."""
        self.open("pass")
        good = harness.read(self.path("pass.html"))
        for bad in ("<script>document.title = 'ran'</script>", "<img src='/x' onerror='document.title=1'>",
                    "<style>body { background: red }</style>",
                    "<iframe src='data:text/html,x'></iframe>",
                    "<base href='http://a.example/'>"):
            self.make("bad.html", good.replace("<script type=", bad + "<script type="))
            self.browser.open(self.path("bad.html"))
            self.assertNotEqual(self.browser.complaints()[0], [], bad)
            self.assertEqual(self.browser.value("document.title"),
                             "PASS: No process asked for CUDA", bad)
            self.assertEqual(self.browser.value(LAID_OUT), 1280, bad)
            self.assertEqual(self.browser.value(
                "getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)", bad)

    def test_page_without_javascript_shows_the_text(self):
        for name in [one for one in page.NAMES if one != "large"]:
            for width in (1280, 420, 390):
                self.open(name, width, script=False)
                self.looks_right(width, False)
                shown = self.browser.value("document.querySelector('pre').textContent")
                self.assertEqual(shown, harness.read(self.path(name + ".txt")), (name, width))
                self.assertTrue(self.browser.value(
                    "document.querySelector('pre').checkVisibility()"), (name, width))
        self.open("fail")
        self.assertIsNone(self.browser.value("document.querySelector('pre')"))

    def test_large_pages_stay_small(self):
        for name in ("large", *page.LARGEST):
            self.open(name)
            self.assertEqual(self.browser.complaints(), ([], []), name)
            self.assertEqual(self.browser.value("document.querySelectorAll('h1').length"), 1, name)
            self.assertLess(self.browser.value("document.querySelectorAll('.row').length"), 3000,
                            name)
            self.assertLess(self.browser.value("document.querySelectorAll('*').length"), 60000,
                            name)

    def test_enter_key_unfolds_a_row(self):
        self.open("fail")
        before = self.browser.value(ROWS)
        self.browser.value("document.querySelector('.tree summary').focus()")
        self.press("Enter", 13, text="\r")
        self.assertEqual(self.browser.value(ROWS), before + 64)

    def test_tab_reaches_everything(self):
        """Links, what unfolds, and tables, which may have to be scrolled, in their order."""
        self.open("fail")
        reachable = "[...document.querySelectorAll('a, summary, .wide')]" \
                    ".filter(one => one.checkVisibility())"
        count = self.browser.value(reachable + ".length")
        self.assertGreater(count, 7)
        for number in range(count):
            self.press("Tab", 9)
            self.assertEqual(self.browser.value(reachable + ".indexOf(document.activeElement)"), number)
            self.assertNotEqual(self.browser.value(
                "getComputedStyle(document.activeElement).outlineStyle"), "none")
        self.browser.value("document.querySelector('.caution a').focus()")
        self.press("Enter", 13, text="\r")
        self.assertEqual(self.browser.value("location.hash"), "#coverage")
        self.assertGreater(self.browser.value("scrollY"), 0)

    def test_printed_page_unfolds_the_stacks(self):
        """The ink is dark, whatever the screen has."""
        self.open("fail", media="print")
        self.assertEqual(self.browser.value(
            "document.querySelector('.attempt details li').checkVisibility()"), True)
        self.browser.picture(os.path.join(PICTURES, "fail-print.png"))
