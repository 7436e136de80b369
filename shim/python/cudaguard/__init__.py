# SPDX-License-Identifier: Apache-2.0
"""cudaguard from Python: its installation, the guard of this process, records of CUDA attempts.

    cudaguard.library()    the path for LD_PRELOAD
    cudaguard.attempts()    the number of CUDA attempts of this process
    python -m cudaguard    the command `cudaguard`

`pytest --cudaguard` is in cudaguard.pytest_plugin. `python -m cudaguard.install_kernel` makes a
Jupyter kernel.
"""

from __future__ import annotations

from cudaguard.guard import NotGuarded, attempts
from cudaguard.installation import NotUsable, launcher, library

__all__ = ["NotGuarded", "NotUsable", "launcher", "library", "attempts"]
