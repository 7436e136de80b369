# SPDX-License-Identifier: Apache-2.0
"""The Python module reads records."""

import json
import os

import pytest
from support import settings

GOOD = {"v": 1, "pid": 7, "api": "cuInit", "decision": "deny",
        "python": [{"file": "/a.py", "line": 3, "function": "f"}]}


@pytest.fixture(name="records")
def fixture_records(monkeypatch):
    monkeypatch.syspath_prepend(os.path.join(settings.SOURCE, "shim", "python"))
    from cudaguard import records
    return records


@pytest.fixture(name="parse")
def fixture_parse(records):
    return lambda record: records.parse(json.dumps(record).encode())


@pytest.mark.parametrize("pid", [1, 7])  # 1: a container's first process
def test_attempt_is_read(parse, pid):
    assert parse({**GOOD, "pid": pid}).frames == [("/a.py", 3, "f")]


@pytest.mark.parametrize("change", [
    {"v": 2}, {"pid": 0}, {"pid": -1}, {"pid": None}, {"decision": "allow"}, {"python": [{}]},
    {"python": ["/a.py"]}, {"python": [{"file": "/a.py", "line": "x", "function": "f"}]},
    {"python": [{"file": "/a.py", "line": float("inf"), "function": "f"}]},
], ids=json.dumps)
def test_other_line_is_no_attempt(parse, change):
    assert parse({**GOOD, **change}) is None


def test_path_stays_whole_without_a_working_directory(records, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert records.short_path(str(tmp_path / "a.py")) == "a.py"
    tmp_path.rmdir()
    assert records.short_path("/x/a.py") == "/x/a.py"


def test_table_and_the_cuinit_that_follows_are_one_attempt(records, parse):
    def without(*calls):
        attempts = [parse({**GOOD, "api": api, "pid": pid}) for api, pid in calls]
        return [attempts.index(one) for one in records.without_tables(attempts)]

    table, init = ("cuGetExportTable", 7), ("cuInit", 7)
    assert without(table, init) == [1]
    assert without(table, ("nvmlInit", 7), table, init) == [1, 3]
    assert without(init, table) == [0, 1]
    assert without(table, ("cuInit", 8)) == [0, 1]
    assert without(table) == [0]


@pytest.mark.parametrize("change", [{"library": "libother.so"}, {"code": "other.py:9"}])
def test_table_of_another_asker_stays(records, parse, change):
    """cudaguard_allow may accept the one and not the other."""
    attempts = [parse({**GOOD, "api": "cuGetExportTable"}), parse({**GOOD, "api": "cuInit", **change})]
    assert records.without_tables(attempts) == attempts


@pytest.mark.parametrize(("change", "words"), [
    ({"code": "a.py:3", "line_frame": 0}, "/a.py:3 through x"),
    ({"code": "plot.py", "line_frame": 0,
      "python": [{"file": "/x/plot.py", "line": 0, "function": "f"}]}, "/x/plot.py through x"),
    ({"code": "cu.lsp", "python": []}, "cu.lsp through x"),
    ({"python": [], "started_by": "python3 app.py"}, "x, started by python3 app.py"),
])
def test_headline_names_what_is_known(records, parse, change, words):
    attempt = parse({**GOOD, "library": "x", **change})
    assert records.headline(attempt, True) == "CUDA was asked for by %s (cuInit)" % words
    assert records.story(attempt, True).startswith(records.headline(attempt, True))
