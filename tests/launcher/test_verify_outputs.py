# SPDX-License-Identifier: Apache-2.0
"""What verify prints and writes: the block, JSON, JUnit, the page.

pytest --write-golden rewrites golden/verify.txt."""

import json
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree

import pytest

from support import built_rows, fixtures, harness, launcher, recorded, verified
from support.verified import record

try:
    import junitparser
except ImportError:
    junitparser = None

PACKAGES = "/opt/venv/lib/python3.11/site-packages/"
SOURCE = ('import torch\n\n\ndef main():\n    device = torch.device("cuda" if '
          'torch.cuda.is_available() and args.cuda else "cpu")\n\n\nmain()\n')


def frame(file, line, function):
    return {"file": file, "line": line, "function": function}


class Case(verified.Case):
    def setUp(self):
        super().setUp()
        self.make("ppo.py", SOURCE)

    def torch(self, **more):
        """The record of an attempt by PyTorch, asked by ppo.py."""
        library = PACKAGES + "torch/lib/"
        fields = {"command": ("/usr/bin/python3", "ppo.py"),
                  "caller": library + "libcudart.so.12+0x332e1",
                  "library": "libc10_cuda.so", "code": "ppo.py:5", "python": [
                      frame(PACKAGES + "torch/cuda/__init__.py", 118, "is_available"),
                      frame(self.path("ppo.py"), 5, "main"),
                      frame(self.path("ppo.py"), 8, "<module>")],
                  "native": [library + "libcudart.so.12+0x332e1", library + "libc10_cuda.so+0x52c7a",
                             library + "libtorch_python.so+0xc927b3", "/usr/bin/python3.11+0x11f62b"]}
        return record(**{**fields, **more})

    def document(self, text, options=(), rc=1):
        path = self.path("out.json")
        result = self.forged(text, ["--json", path, *options], cwd=self.directory)
        self.ends(result, rc)
        return json.loads(harness.read(path))


