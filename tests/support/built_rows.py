# SPDX-License-Identifier: Apache-2.0
"""The rows from which options, variables and words come: the build prints them."""

import json
import os
import subprocess

from support import settings


def _rows():
    program = os.path.join(settings.BUILD, "tests", "launcher", "print_rows")
    words = [settings.RUNNER, program] if settings.RUNNER else [program]
    return json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)


ROWS = _rows()
# A kind of attempt: the record's word for it, that of --deny, and its name in messages.
ATTEMPTS = ROWS["attempts"]
DENIED = [row["denied"] for row in ATTEMPTS]


def words_of(command, name):
    """What the completion offers as the value of an option."""
    rows = next(row["options"] for row in ROWS["commands"] if row["name"] == command)
    return next(row["words"] for row in rows if row["name"] == name).split(", ")
