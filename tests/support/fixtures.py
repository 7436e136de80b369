# SPDX-License-Identifier: Apache-2.0
"""Fixtures that give a test function the helpers of a test case."""

import pytest

from support import harness


def lent(name, make_case, **how):
    """The fixture `name`, for each test a new case, set up and cleaned up again. `how` is as in
    pytest.fixture."""
    @pytest.fixture(name=name, **how)
    def lend():
        yield from harness.lent(make_case())
    return lend
