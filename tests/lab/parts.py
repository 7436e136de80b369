# SPDX-License-Identifier: Apache-2.0
"""What all parts of the lab share: rows, results that survive an interruption, and a scratch
directory.

A part is a module of this package with two functions:

  rows(lab)          returns the rows, each a dataclass with a unique `name`
  run(lab, row)      runs one row and returns its facts, a dict for JSON

The facts have `outcome`, one of OUTCOMES, and for each outcome but "passed" a `reason`. A part
may have `report(lab, results)`, which writes pages from the rows' results.
"""

import collections
import contextlib
import dataclasses
import datetime
import fcntl
import hashlib
import importlib
import json
import os
import platform
import shutil
import subprocess
import time

from lab import results_page

NAMES = ("programs", "suites", "machine", "driver", "engines", "kernels")

# "differs" is a known difference: its reason is in the row. "failed" is one without a reason.
OUTCOMES = ("passed", "differs", "not installed", "failed")


class Lab:
    """Where a part of the lab finds the checkout, the build and its scratch directory."""

    def __init__(self, part, checkout, build, scratch, clones=None):
        self.checkout = checkout
        self.build = build
        self.cudaguard = build / "bin/cudaguard"
        self.library = build / "lib/libcudaguard.so"
        self.state = checkout / "build/lab" / part
        self.results = checkout / "tests/lab/results" / f"{part}.jsonl"
        self.scratch = scratch / part
        self.clones = clones  # git repositories in place of GitHub's, or None

    def git(self, *words):
        return subprocess.run(["git", "-C", self.checkout, *words], check=True, text=True,
                              stdout=subprocess.PIPE).stdout.strip()


class Part:
    """The rows of one part, and their results.

    The results are in tests/lab/results/PART.jsonl, one line for each row. Each has the commit and a
    hash of the guard and the launcher that the row ran with, so results of several runs can stand
    there together.
    """

    def __init__(self, name, module, lab):
        self.name = name
        self.module = module
        self.lab = lab
        self.rows = module.rows(lab)
        self.guard = hash_of(lab.library.read_bytes() + lab.cudaguard.read_bytes())
        self.results = {row.name: facts for facts in self.read() for row in self.rows
                        if facts["name"] == row.name and facts["row"] == text_of(row)}

    def read(self):
        """What the file has. A row that is gone or has another text by now has no result."""
        try:
            return [json.loads(line) for line in self.lab.results.read_text().splitlines()]
        except FileNotFoundError:
            return []

    def is_new(self, row):
        """Whether the row's result is one of this guard."""
        return row.name in self.results and self.results[row.name]["guard"] == self.guard

    def show(self):
        for row in self.rows:
            facts = self.results.get(row.name, {"outcome": "not run"})
            older = " (another build)" if row.name in self.results and not self.is_new(row) else ""
            print(f"{row.name}: {described(facts)}{older}")

    def run(self, names, again):
        """Runs the rows that `names` lists, or those without a result of this guard. Returns the
        exit code."""
        self.lab.state.mkdir(parents=True, exist_ok=True)
        with alone(self.lab.state / "lock"), contextlib.suppress(KeyboardInterrupt):
            chosen = [row for row in self.rows
                      if (row.name in names if names else again or not self.is_new(row))]
            for number, row in enumerate(chosen, 1):
                print(f"[{number}/{len(chosen)}] {row.name}: ", end="", flush=True)
                self.results[row.name] = facts = self.measure(row)
                self.write()
                print(f"{described(facts)} ({facts['seconds']} s)", flush=True)
        return self.finish()

    def measure(self, row):
        start = time.monotonic()
        with scratch(self.lab.scratch):
            try:
                facts = self.module.run(self.lab, row)
            except Exception as error:  # one row's fault does not end the others
                facts = {"outcome": "failed", "reason": f"{type(error).__name__}: {error}"}
        assert facts["outcome"] in OUTCOMES, facts
        machine = (f"{platform.freedesktop_os_release()['PRETTY_NAME']}, Linux "
                   f"{platform.release()}, {os.cpu_count()} CPUs")
        return {"name": row.name, **facts, "seconds": round(time.monotonic() - start),
                "date": datetime.date.today().isoformat(), "machine": machine,
                "commit": self.lab.git("rev-parse", "HEAD"), "guard": self.guard,
                "row": text_of(row)}

    def ordered(self):
        return [self.results[row.name] for row in self.rows if row.name in self.results]

    def write(self):
        """Writes all results, so that nothing is lost if the lab is killed."""
        self.lab.results.parent.mkdir(exist_ok=True)
        partial = self.lab.results.with_suffix(".partial")
        partial.write_text("".join(json.dumps(facts) + "\n" for facts in self.ordered()))
        partial.rename(self.lab.results)

    def finish(self):
        """Lets the part write its pages. Returns 0 if each row has run with this guard and none has
        failed."""
        counts = collections.Counter(facts["outcome"] for facts in self.results.values())
        older = sum(not self.is_new(row) for row in self.rows if row.name in self.results)
        missing = len(self.rows) - len(self.results)
        summary = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES)
        print(f"{self.name}: {len(self.rows)} rows: {summary}, {missing} not run; "
              f"{older} ran with another build")
        if hasattr(self.module, "report"):
            self.module.report(self.lab, self.ordered())
        results_page.write(self.lab.checkout)
        return 1 if counts["failed"] or missing or older else 0


def load(name, checkout, build, scratch, clones=None):
    """The part with this name. Its module is imported, and its rows are read."""
    lab = Lab(name, checkout, build, scratch, clones)
    return Part(name, importlib.import_module(f"lab.{name}"), lab)


def text_of(row):
    """Changes if the row does, so that a changed row is run again. A member that most rows do not
    set does not count in them, so that all of their results stay if a member is added."""
    given = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)
             if getattr(row, field.name) != field.default}
    return hash_of(repr(given).encode())


def hash_of(content):
    return hashlib.sha256(content).hexdigest()[:16]


def described(facts):
    reason = facts.get("reason")
    return facts["outcome"] + (f": {reason}" if reason else "")


@contextlib.contextmanager
def alone(file):
    """Holds a lock, so that a part runs once at a time. The kernel frees it if we are killed."""
    with open(file, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"scripts/lab: this part is running: {file} is locked") from None
        yield


@contextlib.contextmanager
def scratch(directory):
    """An empty directory that is removed at the end. What a killed run left there goes first."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        with contextlib.suppress(OSError):
            directory.parent.rmdir()
