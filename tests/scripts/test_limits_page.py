# SPDX-License-Identifier: Apache-2.0
"""docs/limits.md: each row names the tests that show it, and every limit of the entry-point matrix
has a row. If you rename such a test, change the page."""

import os
import re
import unittest

from support import harness, matrix, settings

UNTESTED = "not tested"


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as stream:
        return stream.read()


def cells(line):
    return [cell.strip() for cell in line.strip()[1:-1].split("|")]


def last_cells(page):
    """Returns the last cells of the rows of all tables whose last column is "test"."""
    found, has_tests = [], False
    for before, line in zip([""] + page.splitlines(), page.splitlines()):
        if not line.startswith("|"):
            has_tests = False
        elif not before.startswith("|"):
            has_tests = cells(line)[-1] == "test"
        elif has_tests and not line.startswith("|---"):
            found.append(cells(line)[-1])
    return found


def is_test(name, limits):
    if name.startswith("limit."):
        return name in limits
    path, _, test = name.partition("::")
    path = os.path.join(settings.TESTS, path)
    return os.path.isfile(path) and (not test or "def %s(" % test in read(path))


def complaints(page, limits):
    """Returns the mistakes of the page."""
    found, named = [], set()
    for cell in last_cells(page):
        # Without remarks in parentheses.
        names = re.findall(r"`([^`]+)`", re.sub(r"\([^)]*\)", "", cell))
        named.update(names)
        found += [name for name in names if not is_test(name, limits)]
        if not names and cell != UNTESTED:
            found.append("no test: " + cell)
    return found + sorted(limits - named)


class LimitsPage(unittest.TestCase):
    def test_each_row_names_its_tests(self):
        limits = {row.id for row in matrix.load_rows() if row.limit}
        self.assertGreater(len(limits), 15)
        page = read(harness.SOURCE, "docs", "limits.md")
        self.assertGreater(len(last_cells(page)), 40)
        self.assertEqual(complaints(page, limits), [])

    def test_control_a_wrong_row_is_found(self):
        page = ("| situation | test |\n|---|---|\n| a | `limit.a`, `limit.b` |\n| b | |\n"
                "| c | `scripts/test_limits_page.py::test_none` |\n| d | not tested |\n"
                "| e | `scripts/test_limits_page.py::test_each_row_names_its_tests` |\n\n"
                "| when | what |\n|---|---|\n| f | `none` |\n")
        self.assertEqual(complaints(page, {"limit.a", "limit.c"}),
                         ["limit.b", "no test: ", "scripts/test_limits_page.py::test_none",
                          "limit.c"])
