# SPDX-License-Identifier: Apache-2.0
"""What all parts of the lab share: rows, results that survive an interruption, and a scratch
directory.

A part is a module of this package with two functions:

  rows(lab)          returns the rows, each an object with a unique `name`
  run(lab, row)      runs one row and returns its facts, a dict for JSON

The facts have `outcome`, one of OUTCOMES, and for each outcome but "passed" a `reason`. A part
may have `report(lab, document)`, which writes pages from the results of all rows.
"""

import collections
import contextlib
import datetime
import fcntl
import hashlib
import importlib
import json
import os
import pathlib
import platform
import shutil
import subprocess
import time

NAMES = ("programs", "suites", "machine", "driver", "engines", "kernels")

# "differs" is a known difference: its reason is in the row. "failed" is one without a reason.
OUTCOMES = ("passed", "differs", "not installed", "failed")


class Lab:
    """Where a part of the lab finds the checkout, the build and its scratch directory."""

    def __init__(self, part, checkout, build):
        self.checkout = checkout
        self.build = build
        self.cudaguard = build / "bin/cudaguard"
        self.library = build / "lib/libcudaguard.so"
        self.state = checkout / "build/lab" / part
        self.scratch = pathlib.Path("/var/tmp/cudaguard-lab") / part

    def git(self, *words):
        return subprocess.run(["git", "-C", self.checkout, *words], check=True, text=True,
                              stdout=subprocess.PIPE).stdout.strip()


class Part:
    """The rows of one part, and what is known of them."""

    def __init__(self, name, module, lab):
        self.name = name
        self.module = module
        self.lab = lab
        self.rows = module.rows(lab)
        files = lab.library.read_bytes() + lab.cudaguard.read_bytes()
        self.guard = hashlib.sha256(files).hexdigest()

    def result(self, row):
        """The row's facts, or None if they are of another row's text or of another guard."""
        try:
            facts = json.loads(self.file(row).read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return facts if facts["guard"] == self.guard and facts["row"] == text_of(row) else None

    def file(self, row):
        return self.lab.state / f"{row.name}.json"

    def show(self):
        for row in self.rows:
            facts = self.result(row) or {"outcome": "not run"}
            print(f"{row.name}: {described(facts)}")

    def run(self, names, again):
        """Runs the rows that `names` lists, or those without a result. Returns the exit code."""
        self.lab.state.mkdir(parents=True, exist_ok=True)
        with alone(self.lab.state / "lock"):
            if again:
                for row in self.rows:
                    self.file(row).unlink(missing_ok=True)
            chosen = [row for row in self.rows
                      if (row.name in names if names else self.result(row) is None)]
            for number, row in enumerate(chosen, 1):
                print(f"[{number}/{len(chosen)}] {row.name}: ", end="", flush=True)
                facts = self.measure(row)
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
        facts |= {"name": row.name, "row": text_of(row), "guard": self.guard,
                  "seconds": round(time.monotonic() - start)}
        partial = self.file(row).with_suffix(".partial")
        partial.write_text(json.dumps(facts, indent=1))
        partial.rename(self.file(row))
        return facts

    def finish(self):
        """Writes the results if each row has one, and returns 1 if a row failed."""
        results = [self.result(row) for row in self.rows]
        missing = results.count(None)
        counts = collections.Counter(facts["outcome"] for facts in results if facts)
        summary = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES)
        print(f"{self.name}: {len(results)} rows: {summary}, {missing} not run")
        if missing:
            return 1
        for facts in results:
            del facts["row"], facts["guard"]
        document = {
            "part": self.name,
            "commit": self.lab.git("rev-parse", "HEAD"),
            "date": datetime.date.today().isoformat(),
            "machine": f"{platform.freedesktop_os_release()['PRETTY_NAME']}, Linux "
                       f"{platform.release()}, {os.cpu_count()} CPUs",
            "rows": results,
        }
        target = self.lab.checkout / "tests/lab/results" / f"{self.name}.json"
        target.write_text(json.dumps(document, indent=1) + "\n")
        if hasattr(self.module, "report"):
            self.module.report(self.lab, document)
        return 1 if counts["failed"] else 0


def load(name, checkout, build):
    """The part with this name. Its module is imported, and its rows are read."""
    return Part(name, importlib.import_module(f"lab.{name}"), Lab(name, checkout, build))


def text_of(row):
    """Changes if the row does, so that a changed row is run again."""
    return repr(row)


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
