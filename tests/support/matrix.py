# SPDX-License-Identifier: Apache-2.0
"""Defines a row of the entry-point matrix, runs it and judges it.

A row is one program that uses one entry point. Unguarded, it has to reach the recording fake driver
and NVIDIA's real one. (That is the control: a row that cannot fail proves nothing.) Guarded, it
gets
the answers of the design's table, and no process in its tree breaks a promise.
"""

import dataclasses
import functools
import glob
import importlib
import os
import re
import unittest

from support import harness, machine, messages, settings

# A machine without a device gives these answers. A tuple lists alternatives.
CUDA = {
    "cuInit": "100",
    "cuInit1": "1",
    "versionRc": "0",
    "version": "99990",
    "countRc": "3",
    "count": ("-7", "0"),
    "name": "CUDA_ERROR_NO_DEVICE",
    "export": "500",
    "table": "null",
    "unknown": "null",
}
NVML = {
    "nvmlInit": "9",
    "nvmlInitOld": "0",
    "nvmlInitWithFlags": "9",
    "countRc": "0",
    "count": "0",
    "countOld": "0",
    "byIndex": "2",
    "byUuid": "6",
    "shutdown": "0",
    "unknown": "null",
    "text": "Invalid",
}
WORLDS = ("none", "fake", "real")
DRIVEN = ("fake", "real")


@dataclasses.dataclass
class Row:
    """One entry point.

    argv and env may use {driver} (the directory of this world's driver), {versioned} and
    {nvml_versioned} (its files), {copy} (a directory that leads to the fake driver, and on which
    the real one is mounted), {programs}, {null_driver}, {source}, {loader} (ld.so's path).
    """

    id: str  # the part before the dot is the group: dlopen.absolute
    about: str
    argv: list
    expect: dict = dataclasses.field(default_factory=dict)  # for every line with key=value words
    unguarded: tuple = DRIVEN  # worlds in which the unguarded program must reach the driver
    worlds: tuple = WORLDS  # worlds in which it is run guarded
    env: dict = dataclasses.field(default_factory=dict)
    guarded_env: dict = dataclasses.field(default_factory=dict)  # for the guarded run only
    lines: int = 1  # lines of answers; 0: the program prints none
    rc: int = 0
    err: str = r"(?!)"  # regular expression for other lines that stderr may have
    linked: bool = False  # ld.so maps the driver before the guard can act
    guard: bool = True
    preload: tuple = ()  # follows the guard in LD_PRELOAD; if it has GUARD, this is the order
    own_preload: tuple = ()  # libraries that the unguarded program has in its LD_PRELOAD, too
    guard_last: bool = False  # the guard follows the program's own preloads
    cwd: str = None
    mounts: tuple = ()  # directories with the fake driver, in which this world's must be
    # Whether the guard prints one message for each process that asked for CUDA. None allows both.
    prints: bool = True
    same_as_unguarded: str = None  # the guarded output equals the unguarded one in this world
    check: object = None  # check(result, world) -> list of complaints
    limit: bool = False  # a documented limit: the guarded program does reach the driver
    sandboxed: bool = True
    needs: tuple = ()  # files without which the row is skipped
    why: str = ""  # what to install when they are missing
    driver_files: tuple = ()  # besides libcuda and NVML, the real world needs these
    root: bool = False  # only root can set this up
    # This row needs a large download, so only scripts/test --full runs it.
    full: bool = False
    # This row needs a language that only scripts/test --all installs.
    all: bool = False
    timeout: int = 120

    @property
    def group(self):
        return self.id.split(".")[0]


@dataclasses.dataclass
class Outcome:
    row: Row
    unguarded: dict = dataclasses.field(default_factory=dict)  # world -> Result
    guarded: dict = dataclasses.field(default_factory=dict)
    complaints: list = dataclasses.field(default_factory=list)
    # These are the reasons for skipping the row or one world.
    skipped: list = dataclasses.field(default_factory=list)

    @property
    def verdict(self):
        if self.complaints:
            return "FAIL"
        if not self.guarded:
            return "skip"
        return "limit" if self.row.limit else "pass"


