# SPDX-License-Identifier: Apache-2.0
"""The HTML page of verify and report: valid, self-contained, and harmless whatever the records say."""

import os
import re
import shutil
import tempfile
import unittest

from support import harness, page

try:
    import html5lib
except ImportError:
    html5lib = None
needs_parser = unittest.skipUnless(html5lib, "no html5lib (Debian: python3-html5lib)")

STYLE = os.path.join(harness.SOURCE, "shim", "launcher", "report", "page.css")
MOST = 2 << 20  # bytes, but of a page that is all forgery
MOST_FORGED = 6 << 20

SAYS = {
    "fail": [
        "FAIL ppo.py:159 and envs.py:22 asked for CUDA",
        "66 of 70 processes asked; the first 4.90 s after the start, by cuInit through "
        "libc10_cuda.so. It was refused. The program ended with exit code 1.",
        "Not the whole truth: 2 processes were not guarded.",
        "python3 ppo.py --env-id HalfCheetah-v4 --num-envs 64",
        "/home/u/cleanrl/ppo.py:159 in <module> device = torch.device(\"cuda\" if "
        "torch.cuda.is_available() and args.cuda else \"cpu\")",
        "8 frames of other people's code", "Native stack, 9 frames",
        "libc10_cuda.so+0x41e93 c10::cuda::device_count()",
        "64 × python3 sampler.py --rank * 41250–41313", "monitor.py:17 does not count here",
        "No native stack: no libgcc_s in the process",
        "env -i ./render --frames 300 41330 not guarded, has the driver",
        "has the driver open: counts as asked", "2 processes were not guarded. 70 processes seen",
        "134 records, 1 cut short"],
    "pass": ["PASS Nothing asked for CUDA", "3 processes, each of them guarded.",
             "Every process was guarded. 3 processes seen, 3 start records", "2026-11-21 10:25:48",
             "3.84 s", "ended with exit code 0"],
    "failed": ["FAIL The program was killed by signal 11 (Segmentation fault)",
               "Nothing forbidden was asked for, but the program itself failed.",
               "No unguarded process was seen."],
    "report": ["3,000 processes on 40 hosts asked for CUDA or NVML", "412 files of",
               "/home/shared/project/train.py:88 1,663 CUDA", "and 20 more rows, left out here",
               "1 line left out that no guard has written", "7 users 40 hosts"],
    "small_report": ["66 processes asked for CUDA or NVML", "Each bar goes from"],
    "empty": ["0 processes asked for CUDA or NVML", "0 records"],
    "large": ["1,000 of 10,000 processes asked", "more processes, left out here"],
    "forged": ["</details><script>alert(1)</script>\"'&<b onclick=x>⟨U+0000⟩⟨U+001B⟩[31m��(⟨U+202E⟩"
               "gpj.exe⏎⟨U+000D⟩⟨U+0009⟩⟨U+0085⟩⟨U+FFFF⟩</style>]]>--><!--😀 http://e.example/"],
}
SAYS["forged_report"] = SAYS["forged"]


def colours(style):
    """[{name: (red, green, blue)}] of light and dark."""
    found = []
    for block in re.findall(r":root \{(.*?)\}", style, re.S):
        values = re.findall(r"--([a-z-]+): #([0-9a-f]{3,6});", block)
        found.append({name: tuple(int((value if len(value) == 6 else re.sub("(.)", r"\1\1", value))
                                      [i:i + 2], 16) for i in (0, 2, 4))
                      for name, value in values})
    return [one for one in found if one]


def contrast(a, b):
    """WCAG 2's ratio."""
    def light(colour):
        parts = [(part / 255) / 12.92 if part <= 10 else ((part / 255 + .055) / 1.055) ** 2.4
                 for part in colour]
        return .2126 * parts[0] + .7152 * parts[1] + .0722 * parts[2]
    high, low = sorted((light(a), light(b)), reverse=True)
    return (high + .05) / (low + .05)


class Pages(harness.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = tempfile.mkdtemp(prefix="cg-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        page.write(cls.folder)

    def bytes_of(self, name, folder=None):
        with open(os.path.join(folder or self.folder, name + ".html"), "rb") as stream:
            return stream.read()

    @needs_parser
    def test_valid_and_self_contained(self):
        for name in page.NAMES:
            with self.subTest(page=name):
                self.assertEqual(page.mistakes(self.bytes_of(name).decode(), html5lib), [])

    @needs_parser
    def test_the_check_sees(self):
        good = self.bytes_of("pass").decode()
        for old, new in (("</h1>", "</h1><script>alert(1)</script>"), ("</h1>", ""),
                         ("<h1>", "<h1 onclick=\"alert(1)\">"), ("</h1>", "\u202e</h1>"),
                         ("<h2>", "<h4>"), ("<main>", "<main><img src=\"http://a.example/\">"),
                         ("href=\"#sure\"", "href=\"https://a.example/\""),
                         ("</style>", "a{background:url(x)}</style>"),
                         ("style=\"--d:0\"", "style=\"background:red\"")):
            text = self.bytes_of("fail").decode() if old not in good else good
            with self.subTest(new=new):
                self.assertIn(old, text)
                self.assertNotEqual(page.mistakes(text.replace(old, new, 1), html5lib), [])

    @needs_parser
    def test_says(self):
        for name, texts in SAYS.items():
            body = html5lib.parse(self.bytes_of(name).decode(), namespaceHTMLElements=False).find(
                "body")
            # Elements that stand below each other have no blank between them.
            text = re.sub(r"\s+", " ", re.sub(
                r"\s+([,.;])", r"\1", " ".join(body.itertext())))
            for wanted in texts:
                with self.subTest(page=name, wanted=wanted):
                    if name.startswith("forged"):
                        self.assertIn(wanted, "".join(body.itertext()))
                    else:
                        self.assertIn(re.sub(r"\s+", "", wanted), re.sub(r"\s+", "", text))

    def test_same_again(self):
        again = os.path.join(self.folder, "again")
        os.mkdir(again)
        page.write(again)
        for name in page.NAMES:
            with self.subTest(page=name):
                self.assertEqual(self.bytes_of(name), self.bytes_of(name, again))

    def test_size(self):
        for name in (*page.NAMES, page.WORST):
            with self.subTest(page=name):
                size = len(self.bytes_of(name))
                self.assertLess(size, MOST_FORGED if name == page.WORST else MOST)
                self.assertGreater(size, 4096)

    def test_contrast(self):
        with open(STYLE, encoding="utf-8") as stream:
            schemes = colours(stream.read())
        self.assertEqual(len(schemes), 2)
        self.assertLess(contrast((119, 119, 119), (255, 255, 255)), 4.5)
        for scheme, values in zip(("light", "dark"), schemes):
            for ink, ground in (
                    *((ink, ground) for ink in ("ink", "dim", "link") for ground in (
                        "ground", "panel")),
                    ("ink", "warn-ground"), ("link", "warn-ground"), ("warn", "warn-ground"),
                    ("fail", "fail-ground"), ("pass", "pass-ground"), ("ground", "ink")):
                with self.subTest(scheme=scheme, ink=ink, ground=ground):
                    self.assertGreaterEqual(contrast(values[ink], values[ground]), 4.5)
