# SPDX-License-Identifier: Apache-2.0
"""Runs the rows of the entry-point matrix as tests, one test for each row."""

import pytest

from support import fixtures, harness, matrix

make_case = fixtures.lent("case", harness.Case)


@pytest.mark.parametrize("row", [
    pytest.param(row, id=row.id, marks=[getattr(pytest.mark, name) for name in ("full", "all")
                                        if getattr(row, name)]) for row in matrix.load_rows()])
def test_entry_point(case, row):
    outcome = matrix.perform(row)
    if outcome.complaints:
        case.fail(row.about + "\n" + "\n".join("%s:\n  %s\n%s" % (where, "\n  ".join(found), result)
                                               for where, found, result in outcome.complaints))
    forbidden = [reason for reason in outcome.skipped if not harness.may_skip(reason)]
    if forbidden or (outcome.skipped and not outcome.guarded):
        harness.skip(case, "; ".join(forbidden or outcome.skipped))
    for reason in outcome.skipped:
        print("  in part: " + reason)
