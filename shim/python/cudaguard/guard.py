# SPDX-License-Identifier: Apache-2.0
"""The guard of this process (include/cudaguard.h)."""

from __future__ import annotations

import builtins
import ctypes
import os
from typing import Optional

__builtins__ = dict(vars(builtins))  # type: ignore[assignment]  # see originals.py


class NotGuarded(RuntimeError):
    """No guard was preloaded into this process."""


class Guard:
    """libcudaguard.so as it was preloaded into this process. Thread-safe."""

    def __init__(self) -> None:
        """Raises AttributeError if no guard is loaded, or an older one."""
        names = ctypes.CDLL(None)
        self._attempts = names.cudaguard_attempts
        self._watch = names.cudaguard_watch
        self._watch.argtypes = [ctypes.c_char_p]
        self._refuses_contexts = names.cudaguard_refuses_contexts

    def attempts(self) -> int:
        """How often this process has asked for a GPU under FORCE_CPU, or for a context under
        NO_CONTEXT."""
        return int(self._attempts())

    def refuses_contexts(self) -> bool:
        """True under NO_CONTEXT."""
        return bool(self._refuses_contexts())

    def watch(self, report: Optional[str] = None) -> bool:
        """From now on the guard records the first call of each kind again, in the file `report` (a
        full path; None keeps the file, "" is none). Returns False without effect if the policy is
        neither FORCE_CPU nor NO_CONTEXT, and for a file if a rule of /etc/cudaguard.conf has
        report=."""
        return int(self._watch(None if report is None else os.fsencode(report))) >= 0


def find() -> Optional[Guard]:
    """The guard of this process, or None if it has no guard or one that is too old."""
    try:
        return Guard()
    except (AttributeError, OSError):
        return None


def attempts() -> int:
    """How often this process has asked for a GPU under FORCE_CPU, or for a context under NO_CONTEXT.
    Raises NotGuarded."""
    guard = find()
    if guard is None:
        raise NotGuarded("cudaguard is not loaded in this process: start it by `cudaguard run`, or with "
                         "LD_PRELOAD=cudaguard.library()")
    return guard.attempts()
