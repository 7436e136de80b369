# SPDX-License-Identifier: Apache-2.0
"""What stands for the user's line if no frame can be read: an interpreter's script, and what has
started a tool. The file of a library that was unpacked into a temporary file has a lasting name."""

import json
import os
import re
import shutil
import sys

import pytest

from support import fixtures, harness, launcher, messages

PLAIN = os.path.join(harness.BUILD, "tests", "stacks", "plain")
SOURCE = os.path.join(harness.SOURCE, "tests", "stacks", "programs", "plain.c")


class Case(launcher.Case):
    def setUp(self):
        super().setUp()
        if not os.path.exists(PLAIN):
            harness.skip(self, "built without tests/stacks")
        for name in ("cu.x", "data/other.x", "app.jar"):
            os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
            self.make(name, "", 0o644)

    def copy(self, name):
        """Returns a program of this name that asks for CUDA."""
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        return shutil.copy(PLAIN, self.path(name))

    def message(self, *words, name="no_cuda"):
        """Returns what the message says about the caller. The unguarded program reaches the driver.
        """
        harness.run(words, guard=False, trace=False, cwd=self.directory).assert_reached(self)
        result = harness.run(words, world="none", trace=False, cwd=self.directory)
        found, = messages.find(result.err, name)
        return found["asked_by"]

    def verify(self, *words, options=(), rc=1):
        """Returns verify's output, and the names of the places."""
        document = self.path("verify.json")
        result = harness.run([launcher.LAUNCHER, "verify", "--json", document, *options, "--",
                              *words], world="none", guard=False, trace=False, cwd=self.directory)
        self.assertEqual(result.rc, rc, result)
        with open(document, encoding="utf-8") as stream:
            return result.err, [one["name"] for one in json.load(stream)["places"]]


make_case = fixtures.lent("case", Case)


@pytest.mark.parametrize(("words", "script"), [
    (["deno", "run", "--allow-all", "data/../cu.x"], "cu.x"), (["newlisp", "cu.x"], "cu.x"),
    (["gp", "-q", "cu.x", "data/other.x"], "cu.x"), (["clisp", "-q", "cu.x"], "cu.x"),
    (["rakudo", "cu.x"], "cu.x"), (["java", "-Xmx1g", "-jar", "app.jar"], "app.jar"),
    (["R", "--no-echo", "--file=cu.x"], "cu.x"), (["tcsh", "-f", "cu.x"], "cu.x"),
    (["fish", "cu.x", "y"], "cu.x"), (["julia-1.10", "cu.x"], "cu.x"),
    (["python2.7", "-u", "none.py"], "none.py"), (["lua5.4", "cu.x"], "cu.x")])
def test_script_stands_for_the_line(case, words, script):
    """`run` and `verify` name it, and --allow takes it."""
    words = [case.copy(words[0]), *words[1:]]
    name = os.path.basename(words[0])
    assert case.message(*words) == "%s in %s %s" % (name, name, script)
    err, places = case.verify(*words)
    assert places == [script], err
    assert "FAIL: 1 place asked" in err
    assert "PASS" in case.verify(*words, options=["--allow", "line:" + script], rc=0)[0]


@pytest.mark.parametrize("words", [["deno", "repl"], ["gp", "data"], ["java", "-cp", "x.jar", "Main"],
                                   ["python2.7", "-c", "x"], ["tool", "cu.x"], ["gpt", "cu.x"]])
def test_program_without_a_script_is_named_alone(case, words):
    """The user types the command. Arguments of a program that is no interpreter are not shown."""
    words = [case.copy(words[0]), *words[1:]]
    name = os.path.basename(words[0])
    is_interpreter = name not in ("tool", "gpt")
    typed = {"trace": False, "cwd": case.directory, "stdin": " ".join(words) + "\ntrue\n"}
    harness.run(["sh"], guard=False, **typed).assert_reached(case)
    result = harness.run(["sh"], world="none", **typed)
    assert messages.find(result.err, "no_cuda", asked_by="%s in %s" % (name, name)
                         if is_interpreter else name), str(result)
    assert case.verify(*words)[1] == [name]


@pytest.mark.parametrize("words", ["ruby -e x", "php -r x", "perl -we x", "node <cu.x",
                                   "python2.7 -c x", "julia -e x", "java -cp x.jar Main"])
def test_code_that_is_in_no_file_is_named_with_its_starter(case, words):
    """The script that has the code is what the reader can open."""
    name = words.partition(" ")[0]
    case.copy(name)
    case.make("t.sh", "./%s\ntrue\n" % words, 0o644)
    assert case.message("bash", "t.sh") == "%s in %s, started by bash t.sh" % (name, name)
    assert case.verify("bash", "t.sh")[1] == [name + ", started by bash t.sh"]


