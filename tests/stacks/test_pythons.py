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
LACKS = {"pypy": {"gil_held", "weak_reference", "finalizing", "subinterpreter"},
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
    def cases(self, path, name, more=None):
        """Returns what the interpreter printed for each case, {name: (pid, rows)}, and the records.
        """
        report = self.path("report.jsonl")
        if os.path.exists(report):
            os.remove(report)
        result = harness.run([path, CASES, CALLS, name], trace=False, cwd="/",
                             env={**interpreters.ENVIRONMENT, **(more or {}),
                                  "CUDAGUARD_REPORT": report})
        self.assertEqual(result.rc, 0, result)
        printed = {}
        for line in result.out.splitlines():
            case, pid, seen = json.loads(line)
            printed[case] = pid, seen
        self.result = result
        return printed, [one for one in harness.records(report) if one.get("api") == "cuInit"]

    def asked_by(self, result, caller):
        self.assertTrue(messages.find(result.err, "no_cuda", cause="FORCE_CPU",
                                      asked_by=re.compile(caller)), result)


class Pythons(Case):
    def compare(self, name, facts, record, seen):
        got, want = rows(record), expected(seen)
        missing = record.get("python_missing")
        self.assertNotEqual(bool(got), bool(missing), (name, record))
        if name in HAS_NONE or not facts.readable():
            self.assertEqual(got, [], (name, record))
        elif name in MAY_LACK:
            self.assertTrue(missing or got == want, (name, record, want))
            if missing == "sub-interpreters":
                self.asked_by(self.result, r"ctypes/cffi \(\S+\) in \S+ cases\.py")
        elif "python" in record.get("cut", ""):
            self.assertTrue(is_cut(got, want), (name, got, want))
        else:
            self.assertEqual(got, want, name)

    def check_message(self, facts, file, line):
        """Checks the message on stderr: it names the user's line, or the program if the stack
        cannot be read."""
        asked = "%s:%d through ctypes/cffi" % (os.path.basename(file), line)
        if not facts.readable():
            asked = r"[^;]+ in python3 cases\.py"
        self.asked_by(self.result, asked)

    def control(self, path):
        unguarded = harness.run([path, CASES, CALLS, "function"], guard=False, trace=False,
                                env=interpreters.ENVIRONMENT)
        self.assertEqual(unguarded.rc, 0, unguarded)
        unguarded.assert_reached(self)


make_pythons = fixtures.lent("pythons", Pythons)


@pytest.mark.parametrize("python", [
    pytest.param(name, marks=pytest.mark.full if name in HERE and REST.match(name) else ())
    for name in sorted({*HERE, *interpreters.QUICK})])
def test_record_has_the_stack_that_python_sees(pythons, python):
    if python not in HERE:
        harness.skip(pythons, "run scripts/fetch-pythons %s %s" % (harness.DEPS, python))
    path = HERE[python]
    facts = interpreters.facts(path)
    lacks = LACKS.get("pypy" if facts.implementation == "pypy" else "%d.%d" % facts.version[:2],
                      set())
    pythons.control(path)
    for words in ("all",) + ALONE if facts.readable() or harness.FULL else ALONE[:1]:
        if words in lacks:
            continue
        printed, records = pythons.cases(path, words)
        assert printed, pythons.result
        if words == "function":
            pythons.check_message(facts, *printed[words][1][0][:2])
        by_process = {record["pid"]: record for record in records}
        assert len(by_process) == len(records), "a process has several records"
        for name, (pid, seen) in printed.items():
            if name not in lacks:
                assert pid in by_process, (name, str(pythons.result))
                pythons.compare(name, facts, by_process[pid], seen)


make_case = fixtures.lent("case", Case)


def test_record_has_the_stack_of_a_cffi_call(case):
    """cffi, Python's other foreign-function library, is called by its own name and by its C module.
    """
    path = HERE["system"]
    if subprocess.run([path, "-c", "import cffi"], stderr=subprocess.DEVNULL).returncode != 0:
        harness.skip(case, "python3-cffi is not installed")
    printed, (record,) = case.cases(path, "by_cffi")
    assert rows(record) == expected(printed["by_cffi"][1])
    assert "through ctypes/cffi" in case.result.err


class Descriptions(harness.DirectoryCase):
    """From 3.13 on, CPython describes its own structures. The guard reads the frames only if the
    description is one that it knows and, for the versions in its table, agrees with the table."""

    def line(self, path, program):
        root = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(path))))
        report = self.path("report.jsonl")
        code = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"
        result = harness.run([program, "-c", code], trace=False,
                             env={"PYTHONHOME": root, "CUDAGUARD_REPORT": report})
        self.assertEqual(result.rc, 0, result)
        record, = harness.records(report)
        os.remove(report)
        return record.get("code"), record.get("python_missing")


make_descriptions = fixtures.lent("descriptions", Descriptions)


# Without one of them, the first is skipped.
@pytest.mark.parametrize(("name", "word", "value"), [
    (name, word, value) for name in [name for name in CHANGES if name in HERE] or ["debian-3.13"]
    for word, value in CHANGES[name].items()])
