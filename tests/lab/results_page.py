# SPDX-License-Identifier: Apache-2.0
"""Writes tests/lab/results/README.md from the results beside it. Those of `programs` have a page of
their own."""

import collections
import json
import textwrap

REASON = 200  # characters of a reason that the table shows; the results have all of it
ABOVE = """<!-- SPDX-License-Identifier: Apache-2.0 -->
# Results of the lab

The command `scripts/lab` writes this page. [programs.md](programs.md) lists the results of
`scripts/lab programs`. Each `.jsonl` file here has all facts of a part, with the commit.

| `scripts/lab` | row | version | result | date |
|---|---|---|---|---|
"""
# What a part tested, by its results: a name, and the version.
TESTED = {
    "machine": lambda facts: (facts["name"], "Linux " + facts.get("kernel", "")),
    "driver": lambda facts: (
        f"NVIDIA's {'open ' if facts['name'].endswith('-open') else ''}kernel module",
        facts.get("driver", "")),
    "kernels": lambda facts: (
        "nodes under the fence of devices" if facts["name"].startswith("nodes-")
        else "the fence's tests", "Linux " + facts.get("kernel", "")),
    "engines": lambda facts: (facts["name"], facts.get("version", "")),
    "suites": lambda facts: (facts["name"] + (f" ({facts['part']})" if "part" in facts else ""),
                             facts.get("version", "")),
}


def write(checkout):
    """Writes the page. Rows of one name and version become one line."""
    lines = [line for part in TESTED for line in lines_of(checkout, part)]
    page = checkout / "tests/lab/results/README.md"
    page.parent.mkdir(exist_ok=True)
    page.write_text(ABOVE + "".join(line + "\n" for line in lines))


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
    text += "".join(f" ({facts['fence of devices']})" for facts in group
                    if "fence of devices" in facts)
    reasons = (textwrap.shorten(facts["reason"], REASON) for facts in group
               if facts["outcome"] != "passed")
    text += "".join(f"; {reason}" for reason in dict.fromkeys(reasons))
    return text.replace("|", "\\|")
