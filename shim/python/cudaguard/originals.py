# SPDX-License-Identifier: Apache-2.0
"""What the plug-in uses while a test runs, bound when it is imported.

A test may have replaced open(), os.environ or json.loads, when the plug-in reads the test's
records. The same test may have changed the user, used up the descriptors or filled the disk. So the
plug-in opens its files before the test, and the functions here are written in C, because those
written in Python look up names that a test may have replaced.
"""

from __future__ import annotations

import builtins
import errno
import io
import json
import json.encoder
import os
import shutil
import stat
import subprocess
import tempfile
import time
from typing import Any, Callable, List, Optional, Tuple

# The functions of a module whose globals have this name look up any(), sum() and the like here, not
# in the module builtins, where a test may have replaced them.
__builtins__ = dict(vars(builtins))  # type: ignore[assignment]


def _encoder() -> Callable[[Any], str]:
    make: Any = json.encoder.c_make_encoder  # type: ignore[attr-defined]
    if make is None:  # Python is not CPython
        return json.JSONEncoder(default=str, separators=(",", ":")).encode
    encode = make(None, str, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, True)
    return lambda value: "".join(encode(value, 0))


class Real:
    """A class, because pyfakefs also replaces the functions that a module has imported."""

    open, close, fstat, stat, fchmod = os.open, os.close, os.fstat, os.stat, os.fchmod
    utime, ftruncate = os.utime, os.ftruncate
    read, pread, write = os.read, os.pread, os.write
    getpid, geteuid, getcwd, uname, sleep = os.getpid, os.geteuid, os.getcwd, os.uname, time.sleep
    environ = os.environ
    mkdtemp, rmtree, chmod = tempfile.mkdtemp, shutil.rmtree, os.chmod
    open_file, popen = io.open, subprocess.Popen
    scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
    encode = _encoder()


# Names of the module os would be looked up later.
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
_MAKE = _READ | os.O_CREAT | os.O_EXCL
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY
_RECORD = b'{"v":1,"ts":'  # the start of one


def reason_of(error: BaseException) -> str:
    """One line: `FileNotFoundError: [Errno 2] …`. Raises nothing."""
    try:
        return " ".join(("%s: %s" % (type(error).__name__, error)).split())
    except Exception:
        return type(error).__name__


def _identity_of(status: os.stat_result) -> Tuple[int, int]:
    return status.st_dev, status.st_ino


# The guard sets this bit if it could not write a record (shim/guard/record/append_report.cpp).
_LOST = stat.S_ISVTX