def places(world):
    """Returns the values of the placeholders of argv and env in a world."""
    real = harness.real_driver_dir()
    system = harness.REAL_DRIVER_DIRS[0][:-len("/nvidia/current")]
    result = {
        "programs": harness.PROGRAMS,
        "null_driver": harness.NULL_DRIVER_DIR,
        "source": harness.SOURCE,
        "loader": harness.loader_of(harness.program("entry_point")),
        "copy": os.path.join(harness.BUILD, "tests", "entry_points", "copy"),
        "driver": harness.FAKE_DRIVER if world == "fake" else
        real[:-len("/nvidia/current")] if real else system,
    }
    for key, name in (("versioned", "libcuda"), ("nvml_versioned", "libnvidia-ml")):
        directory = real if world == "real" else harness.FAKE_DRIVER if world == "fake" else None
        found = sorted(glob.glob(os.path.join(directory, name + ".so.*.*"))) if directory else []
        result[key] = found[0] if found else "%s/%s.so.535.261.03" % (system, name)
    result["parent"] = os.path.basename(result["driver"])
    return result


def mounts_of(row, world):
    """The sandbox's arguments that replace the fake driver where the row searches for one."""
    mounts = []
    for directory in row.mounts if world != "fake" else ():
        real = ["--ro-bind", harness.real_driver_dir()] if world == "real" else ["--tmpfs"]
        mounts += [*real, directory.format(**places(world))]
    return mounts


def run_row(row, world, guarded):
    words = places(world)
    preload = tuple(path.format(**words) for path in row.own_preload)
    if guarded:
        ours = ((harness.GUARD,) if row.guard else ()) + row.preload
        ours = tuple(path.format(**words) for path in ours)
        preload = preload + ours if row.guard_last else ours + preload
    return harness.run(
        [str(word).format(**words) for word in row.argv],
        world=world,
        guard=False,
        preload=preload,
        env={key: value.format(**words) for key, value in dict(
            row.env, **(row.guarded_env if guarded else {})).items()},
        cwd=row.cwd.format(**words) if row.cwd else None,
        bwrap=mounts_of(row, world),
        sandboxed=row.sandboxed,
        timeout=row.timeout)


def answer_lines(text):
    """Returns the lines of key=value words, each as a dictionary."""
    lines = [dict(re.findall(r"([\w.]+)=(\S*)", line)) for line in text.splitlines()]
    return [line for line in lines if line]


def judge_answers(row, result):
    found = []
    if result.timed_out:
        return ["did not end within %d s" % row.timeout]
    if result.rc != row.rc:
        found.append("exit code %s, not %s" % (result.rc, row.rc))
    lines = answer_lines(result.out)
    if len(lines) != row.lines and (row.expect or row.lines):
        found.append("%d lines of answers, not %d" % (len(lines), row.lines))
    for line in lines:
        for key, wanted in row.expect.items():
            if line.get(key) not in (wanted if isinstance(wanted, tuple) else (wanted,)):
                found.append("%s=%s, not %s" % (key, line.get(key), wanted))
    return found


def judge_words(row, result):
    """Fails unless the guard prints one message for each process that asked for CUDA, or two if NVML
    came first, and stderr has nothing else."""
    ours = [(message["pid"], message["name"])
            for message in messages.find(result.err, *messages.DENIED)]
    found = ["printed: " + line
             for line in messages.without(result.err, *messages.DENIED).splitlines()
             if not re.search(row.err, line)]
    if len(ours) != len(set(ours)):
        found.append("the same line of ours twice from one process")
    if any((pid, "no_cuda") in ours[:place] for place, (pid, _) in enumerate(ours)):
        found.append("a line of ours after the one about CUDA")
    if row.prints and row.guard and not ours:
        found.append("the guard printed no message")
    if row.prints is False and ours:
        found.append("the guard printed a message")
    return found


