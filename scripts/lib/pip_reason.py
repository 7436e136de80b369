# SPDX-License-Identifier: Apache-2.0
"""pip's own words on why it could not download, out of all that it wrote.

As a filter (pip ... 2>&1 | python3 pip_reason.py) or as a module. pip ends with "No matching
distribution found" whatever the reason was; a connection's own is in a warning further up.
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
