# SPDX-License-Identifier: Apache-2.0
"""How scripts/lab reads commands out of the pages, and how it judges what a row printed."""

import pathlib
import types
import unittest

from lab import engines, pages
import pytest

from support import harness, messages, settings

PAGE = """# Title

`one two`, `one three`, `two`

## First

```text
# no heading
run IMAGE PROGRAM
```

1. An item:

   ```sh
   indented
     twice
   ```

### Deeper

```text
run --other IMAGE
```

## Second

```python
import this
```
"""


class Blocks(unittest.TestCase):
    def test_block_is_found_by_heading_text_and_language(self):
        self.assertEqual(pages.block(PAGE, "Second"), "import this\n")
        self.assertEqual(pages.block(PAGE, "Deeper"), "run --other IMAGE\n")
        self.assertEqual(pages.block(PAGE, having="PROGRAM"), "# no heading\nrun IMAGE PROGRAM\n")
        self.assertEqual(pages.block(PAGE, "Title", language="python"), "import this\n")

    def test_indented_block_loses_its_indent(self):
        self.assertEqual(pages.block(PAGE, "First", language="sh"), "indented\n  twice\n")

    def test_code_in_a_sentence_is_found_by_its_text(self):
        self.assertEqual(pages.span(PAGE, "three"), "one three")
        self.assertRaises(pages.NotFound, pages.span, PAGE, "one")
        self.assertRaises(pages.NotFound, pages.span, PAGE, "IMAGE")

    def test_words_are_replaced_and_have_to_be_there(self):
        self.assertEqual(pages.filled("a IMAGE b", {"IMAGE": "b PROGRAM"}), "a b PROGRAM b")
        self.assertEqual(pages.filled("a", {}), "a")
        self.assertRaises(pages.NotFound, pages.filled, "a", {"IMAGE": "b"})


def test_missing_and_ambiguous_blocks_are_errors():
    for heading, having in (("First", "IMAGE"), ("Second", "IMAGE"), ("Third", ""),
                            ("no heading", ""), (None, "none")):
        with pytest.raises(pages.NotFound):
            print(heading, having, pages.block(PAGE, heading, having))  # names the row


def rows():
    return engines.rows(types.SimpleNamespace(checkout=pathlib.Path(settings.SOURCE)))


class Rows(unittest.TestCase):

    def test_every_row_has_a_control(self):
        for row in rows():
            self.assertIn("unguarded", [step.name for step in row.steps], row.name)

    def test_row_fails_if_its_page_has_changed(self):
        row = rows()[0]
        row.blocks["check"] = pages.NotFound("docs/x.md: 0 blocks")
        self.assertEqual(engines.run(None, row),
                         {"outcome": "failed", "reason": "docs/x.md: 0 blocks"})


def test_every_row_finds_its_blocks():
    for row in rows():
        for name, text in row.blocks.items():
            assert isinstance(text, str), (row.name, name)


class Judgement(unittest.TestCase):
    STEPS = (engines.Step("a", "", **engines.REACHED), engines.Step("b", "", **engines.GUARDED))
    GOOD = ("noise\n=== ready\n=== step a\n0\n=== exit 0\n"
            "=== step b\ncudaguard[7]: %s\n100\n=== exit 0\n" % messages.text(
                "no_cuda", cause="x", asked_by="y"))

    def outcome(self, printed):
        facts = engines.judged(self.STEPS, printed)
        return facts["outcome"], facts.get("reason")

    def test_row_passes_if_each_step_prints_what_it_has_to(self):
        self.assertEqual(self.outcome(self.GOOD), ("passed", None))

    def test_step_that_did_not_end_fails(self):
        outcome, reason = self.outcome(self.GOOD.removesuffix("=== exit 0\n"))
        self.assertEqual((outcome, reason), ("failed", "b: exit None, not 0"))

    def test_setup_that_fails_is_the_reason(self):
        self.assertEqual(self.outcome("one\ntwo\n"), ("failed", "set-up: two"))


@pytest.fixture(name="judgement")
def make_judgement():
    yield from harness.lent(Judgement())


def test_row_fails_with_the_step_and_the_reason(judgement):
    for old, new, reason in (
            ("\n0\n", "\n100\n", "a: does not print ^0$; a: prints ^100$"),
            ("\n100\n", "\n", "b: does not print ^100$"),
            ("=== exit 0\n=== step b", "=== exit 3\n=== step b", "a: exit 3, not 0")):
        outcome = judgement.outcome(judgement.GOOD.replace(old, new))
        assert outcome == ("failed", reason), (old, new)
