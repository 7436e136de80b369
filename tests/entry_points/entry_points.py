#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the entry-point matrix and prints one table: unguarded, each entry point reaches the driver;
guarded, it does not.

entry_points.py [--build DIR] [--lib DIR] [--entry-point ID]... [--must-run]
"""

import argparse
import concurrent.futures
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from support import settings  # noqa: E402


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    settings.add_options(parser.add_argument)
    parser.add_argument("--entry-point", action="append", metavar="ID",
                        help="only this entry point (dlopen.soname-now) or group (dlopen); may be repeated")
    parser.add_argument("--must-run", action="store_true", help="fail a row that lacks something "
                        "instead of skipping it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def answers(outcome):
    """Returns the guarded program's first answers as short text."""
    for result in outcome.guarded.values():
        words = [pair for pair in result.out.split() if "=" in pair]
        return " ".join(words[:2]) if words else " ".join(result.out.split())[:34]
    return "-"


def main():
    given = options()
    settings.configure(given.build, given.lib, given.deps, must_run=given.must_run)
    from support import harness, machine, matrix

    missing = [why for why in map(machine.missing, ("tracing",)) if why] + [
        path for path in (harness.GUARD, harness.program("entry_point")) if not os.path.exists(path)]
    if missing:
        sys.exit("missing: " + ", ".join(missing))
    rows = matrix.load_rows()
    if given.entry_point:
        rows = [row for row in rows if row.id in given.entry_point or row.group in given.entry_point]
    if not rows:
        sys.exit("no such entry point; known: " + " ".join(row.id for row in matrix.load_rows()))
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        outcomes = list(pool.map(matrix.perform, rows))

    for outcome in outcomes:
        print("%-36s | %-36s | %s" % (outcome.row.id, answers(outcome), outcome.verdict))
    for outcome in outcomes:
        for reason in outcome.skipped:
            print("\n%s skipped: %s" % (outcome.row.id, reason))
        for where, found, result in outcome.complaints:
            print("\n%s (%s) FAILED, %s:\n  %s\n%s" %
                  (outcome.row.id, outcome.row.about, where, "\n  ".join(found), result))
    verdicts = [outcome.verdict for outcome in outcomes]
    skipped = sum(bool(outcome.skipped) for outcome in outcomes)
    failed = verdicts.count("FAIL")
    if settings.MUST_RUN:
        failed = sum(o.verdict == "FAIL" or bool(o.skipped) for o in outcomes)
    print("\n%d passed, %d failed%s" % (
        verdicts.count("pass"), failed, "".join(
            ", %d %s" % (count, what) for count, what in (
                (verdicts.count("limit"), "documented limits shown"),
                (skipped, "skipped in whole or in part")) if count)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