class Block(Case):
    def block(self, text, options=(), rc=1):
        block = self.ends(self.forged(text, options, cwd=self.directory), rc)
        return re.sub(r"\d+ seen\)", "N seen)", block)

    def test_text_matches_the_golden_file(self):
        deep = [frame(PACKAGES + "lib/mod.py", 100 - n, "call_%d" % n) for n in range(40)]
        deep += [frame(self.path("ppo.py"), 8, "<module>")]
        nvml = record(9, "nvmlInit_v2", ("monitor",), "/usr/bin/monitor+0x1139",
                      python_missing="no CPython")
        texts = []
        for title, text, options, rc in (
                ("one may", self.torch(pid=7) + self.torch(pid=8, command=("python3", "train.py")),
                 ["--allow=train.py"], 1),
                ("all may, and NVML", self.torch(pid=7) + nvml, ["--allow=ppo.*"], 0),
                ("a deep stack", self.torch(python=deep, code="ppo.py:8"), [], 1),
                ("no Python stack", self.torch(
                    python=None, code=None, python_missing="a sub-interpreter"), [], 1),
                ("a library", record(7, "dlopen", asked="opencl", object="/x/libnvidia-opencl.so.1"),
                 ["--deny=opencl"], 1),
                ("records that are none", nvml[:200] + nvml + "nothing\n",
                 ["--deny=nvml,init"], 1)):
            text = text.replace('"python":null,', "").replace('"code":null,', "")
            texts.append("# %s: %s\n%s" % (title, " ".join(options), self.block(text, options, rc)))
        self.same_as_golden("verify.txt", "\n".join(texts))

    def test_paths_of_packages_are_shortened(self):
        """A path in the standard library or a package keeps the part that distinguishes it."""
        lib = "/root/.pyenv/versions/3.11.7/lib/python3.11/"
        block = self.block(self.torch(python=[
            frame(lib + "site-packages/torch/cuda/__init__.py", 118, "is_available"),
            frame(lib + "multiprocessing/process.py", 108, "run"),
            frame("/usr/lib64/python3.14t/runpy.py", 8, "_run_code"),
            frame("/x/ppo.py", 8, "<module>")], code="ppo.py:8"))
        for row in ("torch/cuda/__init__.py:118 in is_available", "> /x/ppo.py:8 in <module>",
                    "python3.11/multiprocessing/process.py:108 in run",
                    "python3.14t/runpy.py:8 in _run_code"):
            self.assertRegex(block, r"(?m)^(    python  |            ) %s$" % re.escape(row))

    def test_block_marks_the_line_of_the_message(self):
        library = frame("/usr/lib/python3.11/threading.py", 995, "run")
        package = frame(PACKAGES + "torch/utils/collect_env.py", 952, "<module>")
        block = self.block(self.torch(python=[library]).replace('"code":"ppo.py:5",', ""))
        self.assertNotIn("> python3.11", block)
        self.assertIn("    python   python3.11/threading.py:995 in run\n", block)
        self.assertIn("\n  libc10_cuda.so\n", block)
        block = self.block(self.torch(python=[package, library],
                                      code="torch/utils/collect_env.py:952"))
        self.assertIn("\n  torch/utils/collect_env.py:952 in <module>\n", block)
        self.assertIn(" > torch/utils/collect_env.py:952 in <module>\n", block)
        cells = [frame("/tmp/ipykernel_7/28.py", line, name) for line, name in ((3, "f"), (6, "g"))]
        block = self.block(self.torch(python=[package, *cells], code="notebook cell, line 3"))
        self.assertIn("\n  notebook cell, line 3\n", block)
        self.assertIn(" > /tmp/ipykernel_7/28.py:3 in f\n", block)

    def test_frame_with_an_unreadable_source_has_its_place_alone(self):
        os.mkfifo(self.path("fifo.py"))
        for file in (self.path("none.py"), self.path("fifo.py"), self.directory, "/dev/zero", "<string>",
                     "", self.path("ppo.py")):
            block = self.block(self.torch(python=[frame(file, 4000000000, "f")],
                                          code=os.path.basename(file) + ":4000000000"))
            self.assertRegex(block, r"(?m)^  (?! ).*:4000000000 in f$")

    def test_block_cuts_no_process_id(self):
        block = self.block("".join(self.torch(pid=pid) for pid in range(1001, 1101, 2)))
        self.assertRegex(block, r"(?m)^    process  50x python3 ppo.py \((\d{4} )+\.\.\.\)$")

    def test_block_quotes_the_text_of_python_c(self):
        block = self.block(self.torch(command=("python3", "-c", "import torch\nuse(1)"),
                                      python=[frame("<string>", 2, "<module>")],
                                      code="<string>:2"))
        self.assertIn("\n  <string>:2 in <module>\n      use(1)\n", block)

    def test_block_quotes_no_other_value_of_an_option_c(self):
        for words in (("python3", "train.py"), ("python3", "-m", "tool"), ("vim", "-es"),
                      ("python3", "-"), ("python3", "/dev/fd/63")):
            block = self.block(self.torch(command=(*words, "-c", "import torch\nuse(1)"),
                                          python=[frame("<string>", 2, "<module>")],
                                          code="<string>:2"))
            self.assertIn("\n  <string>:2 in <module>\n    asked ", block, words)


make_case = fixtures.lent("case", Block)


@pytest.mark.parametrize(("name", "shown"), [
    ("a\x1b[31m.py", "a?[31m.py"), ("a\nb.py", "a?b.py"), ("gr\u00f6\u00dfe.py", "gr\u00f6\u00dfe.py"),
    ("a\u202eb.py", "a?b.py"), ("\u6f22.py", "\u6f22.py"), ("x" * 300 + ".py", None)])
def test_names_are_made_printable(case, name, shown):
    """The terminal gets no escape, no newline and nothing that turns the text."""
    text = case.torch(python=[frame("/x/" + name, 3, "f\x07\"<&>"), frame("/x/" + name, 4, name)],
                      code=name + ":3", command=("python3", "/x/" + name))
    block = case.block(text)
    if shown:
        assert "> /x/%s:3 in f?\"<&>" % shown in block


