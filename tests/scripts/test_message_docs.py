# SPDX-License-Identifier: Apache-2.0
"""docs/messages.md: each message of the guard says what to do, or is explained there or on the pages
of troubleshooting or verify. Each row has a source, in docs/troubleshooting.md, too. The pages'
examples are messages of the guard.

The page has "…" for a placeholder (%s) and for whatever the code puts between two literals, so this
test compares the clauses between them: two words in a row or more.
"""

import glob
import html
import os
import re
import unittest

from support import harness, messages

STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
# A message says what to do in a clause that begins with an imperative or "to ...: ", by what is
# accepted, or in a field that is a text of its own. One that is allowed needs no action.
REMEDY = re.compile(r"\{(?:remedy|advice|mistake|reason)\}|\baccepted: |\(policy \{policy\};|"
                    r"[.;] to [^:;]+: |(?:^|[.;:] )(?:[Ss]tart|[Ss]et|run|repair|name) |"
                    r" until cudaguard is installed again")
PROSE = re.compile(r"[A-Za-z#][\w'./-]* [a-zA-Z]{2,}")


def literals(source):
    """Returns the texts of a C++ file, without its comments, its raw strings and its includes."""
    source = re.sub(r'R"\((?s:.*?)\)"', "0", source)
    # Strings match first, so that "//" in a string does not begin a comment.
    source = re.sub(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|^#include[^\n]*', lambda m: m[1] or "", source,
                    flags=re.MULTILINE)
    source = re.sub(r'"\s*\n?\s*"', "", source)
    return [text.replace('\\"', '"').replace("\\n", "\n") for text in STRING.findall(source)]


def printed():
    """Returns the texts of all sources."""
    texts = []
    for top in ("policy", "shim"):
        for end in ("cpp", "h", "inc"):
            for file in glob.glob(os.path.join(harness.SOURCE, top, "**", "*." + end), recursive=True):
                texts += literals(harness.read(file))
    return texts


def parts_of(texts):
    """Returns the clauses between placeholders and punctuation, prose or not."""
    parts = (part for text in texts
             for part in re.split("%[A-Za-z]|…|[\n;:,()]", text))
    return {" ".join(part.split()).strip(" .\"'") for part in parts} - {""}


def is_made_of(part, known):
    """True if the part is one of `known`, or several of them in a row."""
    return part in known or any(part.startswith(start + " ") and
                                is_made_of(part[len(start) + 1:], known) for start in known)


def pages():
    """Returns the pages that explain messages as one line."""
    text = "".join(harness.read("docs", name + ".md")
                   for name in ("messages", "troubleshooting", "verify"))
    return " ".join(text.replace("\\|", "|").split())


def rows(page="messages"):
    """Returns the quotations in the first column of each table, and cudaguard's in the headings."""
    text = harness.read("docs", page + ".md").replace("\\|", "\0")
    cells = re.findall(r"(?m)^\| (`.*?`)(?: \||$)|^#.*(`cudaguard: .*`)", text)
    cells = ["".join(pair) for pair in cells]
    return [quote.replace("\0", "|") for cell in cells for quote in re.findall(r"`([^`]+)`", cell)]


def examples(text):
    """Returns the guard's messages in a page or a picture. A wrapped one goes on in indented
    lines."""
    rows = re.findall(r"<text[^>]*>(.*)</text>", text)
    if rows:
        text = html.unescape("\n".join(rows))
    text = re.sub(r"\n +(?=\S)", " ", text)
    return re.findall(r"^cudaguard\[\d+\]: .*$", text, re.MULTILINE)


class Examples(unittest.TestCase):
    """Messages that the pages and README's picture show are as in tests/golden/messages.txt."""

    def test_examples_are_messages_of_the_guard(self):
        shown = {}
        for pattern in ("README.md", "docs/*.md", "docs/*/*.md", "docs/images/*.svg"):
            for path in glob.glob(os.path.join(harness.SOURCE, pattern)):
                shown[os.path.relpath(path, harness.SOURCE)] = examples(harness.read(path))
        for path in ("docs/messages.md", "docs/devices.md"):
            self.assertTrue(shown[path], path)
        self.assertEqual([(path, line) for path, lines in shown.items() for line in lines
                          if not messages.find(line, *messages.PATTERNS)], [],
                         "write the words of tests/golden/messages.txt into these pages")
        changed = shown["docs/messages.md"][0].replace("no CUDA here", "no CUDA there")
        self.assertEqual(messages.find(changed, *messages.PATTERNS), [], "the control")


def words_of(name, pattern):
    """Returns what such a message always has; a refusal of CUDA has its remedy in an option."""
    return pattern if name in messages.DENIED else messages.OPTIONAL.sub("", pattern)


def unexplained(patterns, text):
    """Returns the names of the messages that neither say what to do nor are explained in the text.
    A pattern of one clause is a part of another message."""
    found = []
    for name, pattern in patterns.items():
        words = words_of(name, pattern)
        clauses = re.split(r"\{\w+\}|[][;:,()\"]", words)
        if re.search("[.;:] ", words) and not REMEDY.search(words) and not any(
                clause.strip() in text for clause in clauses if len(clause.split()) > 2):
            found.append(name)
    return found


class Messages(unittest.TestCase):
    def test_each_message_says_what_to_do_or_is_explained(self):
        self.assertEqual(unexplained(messages.PATTERNS, pages()), [],
                         "write what to do into the message, or a row into docs/messages.md")
        self.assertEqual(unexplained({name: messages.PATTERNS[name].partition("[; to")[0]
                                      for name in messages.DENIED}, pages()), [])

    def test_control_message_without_a_remedy_is_found(self):
        made = {"useless": "{file} is quite purple; FORCE_CPU applies", "part": "is quite purple",
                "useful": "{file} is quite purple; to paint it: {command}",
                "other": "{file} is quite purple. Start it again",
                "accepts": "{file} is quite purple (accepted: red)"}
        self.assertEqual(unexplained(made, "nothing"), ["useless"])
        self.assertEqual(unexplained(made, "| `is quite purple` | Paint it. |"), [])

    def test_each_row_has_a_source(self):
        quotes = rows() + rows("troubleshooting")
        self.assertGreater(len(rows()), 40)
        self.assertGreater(len(rows("troubleshooting")), 5)
        known = parts_of(printed())
        parts = [part for part in parts_of(quotes) if PROSE.search(part)]
        self.assertEqual([part for part in parts if not is_made_of(part, known)], [],
                         "the page has these words, but no source has them")

    def test_control_row_without_a_source_is_found(self):
        made = literals('say("it is purple, and " + name +\n    " has no " "colour"); // "not this"\n')
        self.assertEqual(made, ["it is purple, and ", " has no colour"])
        self.assertNotIn("it is purple", pages())
        self.assertTrue(is_made_of("it is purple and red", {"it is", "purple and", "red"}))
        self.assertFalse(is_made_of("it is purple and red", {"it is", "purple", "red"}))