def judge(row, world, unguarded, guarded):
    if row.limit:
        return [] if guarded.reached_driver() else ["documented limit, but it was stopped"]
    found = judge_answers(row, guarded) + guarded.broken(row.linked)
    if row.same_as_unguarded:
        if guarded.out != unguarded.out:
            found.append("prints other than unguarded: %r, not %r" % (guarded.out, unguarded.out))
    found += row.check(guarded, world) if row.check else []
    return found + judge_words(row, guarded)


def why_not(world, row):
    """Returns the reason why this machine cannot run the row in this world, or None."""
    if world != "real":
        return None
    if not harness.have_real_driver():
        return harness.NO_DRIVER
    missing = harness.missing_driver_files(harness.real_driver_dir(), *row.driver_files)
    return "not installed: " + ", ".join(missing) if missing else None


@functools.lru_cache(None)
def first_rows():
    """The first row of each group in each world, and the rows that have no run with the fake driver."""
    first = {}
    for row in load_rows():
        for world in row.worlds if not (row.all or row.full) else ():
            first.setdefault((row.group, world), row.id)
    return {*first.values(), *(row.id for row in load_rows()
                               if set(row.unguarded) == {"real"} or "fake" not in row.worlds)}


def worlds_of(row):
    """The fake driver has the promise's proof for each row. That the real one is found in the same
    ways, and that a machine without a driver gets the same answers, is proven for each group, and
    with scripts/test --all for each row."""
    every = settings.ALL or settings.FULL or row.id in first_rows()
    return [world for world in WORLDS if every or world in ("fake", row.same_as_unguarded)]


def perform(row):
    """Runs a row unguarded and guarded in its worlds and judges it."""
    outcome = Outcome(row)
    missing = [path for path in row.needs if not glob.glob(path.format(**places("fake")))]
    if missing:
        is_drivers = "nvidia" in missing[0] and not harness.have_real_driver()
        why = harness.NO_DRIVER if is_drivers else row.why
        outcome.skipped.append("%s is missing%s" % (missing[0], why and ": " + why))
    elif row.root and machine.missing("setuid_programs"):
        outcome.skipped.append(machine.missing("setuid_programs"))
    if outcome.skipped:
        return outcome
    controls = set(row.unguarded) | ({row.same_as_unguarded} if row.same_as_unguarded else set())
    for world in worlds_of(row):
        if world not in controls and world not in row.worlds:
            continue
        reason = why_not(world, row)
        if reason:
            outcome.skipped.append("%s world: %s" % (world, reason))
            continue
        try:
            if row.sandboxed:
                harness.sandbox(world, mounts_of(row, world))
        except unittest.SkipTest as lacks:
            outcome.skipped.append("%s world: %s" % (world, lacks))
            continue
        if world in controls:
            outcome.unguarded[world] = run_row(row, world, False)
            if world in row.unguarded and not outcome.unguarded[world].reached_driver():
                outcome.complaints.append(
                    ("control, " + world, ["unguarded, it does not reach the driver"],
                     outcome.unguarded[world]))
        if world in row.worlds:
            outcome.guarded[world] = run_row(row, world, True)
    for world, guarded in outcome.guarded.items():
        unguarded = outcome.unguarded.get(row.same_as_unguarded or world)
        found = judge(row, world, unguarded, guarded)
        if found:
            outcome.complaints.append(("guarded, " + world, found, guarded))
    return outcome


def load_rows():
    """Returns all rows of the rows_*.py files in this directory in the order of their groups."""
    rows = []
    for path in sorted(glob.glob(os.path.join(os.path.dirname(__file__), "rows_*.py"))):
        rows += importlib.import_module("support." + os.path.basename(path)[:-3]).ROWS
    seen = set()
    for row in rows:
        if row.id in seen:
            raise ValueError("two rows are called " + row.id)
        seen.add(row.id)

    # A group's rows may come from several files.
    groups = list(dict.fromkeys(row.group for row in rows))
    return sorted(rows, key=lambda row: groups.index(row.group))
