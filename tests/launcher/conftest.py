# SPDX-License-Identifier: Apache-2.0
"""The fixture of this area's test functions."""

import pytest

from support import harness, launcher


@pytest.fixture(name="case")
def make_case():
    """The helpers of launcher.Case."""
    yield from harness.lent(launcher.Case())
