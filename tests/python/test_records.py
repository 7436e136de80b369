# SPDX-License-Identifier: Apache-2.0
"""The Python module takes a line for an attempt only if a guard can have written it."""

import json
import os

import pytest
from support import settings

GOOD = {"v": 1, "pid": 7, "api": "cuInit", "decision": "deny",
        "python": [{"file": "/a.py", "line": 3, "function": "f"}]}


@pytest.fixture(name="parse")
def fixture_parse(monkeypatch):
    monkeypatch.syspath_prepend(os.path.join(settings.SOURCE, "shim", "python"))
    from cudaguard import records
    return lambda record: records.parse(json.dumps(record).encode())


def test_attempt_is_read(parse):
    assert parse(GOOD).frames == [("/a.py", 3, "f")]


@pytest.mark.parametrize("change", [
    {"v": 2}, {"pid": 0}, {"pid": -1}, {"pid": None}, {"decision": "allow"}, {"python": [{}]},
    {"python": ["/a.py"]}, {"python": [{"file": "/a.py", "line": "x", "function": "f"}]},
], ids=json.dumps)
def test_other_line_is_no_attempt(parse, change):
    assert parse({**GOOD, **change}) is None