def test_line_of_the_source_is_made_printable(case):
    case.make("latin.py", b"#\n\td\xe4ta = '\x1b[31m'  \r\n")
    block = case.block(case.torch(python=[frame(case.path("latin.py"), 2, "f")], code="latin.py:2"))
    assert "\n      d?ta = '?[31m'\n" in block


def test_unreadable_files_have_no_symbols(case):
    """test_rust_names.py and tests/stacks/test_callers.py have those of readable files."""
    damaged = case.make("damaged.so", b"\x7fELF\x02\x01\x01" + b"\xff" * 200)
    os.mkfifo(case.path("fifo.so"))
    for path in (damaged, case.path("none.so"), case.path("fifo.so"), case.directory, "/dev/zero",
                 "", "relative.so", case.path("ppo.py")):
        call = path + "+0x40"
        document = case.document(record(caller=call, native=[call], python_missing="x"))
        assert document["calls"][0]["native"][0]["symbol"] is None, path


@pytest.mark.parametrize("name", ["verify", "report"])
def test_schema_has_the_kinds_of_attempts(name):
    schema = recorded.schema("launcher", "print", name + ".schema.json")
    kinds = schema["$defs"]["asked"]["enum"]
    assert kinds == [row["asked"] for row in built_rows.ATTEMPTS]


class Json(Case):
    def valid(self, document):
        self.validates(document, "launcher", "print", "verify.schema.json")
        return document

    def test_document_follows_the_schema(self):
        for text, options, rc in (("", [], 0), (self.torch(), [], 1),
                                  (self.torch() + self.torch(pid=8), ["--allow=ppo.py"], 0),
                                  (self.torch(api="nvmlInit", asked="nvml"), ["--deny=nvml"], 1),
                                  (self.torch(decision="allow", event="init", result=0), [], 1),
                                  (self.torch()[:90], [], 3)):
            document = self.valid(self.document(text, options, rc))
            self.assertEqual(document["exit_code"], rc)
            self.assertEqual(document["asked"], rc == 1)
        bad = dict(document, verdict="maybe")
        self.assertRaises(AssertionError, self.valid, bad)

    def test_document_has_whole_stacks(self):
        """The text cuts them."""
        document = self.valid(self.document(self.torch(
            python=[frame(self.path("ppo.py"), 5, "f%d" % n) for n in range(60)])))
        site = document["calls"][0]
        self.assertEqual(len(site["python"]), 60)
        self.assertEqual(site["python"][59], {
            "file": self.path("ppo.py"), "line": 5, "function": "f59",
            "source": SOURCE.splitlines()[4].strip()})
        self.assertEqual((site["line"], site["library"]), ("ppo.py:5", "libc10_cuda.so"))
        self.assertEqual([document["processes"][place]["pid"] for place in site["forbidden"]], [7])

    def test_start_and_attempt_make_one_process(self):
        """The start record does not have the host, the record of the attempt does."""
        path = self.path("a.json")
        self.ends(self.steps(["fork=f", "cu.init", "end", "cu.init"], ["--json", path]), 1)
        processes = self.valid(json.loads(harness.read(path)))["processes"]
        self.assertEqual([process["asked"] for process in processes], [True, True])
        self.assertEqual([process["host"] for process in processes], [os.uname().nodename] * 2)
        self.assertEqual([bool(process["started"]) for process in processes], [True, False])

    def test_document_has_the_programs_exit_code_or_signal(self):
        for script, code, signal in (("exit 3", 3, None), ("kill -9 $$", None, 9), ("true", 0, None)):
            path = self.path("a.json")
            result = self.verify(["sh", "-c", script], ["--json", path])
            self.assertEqual(result.rc, 0 if code == 0 else 2, result)
            document = self.valid(json.loads(harness.read(path)))
            self.assertEqual(document["program"], {"exit_code": code, "signal": signal})
            self.assertEqual(document["command"], ["sh", "-c", script])

    def test_bytes_that_are_not_utf8_become_fffd(self):
        """The bytes are on the command line."""
        path = self.path("a.json")
        subprocess.run([*map(os.fsencode, verified.VERIFY), b"--json", os.fsencode(path), b"true",
                        b"\xff\xe4", "\u6f22\n".encode()], check=True, stderr=subprocess.DEVNULL)
        document = self.valid(json.loads(harness.read(path)))
        self.assertEqual(document["command"], ["true", "\ufffd\ufffd", "\u6f22\n"])


