# SPDX-License-Identifier: Apache-2.0
"""name_table.py TABLE.csv SOURCE.c OUT.h: what a fake driver needs of the table of API names.

NAME(name, version) for every name, sorted; OTHER(name) for those that SOURCE.c does not define.
"""

import csv
import re
import sys


def main():
    table, source, target = sys.argv[1:]
    with open(table, encoding="utf-8", newline="") as stream:
        lines = [line for line in stream if line.strip() and not line.startswith("#")]
    # Sorted by byte value: the fake driver looks names up by bisection.
    rows = sorted({row["name"]: row for row in csv.DictReader(lines)}.items())
    if not rows:
        sys.exit("no names in " + table)
    with open(source, encoding="utf-8") as stream:
        written = set(re.findall(r"^[\w *]+[ *](\w+)\(", stream.read(), re.M))
    with open(target, "w", encoding="utf-8") as stream:
        stream.write("/* Made from %s by name_table.py. */\n" % table.rsplit("/", 1)[-1])
        stream.write("#ifdef NAME\n")
        for name, row in rows:
            stream.write("NAME(%s, %d)\n" % (name, int(row.get("first_version") or 0)))
        stream.write("#endif\n#ifdef OTHER\n")
        for name, _ in rows:
            if name not in written:
                stream.write("OTHER(%s)\n" % name)
        stream.write("#endif\n")


main()
