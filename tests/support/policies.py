# SPDX-License-Identifier: Apache-2.0
"""The policies, as the rows of policy/policies.h have them."""

from support import built_rows

ROWS = built_rows.ROWS["policies"]
EVERY = [row["name"] for row in ROWS]
# Those under which a program can enter the driver, those of them under which it can also make a
# context, and those that correct an index that is too high.
ALLOWING = [row["name"] for row in ROWS if row["allows"]]
COMPUTING = [row["name"] for row in ROWS if row["allows"] and row["contexts"]]
CLAMPING = [row["name"] for row in ROWS if row["clamps"]]
# For messages: what CUDAGUARD_POLICY accepts, and what a list of GPUs needs.
ACCEPTED = ", ".join(EVERY)
NEEDED = " or ".join(ALLOWING)
