# SPDX-License-Identifier: Apache-2.0
"""On every interpreter of this machine, a record has the Python stack that Python itself sees at
the call. If the guard cannot read the stack, the record says so and the message is unchanged."""

import glob
import json
import os
import re
import subprocess

import pytest

from support import harness, interpreters, messages

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
    def check(self, path):
        facts = interpreters.facts(path)
        lacks = LACKS.get("pypy" if facts.implementation == "pypy" else "%d.%d" % facts.version[:2],
                          set())
        self.control(path)
        for name in ("all",) + ALONE if facts.readable() or harness.FULL else ALONE[:1]:
            if name in lacks:
                continue
            printed, records = self.cases(path, name)
            self.assertTrue(printed, self.result)
            if name == "function":
                self.check_message(facts, *printed[name][1][0][:2])
            by_process = {record["pid"]: record for record in records}
            self.assertEqual(len(by_process), len(records), "a process has several records")
            for case, (pid, seen) in printed.items():
                if case in lacks:
                    continue
                with self.subTest(case=case):
                    self.assertIsNotNone(pid, self.result)
                    self.assertIn(pid, by_process, self.result)
                    self.compare(case, facts, by_process[pid], seen)

    def compare(self, case, facts, record, seen):
        got, want = rows(record), expected(seen)
        missing = record.get("python_missing")
        self.assertNotEqual(bool(got), bool(missing), record)
        if case in HAS_NONE or not facts.readable():
            self.assertEqual(got, [], record)
        elif case in MAY_LACK:
            self.assertTrue(missing or got == want, (record, want))
            if missing == "sub-interpreters":
                self.asked_by(self.result, r"ctypes/cffi \(\S+\) in \S+ cases\.py")
        elif "python" in record.get("cut", ""):
            self.assertTrue(is_cut(got, want), (got, want))
        else:
            self.assertEqual(got, want)

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


class Cffi(Case):
    """cffi, Python's other foreign-function library, is called by its own name and by its C module.
    """

    def test_record_has_the_stack_of_a_cffi_call(self):
        path = HERE["system"]
        if subprocess.run([path, "-c", "import cffi"], stderr=subprocess.DEVNULL).returncode != 0:
            harness.skip(self, "python3-cffi is not installed")
        printed, (record,) = self.cases(path, "by_cffi")
        self.assertEqual(rows(record), expected(printed["by_cffi"][1]))
        self.assertIn("through ctypes/cffi", self.result.err)


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

    def test_build_that_does_not_match_is_not_read(self):
        # The number of the word in the description, and what it becomes.
        changes = {"debian-3.13": {1: 7, 2: 1, 28 + 1: 16, 34 + 1: 120, 44 + 1: 16, 46 + 3: 176},
                   "debian-3.14": {0: 7, 31 + 3: 64, 39 + 9: 200, 77 + 3: 48},
                   "debian-3.15": {1: 0x030e00f0, 2: 1, 22 + 4: 4096, 89 + 2: 24}}
        read = 0
        for name, words in changes.items():
            if name not in HERE:
                continue
            read += 1
            with open(os.path.realpath(HERE[name]), "rb") as stream:
                program = stream.read()
            version = (0x300 | int(name.split(".")[1])).to_bytes(2, "little")
            place = re.search(b"xdebugpy.." + re.escape(version), program, re.DOTALL).start()
            for word, value in {None: None, **words}.items():
                with self.subTest(name, word=word):
                    copy = self.path("python3")
                    changed = bytearray(program)
                    if word is not None:
                        at = place + 8 * word
                        changed[at:at + 8] = value.to_bytes(8, "little")
                    with open(copy, "wb") as stream:
                        stream.write(changed)
                    os.chmod(copy, 0o755)
                    self.assertEqual(self.line(HERE[name], copy),
                                     ("<string>:1", None) if word is None else
                                     (None, "unknown build of CPython"))
        if read == 0:
            harness.skip(self, "run scripts/fetch-pythons %s" % harness.DEPS)


def named(path):
    def test(self):
        self.check(path)

    return test


