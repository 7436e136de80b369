# SPDX-License-Identifier: Apache-2.0
"""The message, the record, verify and --allow name a file that the user can open, if the code is
the text of another file: of one that exec() runs, or that a runner has copied."""

import os
import sys

import pytest

from support import fixtures, harness, launcher, named
from support.named import ASK

# As setuptools' build_meta runs setup.py for pip and build.
SETUPTOOLS = """def run_setup(setup_script="setup.py"):
    __file__ = __import__("os").path.abspath(setup_script)
    __name__ = "__main__"
    with open(__file__) as stream:
        code = stream.read()
    exec(code, locals())

run_setup()
"""
# As Snakemake runs a script.
PREAMBLE = "# preamble\n__real_file__ = __file__; __file__ = %r\n# end\n"
PACKAGE = "lib/site-packages/program.py"

make_case = fixtures.lent("case", named.Case)


def test_function_of_a_text_that_exec_runs_is_in_the_file_of_its_variables(case):
    case.write({PACKAGE: SETUPTOOLS, "setup.py": "import ctypes\ndef ask():\n"
                "    ctypes.CDLL('libcuda.so.1').cuInit(0)\nask()\n"})
    (record,), shown = case.names("setup.py:3", sys.executable, case.path(PACKAGE))
    assert "ctypes.CDLL('libcuda.so.1').cuInit(0)" in shown
    assert [os.path.basename(row["file"]) for row in record["python"]] == [
        "setup.py", "setup.py", "program.py", "program.py"]


@pytest.mark.parametrize(("program", "code"), [
    *(("exec(ASK, %s)" % variables, code) for variables, code in (
        ("{}", "<string>:2"), ("{'__file__': 'none.py'}", "<string>:2"),
        ("{'__file__': '.'}", "<string>:2"), ("{'__file__': 3}", "<string>:2"),
        ("{'__file__': 'part.py', **{'n%d' % i: i for i in range(99)}}", "part.py:2"),
        # The text is not the module's file, though the module has one.
        ("globals()", "<string>:2"), ("dict(globals())", "<string>:2"),
        ("dict(globals(), **{'n%d' % i: i for i in range(999)})", "<string>:2"))),
    ("exec(compile(ASK, '<bpython-input-4>', 'exec'))", "<bpython-input-4>:2")])
def test_text_is_named_by_its_file_if_it_has_one(case, program, code):
    case.write({PACKAGE: program.replace("ASK", repr(ASK)), "part.py": ASK})
    case.names(code, sys.executable, case.path(PACKAGE))


@pytest.mark.parametrize(("before", "code"), [("", "plot.py:3"), (PREAMBLE, "plot.py")])
def test_copied_script_is_named_by_its_original(case, before, code):
    """The line is given only if it is at the same place in both files."""
    original = case.path("scripts/plot.py")
    first = (before % original + "#" * 200 if before else
             ("__file__ = %r" % original).ljust(200, "#"))
    case.write({"scripts/plot.py": "#" * 200 + "\n" + ASK, "tmp/plot.py": first + "\n" + ASK})
    case.names(code, sys.executable, case.path("tmp/plot.py"))


@pytest.mark.parametrize("name", ["__file__", "'none.py'", "'.'", "None"])
def test_script_without_another_file_keeps_its_name(case, name):
    case.write({"script.py": "__file__ = %s\n" % name + ASK})
    case.names("script.py:3", sys.executable, case.path("script.py"))


@pytest.mark.parametrize("name", ["", " ", ".", "/", "none.py", "/no/such/file.py", "/dev/null"])
def test_code_whose_file_cannot_be_opened_is_named_by_the_next_frame_out(case, name):
    case.write({"helper.py": "def call(code):\n    exec(code, {})\n",
                "program.py": "import helper\nhelper.call(compile(%r, %r, 'exec'))" % (ASK, name)})
    case.names("helper.py:2", sys.executable, case.path("program.py"))


