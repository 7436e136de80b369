# SPDX-License-Identifier: Apache-2.0
"""Turns records (share/cudaguard/record.schema.json) into sentences. Does not trust the records."""

from __future__ import annotations

import builtins
import ctypes
import re
from typing import Any, List, NamedTuple, Optional, Tuple

from cudaguard.originals import Real, decoded, source_line

__builtins__ = dict(vars(builtins))  # type: ignore[assignment]  # see originals.py

MARK = b'{"v":1,'
# generated: kinds of attempts
KINDS = {"init": "CUDA", "nvml": "NVML", "opencl": "OpenCL", "context": "a CUDA context"}
_ASKED = {"cuda": "init", "nvml": "nvml", "opencl": "opencl", "context": "context"}
# end
_NOT_INITIALISED = 3  # CUDA_ERROR_NOT_INITIALIZED
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/(.*)", re.DOTALL)

_ALL_CATEGORIES = 0x1fbf  # LC_ALL_MASK
_libc = ctypes.CDLL(None)
_libc.newlocale.restype = _libc.uselocale.restype = ctypes.c_void_p
_libc.newlocale.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p]
_libc.uselocale.argtypes = [ctypes.c_void_p]
_libc.fnmatch.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int]
_bytes_locale = _libc.newlocale(_ALL_CATEGORIES, b"C", None)


# generated: fields of a record
class Record(NamedTuple):
    """The fields of a record (record.schema.json). One that is missing has its default."""

    v: int = -1
    ts: float = 0.0
    pid: int = -1
    ppid: int = -1
    tid: int = -1
    since: int = -1
    uid: int = -1
    host: str = ""
    exe: str = ""
    argv: List[Any] = []
    cgroup: str = ""
    slurm: str = ""
    api: str = ""
    object: str = ""
    asked: str = ""
    event: str = ""
    decision: str = ""
    rule: str = ""
    last_place: bool = False
    device: int = -1
    result: int = -1
    policy: str = ""
    caller: str = ""
    library: str = ""
    passes_on: bool = False
    code: str = ""
    started_by: str = ""
    line_frame: int = -1
    python_missing: str = ""
    python: List[Any] = []
    native: List[Any] = []
    native_missing: str = ""
    reason: str = ""
    seconds: float = 0.0
    cut: List[Any] = []
# end


class Frame(NamedTuple):
    file: str
    line: int  # 0: not known
    function: str

    def place(self) -> str:
        return "%s:%d" % self[:2] if self.line else self.file


class Attempt(NamedTuple):
    """One CUDA attempt: a process asked for CUDA, NVML, OpenCL or a context."""

    kind: str  # a key of KINDS
    api: str
    pid: int
    command: str
    library: str  # the caller as in the guard's message: "libc10_cuda.so", "ctypes/cffi"
    code: str  # the line as in the message: "ppo.py:159"; may be empty
    frames: List[Frame]  # Python's frames, innermost first
    missing: str  # the reason if there are no frames
    passes_on: bool = False  # the library only passes calls on, as CUDA's runtime does
    line_frame: int = -1  # the index in `frames` of the frame that has the line; -1: none
    started_by: str = ""  # what started a tool such as nvidia-smi: "python3 app.py"
    since: int = -1  # the start of the process in clock ticks; -1: not known

    def process(self) -> Tuple[int, int]:
        """Process ids are reused, and those of PID namespaces are often the same."""
        return self.pid, self.since

    def line(self) -> Optional[Frame]:
        """The frame of the line that `code` names; None for a notebook's cell."""
        return self.frames[self.line_frame] if 0 <= self.line_frame < len(self.frames) else None

    def place(self) -> str:
        """What `verify` groups attempts by: the line, otherwise the library."""
        line = self.line()
        return line.place() if line else self.code or self.library


UNWRITTEN = "code that could not be written down"  # the library of an attempt without a record
CODE = ("lib:", "module:", "line:")
_NOT_PLAIN = re.compile(r"[^\w@%+:,./-]", re.ASCII)  # a shell may change it
_OPTIONS = 3  # the most that a user would copy


def _matches(pattern: str, text: str) -> bool:
    """libc's fnmatch() on bytes, as in shim/launcher/findings/allow.cpp. Python's own has no
    backslash and no character classes."""
    if not text:
        return False
    old = _libc.uselocale(_bytes_locale)
    try:
        return _libc.fnmatch(pattern.encode("utf-8", "surrogatepass"),
                             text.encode("utf-8", "surrogatepass"), 0) == 0
    finally:
        _libc.uselocale(old)


