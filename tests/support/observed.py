# SPDX-License-Identifier: Apache-2.0
"""Runs programs under `run --observe` and reads the summary."""

import re

from support import box, harness, launcher

OBSERVE = [launcher.LAUNCHER, "run", "--observe", "--log=off"]
WITH_WARNINGS = [launcher.LAUNCHER, "run", "--observe", "--log=error"]
TOTALS = re.compile(r"(?m)^cudaguard: (\d+) process(?:es)? asked(?:: (.*))?$")
NO_ATTEMPT = "cudaguard: no process was seen to ask for CUDA or NVML\n"
FACTS = {"initialised CUDA by": "by", "context on": "context", "refused": "refused"}


def numbers(text):
    """Converts "3 7-9" to [3, 7, 8, 9]."""
    found = []
    for word in text.split():
        first, _, last = word.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


class Summary:
    """The parsed summary of `run --observe`.

    totals: {"processes": 3, "initialised CUDA": 1}. rows: {pid: {"by": "open", ...}}, without keys
    for what a process did not do. order: the process ids in printed order. devices: {"": [names]}.
    rest: the other lines.
    """

    def __init__(self, text):
        match = TOTALS.search(text)
        if not match:
            raise AssertionError("no summary in:\n" + text)
        self.before = text[:match.start()]
        end = text.find("\ncudaguard", match.end())
        self.after = text[end + 1:] if end >= 0 else ""
        self.text = text[match.start():end if end >= 0 else None]
        self.totals = {"processes": int(match[1])}
        for part in (match[2] or "").split(", "):
            number, _, what = part.partition(" ")
            self.totals[what] = int(number)
        self.rows, self.order, self.devices, self.rest = {}, [], {}, []
        self.lines = self.text.splitlines()
        for block in re.findall(r"(?m)^.+(?:\n {6}.*)*", self.text)[1:]:
            first, *more = block.splitlines()
            match = re.match(r"  devices (?:of ([\d -]+) )?(?=0=)", first)
            if match:
                self.devices[match[1] or ""] = " ".join([first[match.end():], *more]).split()
            elif more and not first.startswith(("  asked by ", "  asked for a context by ")):
                self.read_row(first, [line[6:] for line in more])
            else:
                self.rest += [first, *more]

    def read_row(self, first, more):
        """Parses a row such as "2x open cu.init" and the lines below it, which list facts and
        process ids."""
        match = re.match(r"  (?:(\d+)x )?(.*?)(?: \((\d+)\))?$", first)
        facts, _, ids = "\n".join(more).partition("\npids ")
        row = {"process": match[2]}
        for fact in facts.replace("\n", " ").split(", "):
            words = [words for words in FACTS if fact.startswith(words + " ")]
            if words:
                row[FACTS[words[0]]] = fact[len(words[0]):].strip()
            elif fact in ("worked", "used NVML"):
                row[{"worked": "worked", "used NVML": "nvml"}[fact]] = "yes"
            elif fact not in ("-", "no context seen"):
                row["tried"] = fact
        self.add(numbers(match[3] or ids), row)

    def add(self, pids, row):
        for pid in pids:
            self.rows[pid] = row
            self.order.append(pid)

    def facts(self, pid):
        """Returns the row without the program's name."""
        return {name: cell for name, cell in self.rows[pid].items() if name != "process"}


def pids(result):
    """Returns the answers of the steps `pid` as {label: number}. "" is the program itself."""
    return {label.rstrip("."): int(number)
            for label, number in re.findall(r"(?m)^([\w.]*?)pid=(\d+)$", result.out)}


class Case(launcher.Case, box.Case):
    def observe(self, words, options=(), env=None, **more):
        """The words under --observe in the machine with eight GPUs."""
        return harness.run(OBSERVE + list(options) + [str(word) for word in words], world="none",
                           guard=False, trace=False, env=box.environment(**(env or {})), **more)

    def steps(self, steps, options=(), name="open", **more):
        return self.observe([box.program(name)] + list(steps), options, **more)

    def summary(self, result, rc=0):
        self.assertEqual(result.rc, rc, result)
        summary = Summary(result.err)
        self.assertLessEqual(max(map(len, summary.lines)), 100, summary.text)
        self.assertTrue(summary.text.replace("\n", "").isprintable(), summary.text)
        # Every process is in the table once, and the totals count it.
        self.assertEqual(len(summary.order), len(set(summary.order)), summary.text)
        self.assertEqual(len(summary.order), summary.totals["processes"], summary.text)
        for what, fact in (("initialised CUDA", "by"), ("held a context", "context"),
                           ("worked", "worked"), ("used NVML", "nvml"), ("refused", "refused")):
            self.assertEqual(sum(fact in row for row in summary.rows.values()),
                             summary.totals.get(what, 0), "%s\n%s" % (what, summary.text))
        tried = [row["tried"] for row in summary.rows.values() if "tried" in row]
        none = sum(text.startswith("found no") for text in tried)
        self.assertEqual(summary.totals.get("found no GPU", 0), none, summary.text)
        self.assertGreaterEqual(summary.totals.get("failed", 0), len(tried) - none, summary.text)
        return summary

    def agrees(self, result, summary):
        """Fails unless the fake driver's own log has as many calls as the summary."""
        self.assertEqual(result.fake_calls.count("cuInit:initialised"),
                         summary.totals.get("initialised CUDA", 0), result)
