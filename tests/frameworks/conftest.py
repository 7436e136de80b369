# SPDX-License-Identifier: Apache-2.0
"""The fixture of this area's test functions."""

import pytest

from support import harness


@pytest.fixture(name="case")
def make_case():
    """The helpers of harness.Case."""
    yield from harness.lent(harness.Case())
