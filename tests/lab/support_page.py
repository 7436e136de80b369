# SPDX-License-Identifier: Apache-2.0
"""Writes the lab's table at the end of docs/support.md from tests/lab/results. The results of
`programs` have a page of their own."""

import collections
import json
import textwrap

REASON = 200  # characters of a reason that the table shows; the results have all of it
HEADING = "## Results of the lab"
ABOVE = f"""{HEADING}

The command `scripts/lab` writes this table. [programs.md](programs.md) lists the results of
`scripts/lab programs`.

| `scripts/lab` | row | version | result | date |
|---|---|---|---|---|
"""
# What a part tested, by its results: a name, and the version.
TESTED = {
    "machine": lambda facts: (facts["name"], "Linux " + facts.get("kernel", "")),
    "driver": lambda facts: (
        f"NVIDIA's {'open ' if facts['name'].endswith('-open') else ''}kernel module",
        facts.get("driver", "")),
    "kernels": lambda facts: ("the fence's tests", "Linux " + facts.get("kernel", "")),
    "engines": lambda facts: (facts["name"], facts.get("version", "")),
    "suites": lambda facts: (facts["name"] + (f" ({facts['part']})" if "part" in facts else ""),
                             facts.get("version", "")),
}


def write(checkout):
    """Replaces the table. Rows of one name and version become one line."""
    page = checkout / "docs/support.md"
    above = page.read_text().split(HEADING)[0].rstrip()
    lines = [line for part in TESTED for line in lines_of(checkout, part)]
    page.write_text(f"{above}\n\n{ABOVE}" + "".join(line + "\n" for line in lines))


def lines_of(checkout, part):
    file = checkout / f"tests/lab/results/{part}.jsonl"
    groups = collections.defaultdict(list)
    for line in file.read_text().splitlines() if file.exists() else ():
        facts = json.loads(line)
        groups[TESTED[part](facts)].append(facts)
    for (name, version), group in groups.items():
        cells = part, name, version, result(group), max(facts["date"] for facts in group)
        yield "| " + " | ".join(cells) + " |"


def result(group):
    """The outcomes with the number of their rows or tests, then the reasons."""
    counts = collections.Counter(facts["outcome"] for facts in group)
    number = "" if len(group) == 1 else "{} "
    text = ", ".join(number.format(count) + outcome for outcome, count in counts.items())
    text += "".join(f" ({facts['tests']} tests, {facts['flaky_count']} flaky)"
                    for facts in group if "tests" in facts)
    reasons = (textwrap.shorten(facts["reason"], REASON) for facts in group
               if facts["outcome"] != "passed")
    text += "".join(f"; {reason}" for reason in dict.fromkeys(reasons))
    return text.replace("|", "\\|")
