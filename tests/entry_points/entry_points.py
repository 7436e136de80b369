#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the entry-point matrix and prints one table: unguarded, each entry point reaches the driver;
guarded, it does not.

entry_points.py [--build DIR] [--lib DIR] [--entry-point ID]... [--json FILE] [--must-run]
[--verbose]
"""

import argparse
import concurrent.futures
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from support import settings  # noqa: E402


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    settings.add_options(parser.add_argument)
    parser.add_argument("--entry-point", action="append", metavar="ID",
                        help="only this entry point (dlopen.soname-now) or group (dlopen); may be repeated")
    parser.add_argument("--json", metavar="FILE", help="write every outcome there")
    parser.add_argument("--must-run", action="store_true", help="fail a row that lacks something "
                        "instead of skipping it")
    parser.add_argument("--verbose", action="store_true", help="show the commands of every run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def answers(outcome):
    """Returns the guarded program's first answers as short text."""
    for world in ("real", "fake", "none"):
        result = outcome.guarded.get(world)
        if result:
            words = [pair for pair in result.out.split() if "=" in pair]
            return " ".join(words[:2]) if words else " ".join(result.out.split())[:34]
    return "-"


def mapped(outcome):
    files = {path for result in outcome.guarded.values() for path in result.driver_files}
    return str(len(files)) + (" (ld.so)" if files and outcome.row.linked else "")


def opens(result):
    return str(len(result.device_opens) or "%d made" % len(result.device_nodes))


def table_row(outcome):
    unguarded_fake = outcome.unguarded.get("fake")
    unguarded_real = outcome.unguarded.get("real")
    runs = outcome.guarded.values()
    return [
        outcome.row.id,
        " ".join(sorted(set(unguarded_fake.init_calls()))) or "-" if unguarded_fake else "",
        opens(unguarded_real) if unguarded_real else "",
        answers(outcome),
        str(sum(len(r.device_opens) + len(r.device_nodes) for r in runs)) if runs else "",
        str(sum(len(r.init_calls()) for r in runs)) if runs else "",
        mapped(outcome) if runs else "",
        outcome.verdict,
    ]


HEAD = ["entry_point", "unguarded, fake: calls", "unguarded, real: opens", "guarded: answer",
        "opens", "fake inits",
        "driver files", "verdict"]


def print_table(outcomes):
    rows = [HEAD] + [table_row(outcome) for outcome in outcomes]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    for number, row in enumerate(rows):
        print(" | ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
        if number == 0:
            print("-+-".join("-" * width for width in widths))


def as_data(result):
    return {key: getattr(result, key) for key in (
        "rc", "out", "err", "command", "fake_calls", "device_opens", "device_nodes", "driver_files",
        "execs")}


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

    print_table(outcomes)
    for outcome in outcomes:
        for reason in outcome.skipped:
            print("\n%s skipped: %s" % (outcome.row.id, reason))
        for where, found, result in outcome.complaints:
            print("\n%s (%s) FAILED, %s:\n  %s\n%s" %
                  (outcome.row.id, outcome.row.about, where, "\n  ".join(found), result))
        if given.verbose:
            for world, result in list(outcome.unguarded.items()) + list(outcome.guarded.items()):
                print("\n%s, %s\n%s" % (outcome.row.id, world, result))
    if given.json:
        with open(given.json, "w", encoding="utf-8") as stream:
            json.dump([{
                "entry_point": outcome.row.id, "about": outcome.row.about, "verdict": outcome.verdict,
                "unguarded": {world: as_data(r) for world, r in outcome.unguarded.items()},
                "guarded": {world: as_data(r) for world, r in outcome.guarded.items()},
                "complaints": [[where, found] for where, found, _ in outcome.complaints],
                "skipped": outcome.skipped} for outcome in outcomes], stream, indent=1)
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