def test_each_of_many_texts_is_reported(case):
    """The code of one text may be where the code of the text before was."""
    parts = ["part%d.py" % i for i in range(5)]
    case.write({**dict.fromkeys(parts, ASK), PACKAGE: "for name in %r:\n"
                "    exec(open(name).read(), {'__file__': name})\n" % parts})
    result = harness.run([launcher.LAUNCHER, "verify", "--", sys.executable, case.path(PACKAGE)],
                         world="none", guard=False, trace=False, cwd=case.directory)
    for name in parts:
        assert name + ":2 in <module>" in result.err, str(result)


# As IPython runs the cells of a file: %run c.ipy, ipython c.ipy.
IPYTHON = """name, file, text = {!r}, {!r}, {!r}
def run_code(code, variables):
    exec(code, variables)
run_code(compile(text, name, "exec"), {{"__name__": "__main__", "__file__": file}})
"""
CELL = "<ipython-input-1-0a1b2c3d4e5f>"
KERNEL_CELL = "/tmp/ipykernel_7/2815143473.py"


@pytest.mark.parametrize(("file", "before", "code"), [
    ("c.ipy", "", "c.ipy:2"), ("c.ipy", "\n", "c.ipy"), ("c.ipy", "%%time\n", "c.ipy"),
    ("c.ipy", "!ls \\\n  -l\n", "c.ipy"),
    ("c.ipy", "#" * 40000 + "\n", "c.ipy"), ("c.ipynb", "", "c.ipynb")],
    ids=["whole", "empty-line", "magic", "joined-lines", "too-long", "notebook"])
@pytest.mark.parametrize("cell", [CELL, KERNEL_CELL], ids=["typed", "kernel"])
def test_cell_of_a_file_is_named_by_the_file(case, cell, file, before, code):
    """The line is given if IPython has not moved it."""
    case.write({file: before + ASK, PACKAGE: IPYTHON.format(cell, case.path(file), ASK)})
    case.names(code, sys.executable, case.path(PACKAGE))


@pytest.mark.parametrize("file", ["none.ipy", "train.py", ".", ""])
def test_typed_cell_keeps_its_name(case, file):
    """Users set __file__ in notebooks, for code that reads it."""
    case.write({"train.py": ASK, PACKAGE: IPYTHON.format(CELL, file, ASK)})
    case.names("notebook cell 1, line 2", sys.executable, case.path(PACKAGE))


DELETES = "import os\nos.remove(__file__)\n" + ASK


@pytest.mark.parametrize(("command", "code"), [
    ("cat > x.py <<'EOF'\n%sEOF\npython3 x.py\nrm -f x.py\n" % DELETES, "x.py:4"),
    ("python3 - <<'EOF'\n%sEOF\n" % ASK, "<stdin>:2"),
    ("python3 -u <<'EOF'\n%sEOF\n" % ASK, "<stdin>:2"),
    ("python3 <(cat <<'EOF'\n%sEOF\n) x\n" % ASK, "/dev/fd/63:2"),
    ("cat <<'EOF' | python3 /dev/stdin x\n%sEOF\n" % ASK, "/dev/stdin:2"),
    ("python3 -c \"%s\"\n" % ASK, "<string>:2")])
def test_program_whose_file_cannot_be_opened_is_named_with_its_starter(case, command, code):
    """The reader can open the starter."""
    case.write({"t.sh": command + "true\n"})
    case.names(code, "bash", "t.sh", starter=", started by bash t.sh")


@pytest.mark.parametrize(("command", "code"), [
    ("python3 - <<'EOF'\n%sEOF" % ASK, "<stdin>:2"), ("python3 -c \"%s\"" % ASK, "<string>:2"),
    ("echo \"%s\" > x.py; python3 x.py" % DELETES, "x.py:4 (deleted)"),
    # The control: its script exists, also after a change of the directory.
    ("echo \"import os\nos.chdir('/')\n%s\" > x.py\n" % ASK +
     "echo \"python3 x.py\ntrue\" > t.sh; bash t.sh", "x.py:4")])
def test_program_that_the_user_has_typed_is_named_alone(case, command, code):
    case.typed(command, code + " through ctypes/cffi")
