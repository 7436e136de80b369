# SPDX-License-Identifier: Apache-2.0
"""Each limit of docs/limits.md has a row in tests/lab/limits.md, which names the tests that show it.
A limit that is only there says what happens. Every limit of the entry-point matrix is there. If you
rename such a test, change that file."""

import os
import re
import unittest

from support import harness, matrix, settings

UNTESTED = "not tested"


def cells(line):
    return [cell.strip() for cell in line.strip()[1:-1].split("|")]


def rows(page):
    """Returns the rows of all tables whose first column is "limit". Links are text."""
    found, is_limit = [], False
    page = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", page)
    for before, line in zip([""] + page.splitlines(), page.splitlines()):
        if not line.startswith("|"):
            is_limit = False
        elif not before.startswith("|"):
            is_limit = cells(line)[0] == "limit"
        elif is_limit and not line.startswith("|---"):
            found.append(cells(line))
    return found


def is_test(name, limits):
    if name.startswith("limit."):
        return name in limits
    path, _, test = name.partition("::")
    path = os.path.join(settings.TESTS, path)
    return os.path.isfile(path) and (not test or "def %s(" % test in harness.read(path))


def complaints(page, tests, limits):
    """Returns the mistakes of the page of limits and of the list of their tests."""
    listed, shown = [row[0] for row in rows(page)], [row[0] for row in rows(tests)]
    found = ["no row: " + limit for limit in listed if limit not in shown]
    found += ["twice: " + limit for limit in sorted(set(shown)) if shown.count(limit) > 1]
    found += ["does not say what happens: " + limit for limit, *more in rows(tests)
              if limit not in listed and not (len(more) == 2 and more[0])]
    found += ["says it again: " + limit for limit, *more in rows(tests)
              if limit in listed and len(more) != 1]
    named = set()
    for *_, cell in rows(tests):
        # Without remarks in parentheses.
        names = re.findall(r"`([^`]+)`", re.sub(r"\([^)]*\)", "", cell))
        named.update(names)
        found += [name for name in names if not is_test(name, limits)]
        if not names and cell != UNTESTED:
            found.append("no test: " + cell)
    return found + sorted(limits - named)


class LimitsPage(unittest.TestCase):
    def test_each_limit_names_its_tests(self):
        limits = {row.id for row in matrix.load_rows() if row.limit}
        self.assertGreater(len(limits), 15)
        page = harness.read("docs", "limits.md")
        self.assertGreater(len(rows(page)), 20)
        tests = harness.read("tests", "lab", "limits.md")
        self.assertEqual(complaints(page, tests, limits), [])

    def test_control_a_wrong_row_is_found(self):
        page = "| limit | what |\n|---|---|\n| [a](x.md) | |\n| b | |\n| c | |\n\n| when |\n|---|\n| f |\n"
        tests = ("| limit | tests |\n|---|---|\n| a | `limit.a`, `limit.b` |\n| b | |\n| b | not tested |\n\n"
                 "| limit | what | tests |\n|---|---|---|\n| i | It fails. | not tested |\n"
                 "| j | | not tested |\n| a | It fails. | `scripts/test_limits_page.py::test_none` |\n")
        self.assertEqual(complaints(page, tests, {"limit.a", "limit.c"}), [
            "no row: c", "twice: a", "twice: b", "does not say what happens: j", "says it again: a",
            "limit.b", "no test: ", "scripts/test_limits_page.py::test_none", "limit.c"])
