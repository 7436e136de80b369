# SPDX-License-Identifier: Apache-2.0
"""The fixture of this area's test functions."""

import pytest

from support import fence, harness


@pytest.fixture(name="case")
def make_case():
    """The helpers of fence.Case."""
    yield from harness.lent(fence.Case())