class Embedded(Case):
    """Another program loads Python as a plug-in, so dlsym finds Python's names in no symbol table.
    """

    def run_embedded(self, library, *words):
        report = self.path("report.jsonl")
        home = os.path.dirname(os.path.dirname(library)) if "/.pyenv/" in library else "/usr"
        result = harness.run([EMBEDS, library, *words], trace=False, cwd="/",
                             env={"CUDAGUARD_REPORT": report, "PYTHONHOME": home})
        self.assertEqual(result.rc, 0, result)
        record, = harness.records(report)
        os.remove(report)
        return result, record

    def test_embedded_python_has_its_stack(self):
        libraries = [path for pattern in (
            "~/.pyenv/versions/3.8.*/lib/libpython3.*.so.1.0",
            "~/.pyenv/versions/3.1[0-9].*/lib/libpython3.*.so.1.0",
            "/usr/lib/*-linux-gnu/libpython3.*.so.1.0",
        ) for path in glob.glob(os.path.expanduser(pattern))]
        if not libraries:
            harness.skip(self, "no shared libpython (python3-dev)")
        code = "import os, signal\ndef ask():\n    os.kill(os.getpid(), signal.SIGUSR2)\nask()\n"
        for library in sorted(libraries):
            with self.subTest(library=library, loaded="RTLD_GLOBAL"):
                result, record = self.run_embedded(library, "-B", CASES, CALLS, "function")
                self.assertEqual(rows(record), expected(json.loads(result.out)[2]))
                self.asked_by(result, r"cases\.py:\d+ through ctypes/cffi")
            with self.subTest(library=library, loaded="RTLD_LOCAL"):
                _, record = self.run_embedded(library, "local", "-c", code)
                self.assertEqual(rows(record),
                                 [["<string>", 3, "ask"], ["<string>", 4, "<module>"]])


class Deep(Case):
    """The record has the frame that the message names, however far out that frame is."""

    def test_named_frame_beyond_the_limit_is_recorded(self):
        inner = self.path("site-packages", "inner.py")
        os.makedirs(os.path.dirname(inner))
        with open(inner, "w", encoding="utf-8") as stream:
            stream.write("import ctypes\ndef ask(depth):\n"
                         "    return ask(depth - 1) if depth else ctypes.CDLL('libcuda.so.1').cuInit(0)\n")
        for file, by in (("site-packages/outer.py", "outer.py:2"), ("own.py", "own.py:2")):
            with self.subTest(file=file), open(self.path(file), "w", encoding="utf-8") as stream:
                stream.write("import inner\ninner.ask(99)\n")
            report, env = self.path("report"), {"PYTHONPATH": os.path.dirname(inner)}
            words = [HERE["system"], "-B", "-c", "import runpy; runpy.run_path(%r)" % self.path(file)]
            if not by.startswith("own"):
                words[2:] = ["-m", "outer"]
            harness.run(words, guard=False, trace=False, env=env).assert_reached(self)
            result = harness.run(words, trace=False, env={**env, "CUDAGUARD_REPORT": report})
            self.assertTrue(messages.find(result.err, "no_cuda",
                                          asked_by=by + " through ctypes/cffi"), result)
            record, = harness.records(report)
            os.remove(report)
            self.assertEqual((len(record["python"]), record["cut"]), (48, ["python"]))
            self.assertEqual(record["python"][-1]["file"], self.path(file))
            self.assertEqual({one["file"] for one in record["python"][:-1]}, {inner})


class HalfLoaded(Case):
    """The guard does not call a library that another thread is still loading."""

    def test_library_that_is_still_loading_is_not_called(self):
        built = os.path.dirname(CALLS)
        library = os.path.join(built, "libpython_none.so")
        # In the control, the library is loaded, and the guard finds it.
        for how, missing in (("load", "unknown build of CPython"), ("map", "no CPython")):
            with self.subTest(how):
                report = self.path(how)
                result = harness.run([os.path.join(built, "half_loaded"), library, how],
                                     trace=False, env={"CUDAGUARD_REPORT": report})
                self.assertEqual(result.rc, 0, result)
                record, = harness.records(report)
                self.assertEqual(record["python_missing"], missing)


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

    def test_extension_has_its_stack_with_and_without_the_lock(self):
        tried = 0
        for name, path in HERE.items():
            if REST.match(name) and not harness.FULL or not interpreters.facts(path).readable():
                continue
            directory = self.make(path)
            for case in ("extension_held", "extension_released") if directory else ():
                with self.subTest(python=name, case=case):
                    tried += 1
                    printed, (record,) = self.cases(path, case, more={"CG_EXTENSION": directory})
                    self.assertEqual(rows(record), expected(printed[case][1]))
        if not tried:
            harness.skip(self, "no interpreter here has its headers (python3-dev)")


def name_of(name):
    return "test_" + re.sub(r"\W", "_", name)


def absent(name):
    return lambda self: harness.skip(self, "run scripts/fetch-pythons %s %s" % (harness.DEPS, name))


for each in HERE:
    run = named(HERE[each])
    setattr(Pythons, name_of(each), pytest.mark.full(run) if REST.match(each) else run)
for each in interpreters.QUICK:
    if each not in HERE:
        setattr(Pythons, name_of(each), absent(each))
