# SPDX-License-Identifier: Apache-2.0
"""pytest's plug-in decides as `verify` does: tests/vectors/decisions.json has records, patterns,
the records that fail, what the remedy allows, patterns that allow all of these records, and
patterns that allow none. tests/unit/vectors_test.cpp asks `verify` the same."""

import json
import locale
import os
import shlex
import types

import pytest
from support import settings

PACKAGES = os.path.join(settings.SOURCE, "shim", "python")
VECTORS = json.loads(settings.read("tests", "vectors", "decisions.json"))


@pytest.fixture(params=["C", "C.UTF-8"])
def any_locale(request):
    """The answer must not depend on the program's locale."""
    before = locale.setlocale(locale.LC_ALL)
    locale.setlocale(locale.LC_ALL, request.param)
    yield
    locale.setlocale(locale.LC_ALL, before)


@pytest.mark.usefixtures("any_locale")
def test_plugin_decides_as_written(monkeypatch):
    monkeypatch.syspath_prepend(PACKAGES)
    from cudaguard import pytest_plugin, records
    assert len(VECTORS) > 40
    for vector in VECTORS:
        attempts = [records.parse(json.dumps(record).encode()) for record in vector["records"]]
        decisions = [(vector["allow"], vector["fail"])]
        decisions += [([pattern], []) for pattern in vector.get("allowed_by", [])]
        decisions += [([pattern], vector["fail"]) for pattern in vector.get("not_by", [])]
        for allowed, fail in decisions:
            options = types.SimpleNamespace(denied=vector["deny"], allowed=allowed)
            bad = pytest_plugin.Watcher.bad(options, [one for one in attempts if one is not None])
            failing = [i for i, attempt in enumerate(attempts) if attempt in bad]
            assert failing == fail, (vector["name"], allowed)
        if "accept" in vector:
            said = shlex.split(records.remedy(attempts).partition(", or ")[0])
            assert said[3:] == [word for pattern in vector["accept"]
                                for word in ("--cudaguard-allow", pattern)], vector["name"]
