# SPDX-License-Identifier: Apache-2.0
"""python -m cudaguard runs the command `cudaguard` of this environment."""

import os
import sys

from cudaguard.installation import NotUsable, launcher

if __name__ == "__main__":
    try:
        path = launcher()
        os.execv(path, [path, *sys.argv[1:]])
    except (NotUsable, OSError) as error:
        print("cudaguard: %s" % error, file=sys.stderr)
        sys.exit(125)
