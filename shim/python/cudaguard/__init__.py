# SPDX-License-Identifier: Apache-2.0
"""cudaguard from Python: where it is installed, the guard that was preloaded into this process, and
the records of touches.

    cudaguard.library()    the path for LD_PRELOAD
    cudaguard.touches()    how often this process has asked for a GPU
    python -m cudaguard    the command `cudaguard`

`pytest --cudaguard` is in cudaguard.pytest_plugin, `python -m cudaguard.install_kernel` makes a Jupyter kernel.
"""

from __future__ import annotations

from cudaguard.guard import NotGuarded, touches
from cudaguard.installation import NotUsable, launcher, library

__all__ = ["NotGuarded", "NotUsable", "launcher", "library", "touches"]
