# SPDX-License-Identifier: Apache-2.0
"""Turns records (share/cudaguard/record.schema.json) into sentences. Does not trust the records."""

from __future__ import annotations

import fnmatch
import json
import linecache
import os
from typing import Any, Iterator, List, NamedTuple, Optional

MARK = b'{"v":1,'
KINDS = {"init": "CUDA", "nvml": "NVML", "opencl": "OpenCL"}


class Frame(NamedTuple):
    file: str
    line: int
    function: str


class Attempt(NamedTuple):
    """One CUDA attempt: a process asked for CUDA, NVML or OpenCL."""

    kind: str  # a key of KINDS
    api: str
    pid: int
    command: str
    library: str  # the caller as in the guard's message: "libc10_cuda.so", "ctypes/cffi"
    code: str  # the line as in the message: "ppo.py:159"; may be empty
    frames: List[Frame]  # Python's frames, innermost first
    missing: str  # the reason if there are no frames

    def line(self) -> Optional[Frame]:
        """The innermost frame of the line that `code` names; None for a notebook's cell."""
        return next((frame for frame in self.frames
                     if ("/%s:%d" % frame[:2]).endswith("/" + self.code)), None)


CODE = ("lib:", "module:", "line:")


def _module_of(file: str) -> str:
    """The module's name as in shim/launcher/findings/allow.cpp. Outside of packages it has only the
    directory and the file."""
    for directory in ("/site-packages/", "/dist-packages/"):
        if directory in file:
            name = file.rsplit(directory, 1)[1]
            break
    else:
        name = "/".join(file.split("/")[-2:])
    name = name[:-3] if name.endswith(".py") else name
    name = name[:-len("/__init__")] if name.endswith("/__init__") else name
    return name.replace("/", ".")


def _is_module(pattern: str, file: str) -> bool:
    name = _module_of(file)
    names = [name]
    if not any(directory in file for directory in ("/site-packages/", "/dist-packages/")):
        names.append(name.partition(".")[2])
    return any(fnmatch.fnmatchcase(one, pattern) for one in names) or fnmatch.fnmatchcase(
        name, pattern + ".*")


def _may(attempt: Attempt, pattern: str) -> bool:
    kind, _, glob = pattern.partition(":")
    own = attempt.line()
    if kind == "lib":
        return bool(attempt.library) and fnmatch.fnmatchcase(attempt.library, glob)
    if kind == "line":
        places = [attempt.code] if attempt.code else []
        if own is not None and attempt.code:
            places.append("%s:%d" % own[:2])
        return any(fnmatch.fnmatchcase(place, one) for place in places for one in (glob, "*/" + glob))
    frames = attempt.frames
    if own is not None and attempt.code:
        frames = frames[:frames.index(own) + 1]
    return any(_is_module(glob, frame.file) for frame in frames)


def not_allowed(attempts: List[Attempt], patterns: List[str]) -> List[Attempt]:
    """The attempts that no pattern allows. CUDA's runtime is allowed if all other callers at the
    same line of the same process are."""
    def is_runtime(attempt: Attempt) -> bool:
        return attempt.library.startswith("libcudart")  # a wheel's is libcudart-d0da41ae.so.12

    bad = [attempt for attempt in attempts if not any(_may(attempt, pattern) for pattern in patterns)]
    callers = {(attempt.pid, attempt.code) for attempt in attempts if not is_runtime(attempt)}
    callers -= {(attempt.pid, attempt.code) for attempt in bad if not is_runtime(attempt)}
    return [attempt for attempt in bad
            if not (is_runtime(attempt) and (attempt.pid, attempt.code) in callers)]


def shown(text: str) -> str:
    """The text without characters that a terminal might interpret."""
    return "".join(c if c.isprintable() else "?" for c in text)


def short_path(path: str) -> str:
    """The path relative to the working directory if it is below that."""
    try:
        directory = os.getcwd() + os.sep
    except OSError:
        return path
    return path[len(directory):] if path.startswith(directory) else path


def _base_name(place: Any) -> str:
    return os.path.basename(str(place).rsplit("+0x", 1)[0])


def _kind(api: str, library: str) -> str:
    """The kind of an attempt as in policy/driver_api.h."""
    if api.startswith("nvml"):
        return "nvml"
    if api == "dlopen" and library.startswith("libnvidia-opencl.so"):
        return "opencl"
    if api == "dlopen" and library.startswith(("libnvidia-cfg.so", "libnvidia-ml.so")):
        return "nvml"
    return "init"


def attempt_of(record: Any) -> Optional[Attempt]:
    """The attempt of a record. None for a start record and for a value that is no record."""
    try:
        if record["v"] != 1 or "api" not in record:
            return None
        api = str(record["api"])
        frames = [Frame(str(f["file"]), int(f["line"]), str(f["function"]))
                  for f in record.get("python", [])]
        return Attempt(_kind(api, os.path.basename(str(record.get("object", "")))), api,
                       int(record["pid"]), " ".join(str(word) for word in record["argv"]),
                       # Records of 0.1 have neither `library` nor `code`.
                       str(record.get("library") or _base_name(record.get("caller", "?"))),
                       str(record.get("code", "")), frames, str(record.get("python_missing", "")))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def lines_of(path: str, start: int) -> Iterator[bytes]:
    """The complete lines from `start` on; none if there is no file."""
    try:
        with open(path, "rb") as stream:
            stream.seek(start)
            yield from (line for line in stream if line.endswith(b"\n"))
    except FileNotFoundError:
        return


def parse(line: bytes) -> Optional[Attempt]:
    """The attempt in a line. Skips a partial record before it, whose writer was killed."""
    start = max(line.rfind(MARK), 0)
    try:
        return attempt_of(json.loads(line[start:].decode("utf-8", "replace")))
    except ValueError:
        return None


def headline(attempt: Attempt, own: bool) -> str:
    """`CUDA was asked for by ppo.py:159 through libc10_cuda.so (cuInit)`. `own`: by this process."""
    line = attempt.line()
    where = _where(line) if line else attempt.code
    who = "%s through %s" % (where, attempt.library) if where else attempt.library
    text = "%s was asked for by %s (%s)" % (KINDS[attempt.kind], who, attempt.api)
    if not own:
        text += " in process %d: %s" % (attempt.pid, attempt.command[:200])
    return shown(text)


def _where(frame: Frame) -> str:
    return "%s:%d" % (short_path(frame.file), frame.line)


def story(attempt: Attempt, own: bool) -> str:
    """The headline, and below it the Python stack with the user's line."""
    rows = [headline(attempt, own)]
    users = attempt.line()
    for frame in attempt.frames:
        if "/_pytest/" in frame.file:
            break  # the remaining frames only run the test
        rows.append("  %s %s in %s" % (">" if frame is users else " ", _where(frame),
                                       frame.function))
        source = linecache.getline(frame.file, frame.line).strip()
        if frame is users and source:
            rows.append("        " + source)
    if attempt.missing:
        rows.append("    Python stack: " + attempt.missing)
    return "\n".join(shown(row) for row in rows)