class RecordFile:
    """A file to which guards append records. It exists and is open before any of them does, so that
    no record looks different from records that were removed."""

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self.path = path
        self._position = 0
        self._known = 0  # the size of the file when its end was reported
        self._descriptor = Real.open(path, _MAKE, 0o666)
        self._identity = _identity_of(Real.fstat(self._descriptor))
        # A test may change the user, whose processes must be able to write records.
        Real.fchmod(self._descriptor, 0o666)
        # Any later time of an empty file means that something wrote to it and emptied it.
        try:
            Real.utime(self._descriptor, (0, 0))
        except OSError:
            pass  # the file system keeps its own times
        self._modified = Real.fstat(self._descriptor).st_mtime_ns  # while the file was empty

    def read(self) -> Tuple[List[bytes], str]:
        """The complete lines since the last call, and the reason if that cannot be all of them.
        Raises nothing."""
        data = b""
        try:
            descriptor = self._opened()
            while True:
                part = Real.pread(descriptor, 1 << 20, self._position + len(data))
                if not part:
                    break
                data += part
            problem = "" if self.is_in_place() else self.path + " was removed"
            status = Real.fstat(descriptor)
            if self._was_truncated(status):
                problem = self.path + " was truncated"
            if status.st_mode & _LOST:
                Real.fchmod(descriptor, 0o666)
                problem = "a process could not write its record to " + self.path
        except Exception as error:
            problem = reason_of(error)
        lines = data[:data.rfind(b"\n") + 1].split(b"\n")[:-1]
        self._position += sum(len(line) + 1 for line in lines)
        return [line + b"\n" for line in lines], problem

    def _was_truncated(self, status: os.stat_result) -> bool:
        """True once after something has made the file shorter than what was read, or empty."""
        shorter = status.st_size < self._position
        if shorter:
            self._position = status.st_size  # of new records, none is lost
        if status.st_size > 0:
            return shorter
        emptied = status.st_mtime_ns != self._modified
        self._modified = status.st_mtime_ns
        return shorter or emptied

    def rest(self) -> str:
        """What is wrong with the end of the file, once. Raises nothing."""
        try:
            size = Real.fstat(self._opened()).st_size
            if size > self._position and size != self._known:
                self._known = size
                return "the last record in %s is not complete" % self.path
        except Exception as error:
            return reason_of(error)
        return ""

    def is_in_place(self) -> bool:
        """True if its path still names the file."""
        try:
            return _identity_of(Real.stat(self.path)) == self._identity
        except OSError:
            return False

    def close(self) -> None:
        if self._is_open():
            Real.close(self._descriptor)
        self._descriptor = -1

    def _is_open(self) -> bool:
        """A test may have closed the descriptor, and opened another file that got its number."""
        try:
            return _identity_of(Real.fstat(self._descriptor)) == self._identity
        except OSError:
            return False

    def _opened(self) -> int:
        """The descriptor. Raises OSError."""
        if not self._is_open():
            descriptor = Real.open(self.path, _READ)
            if _identity_of(Real.fstat(descriptor)) != self._identity:
                Real.close(descriptor)
                raise FileNotFoundError(errno.ENOENT, "the file was replaced", self.path)
            self._descriptor = descriptor
        return self._descriptor


class OutputFile:
    """A file to which this process appends lines. It keeps what it cannot write, for example while a
    test has used up the descriptors, and tries again with the next line."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._pending = b""
        self._made = -1  # a descriptor
        self._identity = (-1, -1)

    def append(self, line: bytes = b"") -> str:
        """Appends the line by one write, because other processes share the file. Returns the reason
        if something could not be written. Raises nothing."""
        self._pending += line
        if not self._pending:
            return ""
        try:
            descriptor = Real.open(self.path, _APPEND, 0o644)
            try:
                while self._pending:
                    self._pending = self._pending[Real.write(descriptor, self._pending):]
            finally:
                Real.close(descriptor)
        except Exception as error:
            return reason_of(error)
        return ""

    def make_empty(self) -> None:
        """Raises OSError, also if the file has something else than records."""
        self._made = Real.open(self.path, _APPEND, 0o644)
        status = Real.fstat(self._made)
        self._identity = _identity_of(status)
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISBLK(status.st_mode)):
            return
        descriptor = Real.open(self.path, _READ)
        start = Real.read(descriptor, len(_RECORD))
        Real.close(descriptor)
        if start not in (b"", _RECORD):
            why = "the file has other contents (accepted: a new file or records)"
            raise FileExistsError(errno.EEXIST, why)
        Real.ftruncate(self._made, 0)

    def was_removed(self) -> bool:
        """True if make_empty() has made the file, and it has no name any more."""
        try:
            status = Real.fstat(self._made)
            return _identity_of(status) == self._identity and status.st_nlink == 0
        except OSError:
            return False


def source_line(path: str, number: int) -> str:
    """The line of a source file without the space around it; empty if it cannot be read. linecache
    calls functions that a test may have replaced. Raises nothing."""
    try:
        descriptor = Real.open(path, _READ)
        try:
            data = b""
            while data.count(b"\n") < number:
                part = Real.read(descriptor, 1 << 20)
                if not part:
                    break
                data += part
        finally:
            Real.close(descriptor)
        return data.split(b"\n")[number - 1].decode("utf-8", "replace").strip() if number > 0 else ""
    except Exception:
        return ""


def decoded(text: str) -> Optional[Any]:
    """The JSON value that is the whole text; None if there is none. Raises nothing."""
    try:
        text = text.strip()
        value, end = Real.scan(text, 0)
        return value if end == len(text) else None
    except Exception:
        return None