class JUnit(Case):
    def suite(self, words, rc, options=()):
        path = self.path("junit.xml")
        return self.read(self.verify(words, ["--junit", path, *options]), rc, path)

    def read(self, result, rc, path):
        self.ends(result, rc)
        root = xml.etree.ElementTree.parse(path).getroot()
        self.assertEqual([one.tag for one in root], ["testsuite"])
        suite = root[0]
        cases = {case.get("name"): case for case in suite.iter("testcase")}
        self.assertEqual(int(suite.get("tests")), len(cases))
        for kind in ("failure", "error", "skipped"):
            number = int(suite.get({"failure": "failures", "error": "errors"}.get(kind, kind)))
            self.assertEqual(number, len(list(suite.iter(kind))), kind)
        self.assertRegex(suite.get("timestamp"), r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\Z")
        self.assertTrue(suite.get("hostname"))
        self.accepted(path, cases)
        return {name: [(child.tag, child.get("message")) for child in case]
                for name, case in cases.items()}

    def accepted(self, path, cases):
        """By other people's reader as well, where it is installed."""
        if junitparser is None:
            return
        suites = list(junitparser.JUnitXml.fromfile(path))
        self.assertEqual([case.name for suite in suites for case in suite], list(cases))
        self.assertEqual(suites[0].tests, len(cases))

    def test_junit_has_one_test_for_each_condition(self):
        no_attempt, succeeds, guarded = ("no process asks for CUDA", "the program succeeds",
                                         "every process is guarded")
        clean = self.suite(["true"], 0)
        self.assertEqual(clean, {no_attempt: [], succeeds: [], guarded: []})
        failed = self.suite(["sh", "-c", "exit 3"], 2)
        self.assertEqual(failed[succeeds], [("failure", "ended with exit code 3")])
        self.assertEqual(failed[no_attempt], [])
        path = self.path("attempted.xml")
        attempted = self.read(self.forged(self.torch(), ["--junit", path]), 1, path)
        self.assertEqual(attempted[no_attempt][0][0], "failure")
        self.assertIn("1 line asked for CUDA", attempted[no_attempt][0][1])
        self.assertEqual(attempted[succeeds], [])
        self.assertIn("no process asks for CUDA or NVML",
                      self.suite(["true"], 0, ["--deny=init", "--deny=nvml"]))

    def test_junit_has_the_account_of_starts(self):
        """What is known stays known if something is in doubt."""
        guarded = "every process is guarded"
        directory = self.path("a directory" * 9)  # the file is named at the end of its path
        os.mkdir(directory)
        static = shutil.copy(launcher.program("static_0"), directory)
        known = "2 programs started: 1 guarded, 1 unguarded: %s (static)" % static
        words = ["sh", "-c", '"$0"; exit 0', static]
        self.assertEqual(self.suite(words, 0)[guarded], [("skipped", known)])
        [(kind, message)] = self.suite(words, 3, ["--strict"])[guarded]
        self.assertEqual(kind, "skipped")
        self.assertTrue(message.startswith(known + "; in doubt: " + static), message)
        [(kind, message)] = self.suite(words, 3, ["--fence=off"])[guarded]
        self.assertTrue(message.startswith("not known; in doubt: "), message)

    def test_junit_has_no_control_characters(self):
        """XML 1.0 has no place for them."""
        self.suite(["sh", "-c", "exit 3", "a\x01\x1b[31m\x7f\n\t<&>\"']]>\u00e4\ufffe"], 2)