def test_source_of_an_interpreter_is_no_line(case):
    """The interpreter has debug information, as Debian's python2.7-dbg."""
    case.need("gcc", "addr2line")
    case.compile("tool", SOURCE, "-g", "-O0", "-ldl")
    assert "\n  plain.c:8\n" in case.verify(case.path("tool"))[0]
    for name, words, place in (("python2.7", ["cu.x"], "cu.x"),
                               ("python2.7", ["-c", "x"], "python2.7")):
        shutil.copy(case.path("tool"), case.path(name))
        err, places = case.verify(case.path(name), *words)
        assert places == [place], err
        assert "> " not in err, err


@pytest.mark.parametrize(("command", "starter"), [
    ("subprocess.run([TOOL])", "python3 app.py"),
    ("os.system(TOOL + ' | cat')", "python3 app.py"),
    ("subprocess.run(['timeout', '60', TOOL])", "python3 app.py"),
    ("subprocess.run(['bash', '-e', '-o', 'pipefail', '-c', TOOL + '; true'])", "python3 app.py"),
    ("subprocess.run(['flock', 'app.py', TOOL])", "python3 app.py"),
    ("subprocess.run(['bash', '-c', 'bash <(echo \"%s; true\") x' % TOOL])", "python3 app.py"),
    *(("subprocess.run([sys.executable%s], input=b'import os; os.system(%%r)' %% TOOL.encode())" %
       option, "python3 app.py") for option in ("", ", '-'")),
    ("subprocess.run([sys.executable, '-c', 'import os; os.system(%r)' % TOOL])", "python3 app.py"),
    ("subprocess.run(['sh', 'tool.sh'])", "sh tool.sh")])
def test_tool_is_named_with_what_has_started_it(case, command, starter):
    tool = case.copy("bin/nvidia-smi")
    case.make("tool.sh", tool + "\ntrue\n", 0o644)
    app = case.make("app.py", "import os, subprocess, sys\nTOOL = %r\n%s\n" % (tool, command),
                    0o644)
    python = os.path.join(os.path.dirname(app), "python3")
    os.symlink(sys.executable, python)
    name = "nvidia-smi, started by " + starter
    assert case.message(python, app) == name
    err, places = case.verify(python, app)
    assert places == [name], err
    assert "\n  %s\n" % name in err, err
    assert "PASS" in case.verify(python, app, options=["--allow", "lib:nvidia-smi"], rc=0)[0]


@pytest.mark.parametrize("words", [["sh", "tool.sh"], ["bash", "--norc", "-e", "tool.sh"]])
def test_tool_that_outlives_its_script_is_named_with_it(case, words):
    """verify sees each start; the guard alone looks for a parent, which has ended."""
    tool = case.copy("bin/nvidia-smi")
    wait = "while kill -0 $$ 2> /dev/null; do :; done"
    case.make("tool.sh", "{ %s; exec %s; } &\n" % (wait, tool), 0o644)
    name = "nvidia-smi, started by %s tool.sh" % words[0]
    err, places = case.verify(*words)
    assert places == [name], err
    assert "\n  %s\n" % name in err, err


def test_tool_that_the_user_has_started_is_named_alone(case):
    """The user types the command, or gives it to cudaguard."""
    tool = case.copy("bin/nvidia-smi")
    result = harness.run(["sh"], world="none", trace=False, stdin=tool + "\ntrue\n")
    assert messages.find(result.err, "no_cuda", asked_by="nvidia-smi"), str(result)
    assert case.verify(tool)[1] == ["nvidia-smi"]
    other = case.make("app.py", "import subprocess\nsubprocess.run([%r])\n" % case.copy("bin/other"),
                      0o644)
    assert case.message(sys.executable, other) == "other"


@pytest.mark.parametrize(("file", "name"), [
    ("tmp/libxgboost4j_gpu8270807879039814774.so", "libxgboost4j_gpu.so"),
    ("tmp/lib20231115.so", "lib.so"), ("lib/libnvinfer10.so", "libnvinfer10.so")])
def test_library_in_a_temporary_file_has_a_lasting_name(case, file, name):
    case.need("gcc")
    library = case.path(file)
    os.makedirs(os.path.dirname(library))
    case.compile(file, SOURCE, "-shared", "-fPIC", "-ldl", "-Dmain=ask")
    main = case.make("main.c", "#include <dlfcn.h>\nint main(int n, char** v) {\n"
                     "  ((void (*)(void))dlsym(dlopen(v[1], RTLD_NOW), \"ask\"))();\n}\n", 0o644)
    program = case.compile("loads", main, "-ldl")
    assert case.message(program, library) == name
    assert case.verify(program, library)[1] == [name]
    assert "PASS" in case.verify(program, library, options=["--allow", "lib:" + name], rc=0)[0]


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