def _part_below(file: str, script: str) -> str:
    """As in shim/launcher/findings/allow.cpp."""
    above = script.rpartition("/")[0].rpartition("/")[0] + "/"
    pairs = enumerate(zip(above, file))
    differs = next((i for i, (a, b) in pairs if a != b), min(len(above), len(file)))
    nearest = file.rpartition("/")[0].rfind("/") + 1
    return file[min(nearest, above.rfind("/", 0, differs) + 1):].lstrip("/")


def _is_module(pattern: str, file: str, script: str) -> bool:
    """As in shim/launcher/findings/allow.cpp."""
    packaged = _PACKAGES.match(file)
    part = packaged.group(1) if packaged else _part_below(file, script)
    part = part[:-3] if part.endswith(".py") else part
    part = part[:-len("/__init__")] if part.endswith("/__init__") else part
    while True:
        name = part.replace("/", ".")
        if _matches(pattern, name) or _matches(pattern + ".*", name):
            return True
        _, slash, part = part.partition("/")
        if packaged or not slash:
            return False


def may(attempt: Attempt, pattern: str) -> bool:
    kind, _, glob = pattern.partition(":")
    own = attempt.line()
    if kind == "lib":
        return _matches(glob, attempt.library)
    if kind == "line":
        place = own.place() if own else ""
        return (_matches(glob, attempt.code) or _matches(glob, place) or
                _matches("*/" + glob, place))
    if kind != "module":
        return False  # "program:" is about programs that no guard is in
    frames = attempt.frames
    if own is not None:
        frames = frames[:attempt.line_frame + 1]
    return any(_is_module(glob, frame.file, attempt.frames[-1].file) for frame in frames)


def _is_printable(character: str) -> bool:
    """Also for the two joiners in names in Persian, Hindi or emoji, as in policy/text.cpp."""
    return character.isprintable() or character in "\u200c\u200d"


def _literal(text: str) -> str:
    """A pattern for exactly this text. A character that cannot be printed becomes "*"."""
    return "".join("\\" + c if c in "*?[\\" else c if _is_printable(c) else "*" for c in text)


def remedy(attempts: List[Attempt], is_test: bool = True) -> str:
    """How to allow these attempts of a test, or of a module's import."""
    options = []
    for attempt in attempts:
        patterns = ["line:" + _literal(attempt.code), "lib:" + _literal(attempt.library)]
        known = attempt.library != UNWRITTEN
        pattern = next((one for one in patterns if known and may(attempt, one)), "")
        if _NOT_PLAIN.search(pattern):
            pattern = "'%s'" % pattern.replace("'", "'\\''")
        options.append("--cudaguard-allow " + pattern if pattern else "")
    options = list(dict.fromkeys(options))
    mark = ("mark the test with @pytest.mark.cudaguard_allow" if is_test else
            "write pytestmark = pytest.mark.cudaguard_allow into the module")
    if "" in options or len(options) > _OPTIONS:
        return "to allow this: " + mark
    return "to allow this: %s, or %s" % (" ".join(options), mark)


def without_tables(attempts: List[Attempt]) -> List[Attempt]:
    """The attempts, each once: a refused export table is no attempt of its own if cuInit of the same
    process follows, by the same library and at the same line. The same as in
    shim/launcher/findings/records.cpp."""
    def asker(attempt: Attempt) -> Tuple[Tuple[int, int], str, str]:
        return attempt.process(), attempt.library, attempt.code
    last = {asker(one): i for i, one in enumerate(attempts) if one.api == "cuInit"}
    return [attempt for i, attempt in enumerate(attempts)
            if attempt.api != "cuGetExportTable" or last.get(asker(attempt), -1) < i]


def not_allowed(attempts: List[Attempt], patterns: List[str]) -> List[Attempt]:
    """The attempts that no pattern allows. A library that only passes calls on is allowed if all
    other callers at the same place in the same process are."""
    bad = [attempt for attempt in attempts if not any(may(attempt, pattern) for pattern in patterns)]
    callers = {(attempt.process(), attempt.place()) for attempt in attempts if not attempt.passes_on}
    callers -= {(attempt.process(), attempt.place()) for attempt in bad if not attempt.passes_on}
    return [attempt for attempt in bad
            if not (attempt.passes_on and (attempt.process(), attempt.place()) in callers)]


