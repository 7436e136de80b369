# SPDX-License-Identifier: Apache-2.0
"""Finds the reason in pip's output why pip could not download.

Works as a filter (pip ... 2>&1 | python3 pip_reason.py) or as a module. pip ends with "No matching
distribution found" for every reason. The reason of a failed connection is in an earlier warning.
"""

import re
import sys

REASONS = (
    r"(certificate verify failed[^')]*?)(?: \(_ssl|['\")])",
    r"(Could not find a suitable TLS CA certificate bundle[^\n]*)",
    r"(Failed to establish a new connection: [^'\"\n]*)",
    r"connection broken by '(.*?)': /",
    r"^\s*Could not fetch URL [^\n]*?: ([^\n]*?)(?: - skipping)?$",
    r"^ERROR: (.*)$",
)


def reason(text):
    for pattern in REASONS:
        found = re.search(pattern, text, re.MULTILINE)
        if found:
            return found[1].strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"


if __name__ == "__main__":
    print(reason(sys.stdin.read()))
