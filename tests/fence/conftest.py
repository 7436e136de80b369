# SPDX-License-Identifier: Apache-2.0
"""The fixture of this area's test functions."""

import pytest


@pytest.fixture(name="case")
def make_case():
    """The helpers of fence.Case."""
    from support import fence, harness
    yield from harness.lent(fence.Case())
