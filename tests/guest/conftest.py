# SPDX-License-Identifier: Apache-2.0
"""The fixture of this area's test functions."""

import pytest

from support import guest, harness


@pytest.fixture(name="case")
def make_case():
    """The helpers of guest.Case."""
    yield from harness.lent(guest.Case())
