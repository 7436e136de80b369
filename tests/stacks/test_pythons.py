# SPDX-License-Identifier: Apache-2.0
"""On every interpreter of this machine, a record has the Python stack that Python itself sees at
the call. If the guard cannot read the stack, the record says so and the message is unchanged."""

import glob
import json
import os
import re
import subprocess

import pytest

from support import fixtures, harness, interpreters, messages

CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "cases.py")
CALLS = os.path.join(harness.BUILD, "tests", "stacks", "calls.so")
HERE = interpreters.found()
EMBEDS = os.path.join(harness.BUILD, "tests", "stacks", "embeds")
# In these cases, the record may have no rows.
MAY_LACK = {"finalizing", "subinterpreter", "at_exit"}
HAS_NONE = {"foreign_thread"}
# Some Pythons lack these cases.
LACKS = {"pypy": {"gil_held", "finalizing", "subinterpreter"},
         "3.6": {"subinterpreter"}, "3.7": {"subinterpreter"}}
# Another interpreter on this machine covers the same as these pyenv versions.
REST = re.compile(r"pyenv-3\.(6|7|9|11|13)\.")
NO_UNICODE = re.compile("[\ud800-\udfff\ufffd]+")
# In the description of the interpreter: the number of the word, and what it becomes.
CHANGES = {
    "debian-3.13": {None: None, 1: 7, 2: 1, 28 + 1: 16, 34 + 1: 120, 44 + 1: 16, 46 + 3: 176},
    "debian-3.14": {None: None, 0: 7, 31 + 3: 64, 39 + 9: 200, 77 + 3: 48},
    "debian-3.15": {None: None, 1: 0x030e00f0, 2: 1, 22 + 4: 4096, 89 + 2: 24},
}
# Shared libraries of Python. Without one, the tests are skipped.
LIBRARIES = sorted(path for pattern in (
    "~/.pyenv/versions/3.8.*/lib/libpython3.*.so.1.0",
    "~/.pyenv/versions/3.1[0-9].*/lib/libpython3.*.so.1.0",
    "/usr/lib/*-linux-gnu/libpython3.*.so.1.0",
) for path in glob.glob(os.path.expanduser(pattern))) or [None]
ALONE = ("function", "at_exit", "finalizing", "subinterpreter")


def rows(record):
    return [[NO_UNICODE.sub("?", row["file"]), row["line"], row["function"]]
            for row in record.get("python", [])]


def expected(seen):
    """Converts a stack to the form of a record, which replaces what is not Unicode and omits the
    import system's frames, as a traceback does."""
    return [[NO_UNICODE.sub("?", file), line, function] for file, line, function in seen
            if not file.startswith("<frozen importlib")]


def is_cut(got, seen):
    """Returns true if the record has Python's stack from the innermost frame. The last frame may be
    one further out, and long names may be cut."""
    places = [[i for i, want in enumerate(seen) if have[1] == want[1] and
               want[0].startswith(have[0]) and want[2].startswith(have[2])] for have in got]
    return all(i in place for i, place in enumerate(places[:-1])) and bool(places[-1])


class Case(harness.DirectoryCase):
    def run_python(self, words, **env):
        """Returns the run and its records of cuInit."""
        report = self.path("report.jsonl")
        if os.path.exists(report):
            os.remove(report)
        result = harness.run(words, trace=False, cwd="/", env={**env, "CUDAGUARD_REPORT": report})
        self.assertEqual(result.rc, 0, result)
        return result, [one for one in harness.records(report) if one.get("api") == "cuInit"]

    def cases(self, path, name):
        """Returns what the interpreter printed for each case, {name: (pid, rows)}, and the records.
        """
        words = [path, CASES, CALLS, name]
        self.result, records = self.run_python(words, **interpreters.ENVIRONMENT)
        printed = map(json.loads, self.result.out.splitlines())
        return {case: (pid, seen) for case, pid, seen in printed}, records

    def asked_by(self, caller):
        self.assertTrue(messages.find(self.result.err, "no_cuda", cause="FORCE_CPU",
                                      asked_by=re.compile(caller)), self.result)

    def compare(self, name, facts, record, seen):
        got, want = rows(record), expected(seen)
        missing = record.get("python_missing")
        self.assertNotEqual(bool(got), bool(missing), (name, record))
        if name in HAS_NONE or not facts.readable():
            self.assertEqual(got, [], (name, record))
        elif name in MAY_LACK:
            self.assertTrue(missing or got == want, (name, record, want))
            if missing == "sub-interpreters":
                self.asked_by(r"ctypes/cffi \(\S+\) in \S+ cases\.py")
        elif "python" in record.get("cut", ""):
            self.assertTrue(is_cut(got, want), (name, got, want))
        else:
            self.assertEqual(got, want, name)

    def check_message(self, facts, file, line):
        """Checks the message on stderr: it names the user's line, or the program if the stack
        cannot be read."""
        self.asked_by("%s:%d through ctypes/cffi" % (os.path.basename(file), line)
                      if facts.readable() else r"[^;]+ in python3 cases\.py")

    def embedded(self, library, *words):
        """Another program loads Python as a plug-in, so dlsym finds Python's names in no symbol
        table. Returns the record."""
        if not library:
            harness.skip(self, "no shared libpython (python3-dev)")
        home = os.path.dirname(os.path.dirname(library)) if "/.pyenv/" in library else "/usr"
        self.result, (record,) = self.run_python([EMBEDS, library, *words], PYTHONHOME=home)
        return record


make_case = fixtures.lent("case", Case)


