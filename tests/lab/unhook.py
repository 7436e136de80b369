#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a guard whose hook of dlopen is disabled, to show that the lab can fail.

  tests/lab/unhook.py BUILD TARGET

It copies BUILD's bin and lib to TARGET and renames `dlopen` in the copied library's table of
symbols, so that programs get libc's own dlopen. Use it in a clone of the checkout, because the
results of another guard replace those of the checkout:

  git clone . /var/tmp/control && cd /var/tmp/control
  tests/lab/unhook.py CHECKOUT/build/ci build/unhooked
  scripts/lab programs --build build/unhooked --scratch /var/tmp/control-lab

Nearly every row that asks for CUDA must then be "failed", because the guarded program opens
/dev/nvidia*.
"""

import pathlib
import shutil
import sys

NAME = b"\0dlopen\0"
OTHER = b"\0dlOpen\0"


def main():
    build, target = map(pathlib.Path, sys.argv[1:])
    for directory in ("bin", "lib"):
        shutil.copytree(build / directory, target / directory, symlinks=True)
    library = target / "lib/libcudaguard.so"
    text = library.read_bytes()
    if NAME not in text:
        sys.exit(f"unhook: {library} does not export dlopen")
    # The table of symbol names comes before the code's own strings.
    library.write_bytes(text.replace(NAME, OTHER, 1))


if __name__ == "__main__":
    main()
