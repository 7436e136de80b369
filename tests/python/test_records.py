# SPDX-License-Identifier: Apache-2.0
"""The Python module reads records."""

import json
import os

import pytest

from support import built_rows, recorded, settings

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
    {"python": [{"file": "/a.py", "line": float("inf"), "function": "f"}]}, {"pid": "x"},
    {"decision": None, "event": "start"},
], ids=json.dumps)
def test_other_line_is_no_attempt(parse, change):
    assert parse({**GOOD, **change}) is None


def test_what_is_no_record_is_no_attempt(records):
    for line in b"\n", b"{}\n", b"[]\n", b"7\n", b"\xff\xfe\n":
        assert records.parse(line) is None, line
    # The record follows a piece of a record whose writer was killed.
    assert records.parse(
        b'{"v":1,"ts":12.5,"pid":{"v":1,"pid":8,"api":"cuInit","decision":"deny"}\n').pid == 8


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


@pytest.fixture(name="attempt")
def fixture_attempt(parse):
    record = {"v": 1, "pid": 7, "argv": ["python3", "ppo.py"], "api": "cuInit",
              "decision": "deny", "caller": "/usr/lib/libffi.so.8+0x1"}
    return lambda **fields: parse(recorded.with_line_frame({**record, **fields}))


def test_headline_names_the_users_line(records, attempt):
    package = recorded.PACKAGES + "torch/cuda/__init__.py"
    frames = [{"file": package, "line": 118, "function": "is_available"},
              {"file": "/home/u/ppo.py", "line": 159, "function": "main"},
              {"file": "/home/u/run.py", "line": 3, "function": "<module>"}]
    one = attempt(python=frames, library="libc10_cuda.so", code="ppo.py:159")
    assert records.headline(one, True) == ("CUDA was asked for by /home/u/ppo.py:159 through "
                                           "libc10_cuda.so (cuInit)")
    assert "  > /home/u/ppo.py:159 in main" in records.story(one, True)
    one = attempt(python=frames, library="ctypes/cffi", code="torch/cuda/__init__.py:118")
    assert records.headline(one, False) == (
        "CUDA was asked for by %s:118 through ctypes/cffi (cuInit) in process 7: python3 ppo.py" %
        package)
    # The path of a cell's file means nothing to a reader.
    cell = {"file": "/tmp/ipykernel_7/28.py", "line": 3, "function": "<module>"}
    one = attempt(python=[cell], library="libffi.so.8", code="notebook cell, line 3")
    assert records.headline(one, True) == (
        "CUDA was asked for by notebook cell, line 3 through libffi.so.8 (cuInit)")
    assert "Python stack: no frames" in records.story(attempt(python_missing="no frames"), True)


def test_headline_without_a_line_names_the_library(records, attempt):
    frames = [{"file": "/usr/lib/python3.11/threading.py", "line": 995, "function": "run"}]
    one = attempt(python=frames, library="ctypes/cffi")
    assert (one.library, one.code, one.line()) == ("ctypes/cffi", "", None)
    assert records.headline(one, True) == "CUDA was asked for by ctypes/cffi (cuInit)"
    assert "\n  >" not in records.story(one, True)


@pytest.mark.parametrize("pattern", ["lib:*", "line:*", "module:*"])
def test_pattern_matches_no_unknown_code(records, attempt, pattern):
    """tests/vectors has the others."""
    unknown = attempt()._replace(library="")
    assert records.not_allowed([unknown], [pattern]) == [unknown]


def test_record_says_the_kind_and_whether_the_library_passes_calls_on(attempt):
    for asked, kind in (*((row["asked"], row["denied"]) for row in built_rows.ATTEMPTS),
                        ("other", "init"), (7, "init")):
        assert attempt(asked=asked).kind == kind
    for value in (True, False, 1, "true", None):
        assert attempt(passes_on=value).passes_on == (value is True)


def test_output_has_no_terminal_control_characters(records, attempt):
    one = attempt(argv=["a\x1b[31m\n"], caller="/x/lib\x9b\u202ey.so+0x1",
                  python=[{"file": "/x\x1b.py", "line": 1, "function": "\r"}])
    for text in (records.headline(one, False), records.story(one, False)):
        assert all(c.isprintable() or c == "\n" for c in text), repr(text)


def test_output_has_the_joiners_of_names(records):
    for name in "می\u200cخواهم.py", "👩\u200d💻.py":
        assert records.shown(name) == name
