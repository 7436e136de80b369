# SPDX-License-Identifier: Apache-2.0
"""python -m cudaguard.install_kernel runs share/cudaguard/jupyter/install-kernel by this Python."""

import os
import runpy
import sys

from cudaguard.installation import NotUsable, prefix

if __name__ == "__main__":
    try:
        script = os.path.join(prefix(), "share", "cudaguard", "jupyter", "install-kernel")
    except NotUsable as error:
        sys.exit("install-kernel: %s" % error)
    runpy.run_path(script, run_name="__main__")
