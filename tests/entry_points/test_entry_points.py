# SPDX-License-Identifier: Apache-2.0
"""Runs the rows of the entry-point matrix as tests, one test for each row."""

import pytest

from support import harness, matrix, settings


class EntryPoints(harness.Case):
    """The code below adds one test method for each row."""


def make_test(row):
    def test(self):
        outcome = matrix.perform(row)
        if outcome.complaints:
            self.fail("\n".join("%s:\n  %s\n%s" % (where, "\n  ".join(found), result)
                                for where, found, result in outcome.complaints))
        if outcome.skipped and (settings.MUST_RUN or not outcome.guarded):
            harness.skip(self, "; ".join(outcome.skipped))
        for reason in outcome.skipped:
            print("  in part: " + reason)

    test.__doc__ = "%s: %s" % (row.id, row.about)
    return pytest.mark.full(test) if row.full else test


for each in matrix.load_rows():
    setattr(EntryPoints, "test_" + each.id.replace(".", "_").replace("-", "_"), make_test(each))
