# SPDX-License-Identifier: Apache-2.0
"""Runs the rows of the entry-point matrix as tests, one test for each row."""

import pytest

from support import harness, matrix


class EntryPoints(harness.Case):
    """The code below adds one test method for each row."""


def make_test(row):
    def test(self):
        outcome = matrix.perform(row)
        if outcome.complaints:
            self.fail("\n".join("%s:\n  %s\n%s" % (where, "\n  ".join(found), result)
                                for where, found, result in outcome.complaints))
        forbidden = [reason for reason in outcome.skipped if not harness.may_skip(reason)]
        if forbidden or (outcome.skipped and not outcome.guarded):
            harness.skip(self, "; ".join(forbidden or outcome.skipped))
        for reason in outcome.skipped:
            print("  in part: " + reason)

    test.__doc__ = "%s: %s" % (row.id, row.about)
    for name in ("full", "all"):
        test = getattr(pytest.mark, name)(test) if getattr(row, name) else test
    return test


for each in matrix.load_rows():
    setattr(EntryPoints, "test_" + each.id.replace(".", "_").replace("-", "_"), make_test(each))
