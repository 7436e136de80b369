# SPDX-License-Identifier: Apache-2.0
"""The fixture of this area's test functions."""

import pytest


@pytest.fixture(name="case")
def make_case():
    """The helpers of guest.Case."""
    from support import guest, harness
    yield from harness.lent(guest.Case())