@pytest.mark.parametrize("python", [
    pytest.param(name, marks=pytest.mark.full if name in HERE and REST.match(name) else ())
    for name in sorted({*HERE, *interpreters.QUICK})])
def test_record_has_the_stack_that_python_sees(case, python):
    if python not in HERE:
        harness.skip(case, "run scripts/fetch-pythons %s %s" % (harness.DEPS, python))
    path = HERE[python]
    facts = interpreters.facts(path)
    lacks = LACKS.get("pypy" if facts.implementation == "pypy" else "%d.%d" % facts.version[:2],
                      set())
    unguarded = harness.run([path, CASES, CALLS, "function"], guard=False, trace=False,
                            env=interpreters.ENVIRONMENT)
    assert unguarded.rc == 0, str(unguarded)
    unguarded.assert_reached(case)
    for words in ("all",) + ALONE if facts.readable() or harness.FULL else ALONE[:1]:
        if words in lacks:
            continue
        printed, records = case.cases(path, words)
        assert printed, case.result
        if words == "function":
            case.check_message(facts, *printed[words][1][0][:2])
        by_process = {record["pid"]: record for record in records}
        assert len(by_process) == len(records), "a process has several records"
        for name, (pid, seen) in printed.items():
            if name not in lacks:
                assert pid in by_process, (name, str(case.result))
                case.compare(name, facts, by_process[pid], seen)


def test_record_has_the_stack_of_a_cffi_call(case):
    """cffi, Python's other foreign-function library, is called by its own name and by its C module.
    """
    path = HERE["system"]
    if subprocess.run([path, "-c", "import cffi"], stderr=subprocess.DEVNULL).returncode != 0:
        harness.skip(case, "python3-cffi is not installed")
    printed, (record,) = case.cases(path, "by_cffi")
    assert rows(record) == expected(printed["by_cffi"][1])
    assert "through ctypes/cffi" in case.result.err


# Without one of them, the first is skipped.
@pytest.mark.parametrize(("name", "word", "value"), [
    (name, word, value) for name in [name for name in CHANGES if name in HERE] or ["debian-3.13"]
    for word, value in CHANGES[name].items()])
def test_build_that_does_not_match_is_not_read(case, name, word, value):
    """From 3.13 on, CPython describes its own structures. The guard reads the frames only if the
    description is one that it knows and, for the versions in its table, agrees with the table."""
    if name not in HERE:
        harness.skip(case, "run scripts/fetch-pythons %s" % harness.DEPS)
    real = os.path.realpath(HERE[name])
    with open(real, "rb") as stream:
        program = bytearray(stream.read())
    version = (0x300 | int(name.split(".")[1])).to_bytes(2, "little")
    place = re.search(b"xdebugpy.." + re.escape(version), program, re.DOTALL).start()
    if word is not None:
        at = place + 8 * word
        program[at:at + 8] = value.to_bytes(8, "little")
    copy = case.make("python3", bytes(program))
    code = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"
    home = os.path.dirname(os.path.dirname(real))
    _, (record,) = case.run_python([copy, "-c", code], PYTHONHOME=home)
    assert (record.get("code"), record.get("python_missing")) == (
        ("<string>:1", None) if word is None else (None, "unknown build of CPython"))


@pytest.mark.parametrize("library", LIBRARIES)
def test_embedded_python_has_its_stack(case, library):
    record = case.embedded(library, "-B", CASES, CALLS, "function")
    assert rows(record) == expected(json.loads(case.result.out)[2])
    case.asked_by(r"cases\.py:\d+ through ctypes/cffi")


@pytest.mark.parametrize("library", LIBRARIES)
def test_locally_loaded_python_has_its_stack(case, library):
    code = "import os, signal\ndef ask():\n    os.kill(os.getpid(), signal.SIGUSR2)\nask()\n"
    record = case.embedded(library, "local", "-c", code)
    assert rows(record) == [["<string>", 3, "ask"], ["<string>", 4, "<module>"]]


@pytest.mark.parametrize("file", ["site-packages/outer.py", "own.py"])
def test_named_frame_beyond_the_limit_is_recorded(case, file):
    """The record has the frame that the message names, however far out that frame is."""
    inner = case.path("site-packages", "inner.py")
    case.make(inner, "import ctypes\ndef ask(depth):\n"
              "    return ask(depth - 1) if depth else ctypes.CDLL('libcuda.so.1').cuInit(0)\n")
    case.make(file, "import inner\ninner.ask(99)\n")
    words = [HERE["system"], "-B", *(["-m", "outer"] if "outer" in file else
                                     ["-c", "import runpy; runpy.run_path(%r)" % case.path(file)])]
    env = {"PYTHONPATH": os.path.dirname(inner)}
    harness.run(words, guard=False, trace=False, env=env).assert_reached(case)
    case.result, (record,) = case.run_python(words, **env)
    case.asked_by(re.escape(os.path.basename(file)) + ":2 through ctypes/cffi")
    assert (len(record["python"]), record["cut"]) == (48, ["python"])
    assert record["python"][-1]["file"] == case.path(file)
    assert {one["file"] for one in record["python"][:-1]} == {inner}


@pytest.mark.parametrize(("how", "missing"), [([], "unknown build of CPython"),
                                              (["loading"], "no CPython")])
def test_library_that_is_still_loading_is_not_called(case, how, missing):
    """Another thread loads it. In the control, it is loaded, and the guard finds it."""
    built = os.path.dirname(CALLS)
    _, (record,) = case.run_python([os.path.join(built, "half_loaded"),
                                    os.path.join(built, "libpython_none.so"), *how])
    assert record["python_missing"] == missing
