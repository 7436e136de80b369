# SPDX-License-Identifier: Apache-2.0
"""The rows of scripts/gpu-check: each has a description, a value and a verdict. They become one
table and one file of JSON lines."""

import dataclasses
import json
import os
import re
import threading
import time

PASS, FAIL, INFO, NOT_FILLED = "pass", "FAIL", "info", "not filled"


@dataclasses.dataclass
class Row:
    name: str  # the part before the dot is the section: allow.index0
    what: str
    value: str
    verdict: str
    reason: str = ""  # only for "not filled"
    detail: object = None  # for the file only


def relative(value, directories):
    """Returns the value with other names for these directories, so that the file says nothing about
    the machine on which it was made. With the name ".", what is below is written relative to it."""
    if isinstance(value, dict):
        return {key: relative(one, directories) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [relative(one, directories) for one in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    names = "|".join(map(re.escape, sorted(directories, key=len, reverse=True))) or "(?!)"
    return re.sub(r"(?<![\w./-])(%s)(/|(?![\w.-]))" % names, lambda found: "" if (
        directories[found[1]], found[2]) == (".", "/") else directories[found[1]] + found[2],
        str(value))


class Report:
    def __init__(self, stream=None, verbose=False):
        self.rows = []
        self.started = time.time()
        self.stream = stream
        self.verbose = verbose
        self.lock = threading.Lock()

    def add(self, name, what, value, verdict, detail=None):
        self._put(Row(name, what, str(value), verdict, detail=detail))

    def check(self, name, what, value, good, detail=None):
        self.add(name, what, value, PASS if good else FAIL, detail)

    def info(self, name, what, value, detail=None):
        self.add(name, what, value, INFO, detail)

    def not_filled(self, name, what, reason, detail=None):
        self._put(Row(name, what, "", NOT_FILLED, reason, detail))

    def _put(self, row):
        with self.lock:
            self.rows.append(row)
            if self.stream and self.verbose:
                print("%6.1f s  %-28s %-10s %s" % (time.time() - self.started, row.name, row.verdict,
                                                   row.value or row.reason),
                      file=self.stream, flush=True)

    def failed(self):
        return [row for row in self.rows if row.verdict == FAIL]

    def count(self, verdict):
        return sum(row.verdict == verdict for row in self.rows)

    def table(self):
        width = max(len(row.name) for row in self.rows)
        return "\n".join("%-*s  %-10s  %s: %s" % (width, row.name, row.verdict, row.what,
                                                  row.value or row.reason) for row in self.rows)

    def summary(self):
        return "%d passed, %d failed, %d for information, %d not filled; %.0f s" % (
            self.count(PASS), self.count(FAIL), self.count(INFO), self.count(NOT_FILLED),
            time.time() - self.started)

    def write(self, directory, facts, directories):
        """Writes <directory>/<date>-<gpu>.jsonl, with relative() paths: a line of facts, and one for
        each row. Returns its path."""
        os.makedirs(directory, exist_ok=True)
        names = facts.get("gpus") or []
        gpu = re.sub(r"[^a-z0-9]+", "-", names[0]["name"].lower()).strip("-") if names else "no-gpu"
        if len(names) > 1:
            gpu += "-x%d" % len(names)
        day = time.strftime("%Y-%m-%d", time.localtime(self.started))
        path = os.path.join(directory, "%s-%s.jsonl" % (day, gpu))
        first = {"v": 2, "date": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(self.started)),
                 "seconds": round(time.time() - self.started, 1), **facts}
        rows = [relative(dataclasses.asdict(row), directories) for row in self.rows]
        with open(path + ".new", "w", encoding="utf-8") as stream:
            stream.writelines(json.dumps(one, default=str) + "\n" for one in (first, *rows))
        os.replace(path + ".new", path)
        return path