def test_build_that_does_not_match_is_not_read(descriptions, name, word, value):
    if name not in HERE:
        harness.skip(descriptions, "run scripts/fetch-pythons %s" % harness.DEPS)
    with open(os.path.realpath(HERE[name]), "rb") as stream:
        program = stream.read()
    version = (0x300 | int(name.split(".")[1])).to_bytes(2, "little")
    place = re.search(b"xdebugpy.." + re.escape(version), program, re.DOTALL).start()
    copy = descriptions.path("python3")
    changed = bytearray(program)
    if word is not None:
        at = place + 8 * word
        changed[at:at + 8] = value.to_bytes(8, "little")
    with open(copy, "wb") as stream:
        stream.write(changed)
    os.chmod(copy, 0o755)
    assert descriptions.line(HERE[name], copy) == (("<string>:1", None) if word is None else
                                                   (None, "unknown build of CPython"))


class Embedded(Case):
    """Another program loads Python as a plug-in, so dlsym finds Python's names in no symbol table.
    """

    def run_embedded(self, library, *words):
        if not library:
            harness.skip(self, "no shared libpython (python3-dev)")
        report = self.path("report.jsonl")
        home = os.path.dirname(os.path.dirname(library)) if "/.pyenv/" in library else "/usr"
        result = harness.run([EMBEDS, library, *words], trace=False, cwd="/",
                             env={"CUDAGUARD_REPORT": report, "PYTHONHOME": home})
        self.assertEqual(result.rc, 0, result)
        record, = harness.records(report)
        os.remove(report)
        return result, record


make_embedded = fixtures.lent("embedded", Embedded)


@pytest.mark.parametrize("library", LIBRARIES)
def test_embedded_python_has_its_stack(embedded, library):
    result, record = embedded.run_embedded(library, "-B", CASES, CALLS, "function")
    assert rows(record) == expected(json.loads(result.out)[2])
    embedded.asked_by(result, r"cases\.py:\d+ through ctypes/cffi")


@pytest.mark.parametrize("library", LIBRARIES)
def test_locally_loaded_python_has_its_stack(embedded, library):
    code = "import os, signal\ndef ask():\n    os.kill(os.getpid(), signal.SIGUSR2)\nask()\n"
    _, record = embedded.run_embedded(library, "local", "-c", code)
    assert rows(record) == [["<string>", 3, "ask"], ["<string>", 4, "<module>"]]


@pytest.mark.parametrize(("file", "by"), [("site-packages/outer.py", "outer.py:2"),
                                          ("own.py", "own.py:2")])
def test_named_frame_beyond_the_limit_is_recorded(case, file, by):
    """The record has the frame that the message names, however far out that frame is."""
    inner = case.path("site-packages", "inner.py")
    os.makedirs(os.path.dirname(inner))
    with open(inner, "w", encoding="utf-8") as stream:
        stream.write(
            "import ctypes\ndef ask(depth):\n"
            "    return ask(depth - 1) if depth else ctypes.CDLL('libcuda.so.1').cuInit(0)\n")
    with open(case.path(file), "w", encoding="utf-8") as stream:
        stream.write("import inner\ninner.ask(99)\n")
    report, env = case.path("report"), {"PYTHONPATH": os.path.dirname(inner)}
    words = [HERE["system"], "-B", "-c", "import runpy; runpy.run_path(%r)" % case.path(file)]
    if not by.startswith("own"):
        words[2:] = ["-m", "outer"]
    harness.run(words, guard=False, trace=False, env=env).assert_reached(case)
    result = harness.run(words, trace=False, env={**env, "CUDAGUARD_REPORT": report})
    assert messages.find(result.err, "no_cuda", asked_by=by + " through ctypes/cffi"), str(result)
    record, = harness.records(report)
    os.remove(report)
    assert (len(record["python"]), record["cut"]) == (48, ["python"])
    assert record["python"][-1]["file"] == case.path(file)
    assert {one["file"] for one in record["python"][:-1]} == {inner}


@pytest.mark.parametrize(("how", "missing"), [("load", "unknown build of CPython"),
                                              ("map", "no CPython")])
def test_library_that_is_still_loading_is_not_called(case, how, missing):
    """The guard does not call a library that another thread is still loading."""
    built = os.path.dirname(CALLS)
    library = os.path.join(built, "libpython_none.so")
    # In the control, the library is loaded, and the guard finds it.
    report = case.path(how)
    result = harness.run([os.path.join(built, "half_loaded"), library, how],
                         trace=False, env={"CUDAGUARD_REPORT": report})
    assert result.rc == 0, str(result)
    record, = harness.records(report)
    assert record["python_missing"] == missing


class Extension(Case):
    """A C module holds Python's lock during the call or has released it."""

    def make(self, path):
        """Compiles the module for this interpreter. Returns None if the interpreter's headers are
        missing."""
        ask = "import sysconfig; print(sysconfig.get_path('include'))"
        include = subprocess.run([path, "-c", ask], capture_output=True, text=True,
                                 check=True).stdout.strip()
        if not os.path.exists(os.path.join(include, "Python.h")):
            return None
        source = os.path.join(os.path.dirname(CASES), "extension.c")
        subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-I" + include, source, "-o",
                        self.path("cg_extension.so")], check=True)
        return self.directory


make_extension = fixtures.lent("extension", Extension)


def test_extension_has_its_stack_with_and_without_the_lock(extension):
    tried = 0
    for python, path in HERE.items():
        if REST.match(python) and not harness.FULL or not interpreters.facts(path).readable():
            continue
        directory = extension.make(path)
        for name in ("extension_held", "extension_released") if directory else ():
            tried += 1
            printed, (record,) = extension.cases(path, name, more={"CG_EXTENSION": directory})
            assert rows(record) == expected(printed[name][1]), (python, name)
    if not tried:
        harness.skip(extension, "no interpreter here has its headers (python3-dev)")
