# SPDX-License-Identifier: Apache-2.0
"""The fixture of this area's test functions."""

import pytest


@pytest.fixture(name="case")
def make_case():
    """The helpers of harness.Case."""
    from support import harness
    yield from harness.lent(harness.Case())
