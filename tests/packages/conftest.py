# SPDX-License-Identifier: Apache-2.0
"""The fixture of this area's test functions."""

import pytest


@pytest.fixture(name="case")
def make_case():
    """The helpers of packaged.Case."""
    from support import harness, packaged
    yield from harness.lent(packaged.Case())
