# SPDX-License-Identifier: Apache-2.0
"""scripts/lab, which CI does not run: each part can be loaded with today's tests/support."""

import importlib

import pytest

from lab import parts


@pytest.mark.parametrize("name", parts.NAMES)
def test_part_can_be_loaded(name):
    assert importlib.import_module("lab." + name).rows
