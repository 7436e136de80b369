# SPDX-License-Identifier: Apache-2.0
"""cudaguard and ld.so still print what docs/troubleshooting.md quotes."""

import os
import re
import subprocess

from support import guest, harness, launcher

# ld.so prints these for a 32-bit program, and on a whole machine (tests/integrations).
ELSEWHERE = {"wrong ELF class", "from /etc/ld.so.preload"}


def page():
    path = os.path.join(harness.SOURCE, "docs", "troubleshooting.md")
    with open(path, encoding="utf-8") as stream:
        return stream.read()


def headings():
    quoted = re.findall(r"(?m)^## .*?`((?:ERROR: ld|cudaguard: ).*?)`", page())
    return [text for text in quoted if not any(words in text for words in ELSEWHERE)]


def pattern(text):
    """A regular expression: what stands for something else may be anything."""
    text = re.escape(text).replace("…", ".*")
    return re.sub(r"libcudaguard\\?\.so(?=')", r"libcudaguard\\S*", text)


class Messages(guest.Case):
    def printed(self):
        """What is printed in each of these cases."""
        missing = self.steps("ask", guard=False, env={"LD_PRELOAD": "libcudaguard-none.so"})
        refused = subprocess.run([launcher.LAUNCHER, "run", "--", launcher.program("table_user")], capture_output=True, text=True,
                                 stdin=subprocess.DEVNULL, check=False)
        return missing.err + refused.stderr

    def test_headings_quote_messages_that_are_printed(self):
        printed = self.printed()
        self.assertEqual(len(headings()), 2)
        for text in headings():
            self.assertRegex(printed, pattern(text), text)
        self.assertNotRegex(printed, pattern("cudaguard: something else"))

    def test_reasons_are_in_the_source(self):
        """Those of verify and doctor for a program that is not guarded."""
        section = re.search(r"(?ms)^## Why was my program.*?^## ", page())[0]
        reasons = re.findall(r"(?m)^\| `([^`]*)` \|", section)
        self.assertGreater(len(reasons), 4)
        launcher = os.path.join(harness.SOURCE, "shim", "launcher")
        source = ""
        for directory, _, names in os.walk(launcher):
            for name in names:
                if name.endswith(".cpp"):
                    with open(os.path.join(directory, name), encoding="utf-8") as stream:
                        source += stream.read()
        for reason in reasons:
            self.assertIn(reason.rstrip("… "), source)
        self.assertNotIn("it is another executable", source)  # control