def shown(text: str) -> str:
    """The text without characters that a terminal might interpret."""
    return "".join(c if _is_printable(c) else "?" for c in text)


def short_path(path: str) -> str:
    """The path relative to the working directory if it is below that."""
    try:
        directory = Real.getcwd() + "/"
    except OSError:
        return path
    return path[len(directory):] if path.startswith(directory) else path


def record_of(value: Any) -> Record:
    """The fields of a JSON value. A field of another type has its default, too."""
    members = value if isinstance(value, dict) else {}
    return Record(**{name: members[name] for name, default in Record._field_defaults.items()
                     if isinstance(members.get(name), type(default))})


def _is_attempt(record: Record) -> bool:
    return record.decision in ("deny", "refuse") or record.event in ("init", "nvml", "context")


def attempt_of(value: Any) -> Optional[Attempt]:
    """The attempt of a record. None for a record of another event and for a value that is no record.
    A refused load counts, because a test has no third result as `verify` has (INCOMPLETE)."""
    record = record_of(value)
    if record.v != 1 or record.pid <= 0 or not _is_attempt(record):
        return None
    try:
        frames = [Frame(str(f["file"]), int(f["line"]), str(f["function"])) for f in record.python]
    except (KeyError, OverflowError, TypeError, ValueError):
        return None
    return Attempt(_ASKED.get(record.asked, "init"), record.api, record.pid,
                   " ".join(map(str, record.argv)), record.library or "?", record.code, frames,
                   record.python_missing, record.passes_on, record.line_frame, record.started_by,
                   record.since)


def is_in_vain(record: Record) -> bool:
    """True if a process was refused CUDA, or CUDA failed there, so that it may have made no context
    only because it had no CUDA. A fork after init says nothing about that. The same as in_vain in
    shim/launcher/findings/records.cpp."""
    if record.decision in ("deny", "refuse"):
        return record.asked != "context"
    return record.result > 0 and (record.event == "nvml" or (
        record.event == "init" and record.result != _NOT_INITIALISED))


def value_of(line: bytes) -> Any:
    """The JSON value in a line, None if there is none. Skips a partial record before it, whose
    writer was killed."""
    start = max(line.rfind(MARK), 0)
    return decoded(line[start:].decode("utf-8", "replace"))


def is_whole(line: bytes) -> bool:
    """False if the line is or begins with something that could have been an attempt."""
    value = value_of(line)
    record = record_of(value)
    known = record.v == 1 and (not _is_attempt(record) or attempt_of(value) is not None)
    return known and line.rfind(MARK) <= 0


def parse(line: bytes) -> Optional[Attempt]:
    """The attempt in a line."""
    return attempt_of(value_of(line))


def headline(attempt: Attempt, own: bool) -> str:
    """`CUDA was asked for by ppo.py:159 through libc10_cuda.so (cuInit)`. `own`: by this process."""
    line = attempt.line()
    where = _where(line) if line else attempt.code
    who = "%s through %s" % (where, attempt.library) if where else attempt.library
    who += ", started by %s" % attempt.started_by if attempt.started_by else ""
    kind = KINDS[attempt.kind]
    text = "%s was asked for by %s (%s)" % (kind[0].upper() + kind[1:], who, attempt.api)
    if not own:
        text += " in process %d: %s" % (attempt.pid, attempt.command[:200])
    return shown(text)


def _where(frame: Frame) -> str:
    return frame._replace(file=short_path(frame.file)).place()


def story(attempt: Attempt, own: bool) -> str:
    """The headline, and below it the Python stack with the user's line."""
    rows = [headline(attempt, own)]
    users = attempt.line()
    for frame in attempt.frames:
        if "/_pytest/" in frame.file:
            break  # the remaining frames only run the test
        rows.append("  %s %s in %s" % (">" if frame is users else " ", _where(frame),
                                       frame.function))
        source = source_line(frame.file, frame.line) if frame is users else ""
        if source:
            rows.append("        " + source)
    if attempt.missing:
        rows.append("    Python stack: " + attempt.missing)
    return "\n".join(shown(row) for row in rows)
