# SPDX-License-Identifier: Apache-2.0
"""What stands for the user's line if no frame can be read: an interpreter's script, and what has
started a tool. The file of a library that was unpacked into a temporary file has a lasting name.
tests/unit/program_test.cpp has more commands."""

import os
import re
import shutil
import sys

import pytest

from support import fixtures, harness, messages, named, verified

PLAIN = os.path.join(harness.BUILD, "tests", "stacks", "plain")
SOURCE = os.path.join(harness.SOURCE, "tests", "stacks", "programs", "plain.c")


class Case(named.Case):
    def setUp(self):
        super().setUp()
        if not os.path.exists(PLAIN):
            harness.skip(self, "built without tests/stacks")
        self.write({"cu.x": "", "data/other.x": "", "app.jar": ""})

    def copy(self, name):
        """Returns a program of this name that asks for CUDA."""
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        return shutil.copy(PLAIN, self.path(name))

    def verify(self, *words, options=(), rc=1):
        """Returns verify's output, and the names of the places."""
        result, document = verified.documented(self, words, options, cwd=self.directory)
        self.assertEqual(result.rc, rc, result)
        return result.err, [one["name"] for one in document["places"]]

    def check(self, words, asked_by, place=None, allow=None):
        """Fails unless the message has `asked_by`, verify names the place, otherwise the same, and
        --allow takes the pattern. The unguarded program reaches the driver."""
        harness.run(words, guard=False, trace=False, cwd=self.directory).assert_reached(self)
        result = harness.run(words, world="none", trace=False, cwd=self.directory)
        found, = messages.find(result.err, "no_cuda")
        self.assertEqual(found["asked_by"], asked_by, result)
        err, places = self.verify(*words)
        self.assertEqual(places, [place or asked_by], err)
        self.assertIn("\n  %s\n" % (place or asked_by), err)
        self.assertIn("FAIL: 1 place asked", err)
        if allow:
            self.assertIn("PASS", self.verify(*words, options=["--allow", allow], rc=0)[0])


make_case = fixtures.lent("case", Case)


@pytest.mark.parametrize(("words", "script"), [
    (["deno", "run", "--allow-all", "data/../cu.x"], "cu.x"), (["newlisp", "cu.x"], "cu.x"),
    (["gp", "-q", "cu.x", "data/other.x"], "cu.x"), (["R", "--no-echo", "--file=cu.x"], "cu.x"),
    (["java", "-Xmx1g", "-jar", "app.jar"], "app.jar"), (["clisp", "-q", "cu.x"], "cu.x"),
    (["python2.7", "-u", "none.py"], "none.py"), (["tcsh", "-f", "cu.x"], "cu.x")])
def test_script_stands_for_the_line(case, words, script):
    name = words[0]
    case.check([case.copy(name), *words[1:]], "%s in %s %s" % (name, name, script), script,
               "line:" + script)


@pytest.mark.parametrize(("words", "asked_by"), [
    ("gp data", "gp in gp"), ("java -cp x.jar Main", "java in java"),
    ("python2.7 -c x", "python2.7 in python2.7"), ("gpt cu.x", "gpt")])
def test_program_without_a_script_is_named_alone(case, words, asked_by):
    """The user types the command. Arguments of a program that is no interpreter are not shown."""
    name, *words = words.split()
    case.typed(" ".join([case.copy(name), *words]), asked_by)
    assert case.verify(case.path(name), *words)[1] == [name]


@pytest.mark.parametrize("words", ["ruby -e x", "php -r x", "perl -we x", "node <cu.x",
                                   "python2.7 -c x", "julia -e x", "java -cp x.jar Main"])
def test_code_that_is_in_no_file_is_named_with_its_starter(case, words):
    """The script that has the code is what the reader can open."""
    name = words.partition(" ")[0]
    case.copy(name)
    case.write({"t.sh": "./%s\ntrue\n" % words})
    case.check(["bash", "t.sh"], "%s in %s, started by bash t.sh" % (name, name),
               name + ", started by bash t.sh")


