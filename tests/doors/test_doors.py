# SPDX-License-Identifier: Apache-2.0
"""test_doors.py GROUP...: the rows of these groups of the door matrix, one test for each row."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import harness
import matrix


class Doors(harness.Case):
    """Filled below: one test method for each row."""


def make_test(row):
    def test(self):
        outcome = matrix.perform(row)
        if outcome.complaints:
            self.fail("\n".join("%s:\n  %s\n%s" % (where, "\n  ".join(found), result)
                                for where, found, result in outcome.complaints))
        if outcome.skipped and (harness.must_run() or not outcome.guarded):
            harness.skip(self, "; ".join(outcome.skipped))
        for reason in outcome.skipped:
            print("  in part: " + reason)

    test.__doc__ = "%s: %s" % (row.id, row.about)
    return test


def main():
    groups = sys.argv[1:]
    del sys.argv[1:]
    known = matrix.load_rows()
    for row in known:
        # "other" stands for the groups that nobody names, so that no row is left out.
        if row.group in groups or ("other" in groups and row.group not in NAMED):
            setattr(Doors, "test_" + row.id.replace(".", "_").replace("-", "_"), make_test(row))
    if groups == ["other"] and not any(name.startswith("test_") for name in vars(Doors)):
        print("every group of rows has an entry of its own")
        return
    harness.main()


NAMED = set(os.environ.get("CG_DOOR_GROUPS", "").split())

if __name__ == "__main__":
    main()