def test_source_of_an_interpreter_is_no_line(case):
    """The interpreter has debug information, as Debian's python2.7-dbg."""
    case.need("gcc", "addr2line")
    case.compile("tool", SOURCE, "-g", "-O0", "-ldl")
    assert "\n  plain.c:8\n" in case.verify(case.path("tool"))[0]
    shutil.copy(case.path("tool"), case.path("python2.7"))
    for words, place in (["cu.x"], "cu.x"), (["-c", "x"], "python2.7"):
        err, places = case.verify(case.path("python2.7"), *words)
        assert places == [place] and "> " not in err, err


@pytest.mark.parametrize(("command", "starter"), [
    ("os.system(TOOL + ' | cat')", "python3 app.py"),
    ("subprocess.run(['timeout', '60', TOOL])", "python3 app.py"),
    ("subprocess.run(['bash', '-c', 'bash <(echo \"%s; true\") x' % TOOL])", "python3 app.py"),
    ("subprocess.run([sys.executable], input=b'import os; os.system(%r)' % TOOL.encode())",
     "python3 app.py"),
    ("subprocess.run([sys.executable, '-c', 'import os; os.system(%r)' % TOOL])", "python3 app.py"),
    ("subprocess.run(['sh', 'tool.sh'])", "sh tool.sh")])
def test_tool_is_named_with_what_has_started_it(case, command, starter):
    tool, python = case.copy("bin/nvidia-smi"), case.path("python3")
    case.write({"tool.sh": tool + "\ntrue\n",
                "app.py": "import os, subprocess, sys\nTOOL = %r\n%s\n" % (tool, command)})
    os.symlink(sys.executable, python)
    case.check([python, case.path("app.py")], "nvidia-smi, started by " + starter,
               allow="lib:nvidia-smi")


@pytest.mark.parametrize("words", [["sh", "tool.sh"], ["bash", "--norc", "-e", "tool.sh"]])
def test_tool_that_outlives_its_script_is_named_with_it(case, words):
    """verify sees each start; the guard alone looks for a parent, which has ended."""
    tool = case.copy("bin/nvidia-smi")
    wait = "while kill -0 $$ 2> /dev/null; do :; done"
    case.write({"tool.sh": "{ %s; exec %s; } &\n" % (wait, tool)})
    name = "nvidia-smi, started by %s tool.sh" % words[0]
    err, places = case.verify(*words)
    assert places == [name] and "\n  %s\n" % name in err, err


def test_tool_that_the_user_has_started_is_named_alone(case):
    """The user types the command, or gives it to cudaguard. Other programs have no starter."""
    tool = case.copy("bin/nvidia-smi")
    case.typed(tool, "nvidia-smi")
    assert case.verify(tool)[1] == ["nvidia-smi"]
    case.write({"app.py": "import subprocess\nsubprocess.run([%r])\n" % case.copy("bin/other")})
    case.check([sys.executable, "app.py"], "other")


@pytest.mark.parametrize(("file", "name"), [
    ("tmp/libxgboost4j_gpu8270807879039814774.so", "libxgboost4j_gpu.so"),
    ("tmp/lib20231115.so", "lib.so"), ("lib/libnvinfer10.so", "libnvinfer10.so")])
def test_library_in_a_temporary_file_has_a_lasting_name(case, file, name):
    case.need("gcc")
    library = case.path(file)
    os.makedirs(os.path.dirname(library))
    case.compile(file, SOURCE, "-shared", "-fPIC", "-ldl", "-Dmain=plugin_begin")
    case.check([os.path.join(os.path.dirname(PLAIN), "loads"), library], name, allow="lib:" + name)


def test_frame_in_a_long_path_keeps_its_function_and_is_printed_once(case):
    case.need("gcc", "addr2line")
    source = case.path("d" * 60, "e" * 60, "asks.c")
    os.makedirs(os.path.dirname(source))
    shutil.copy(SOURCE, source)
    case.compile("asks", source, "-g", "-O0", "-ldl")
    err, _ = case.verify(case.path("asks"))
    rows = re.findall(r"(?m)^ +(?:native +)?((?:> )?\S+asks\.c:\d+.*)$", err)
    assert rows == ["> .../asks.c:8 in ask_driver", ".../%s/asks.c:13 in main" % ("e" * 60)], err
    assert max(map(len, err.splitlines())) <= 100, err
