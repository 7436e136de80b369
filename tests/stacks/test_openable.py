# SPDX-License-Identifier: Apache-2.0
"""The message, the record, verify and --allow name a file that the user can open, if the code is
the text of another file: of one that exec() runs, or that a runner has copied."""

import os
import sys

import pytest

from support import harness, launcher, messages, pytest_runs

ASK = "import ctypes\nctypes.CDLL('libcuda.so.1').cuInit(0)\n"
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


@pytest.fixture(name="files")
def make_files(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)
    return write


def check(program, code, directory, source=None):
    """Fails unless the message, the record, verify and its --allow name this code."""
    words = [sys.executable, program]
    env = {"PYTHONDONTWRITEBYTECODE": "1"}
    control = harness.run(words, guard=False, trace=False, cwd=directory, env=env)
    assert "cuInit" in control.fake_calls, str(control)
    report = os.path.join(directory, "report.jsonl")
    guarded = harness.run(words, world="none", trace=False, cwd=directory,
                          env=dict(env, CUDAGUARD_REPORT=report))
    found, = [record for record in harness.records(report) if record.get("api") == "cuInit"]
    os.remove(report)
    assert found["code"] == code, found["python"]
    assert messages.find(guarded.err, "no_cuda", asked_by=code + " through ctypes/cffi"), guarded
    for allow, rc in (((), 1), (("--allow", "line:" + code), 0)):
        verified = harness.run([launcher.LAUNCHER, "verify", *allow, "--", *words], world="none",
                               guard=False, trace=False, cwd=directory, env=env)
        assert verified.rc == rc, str(verified)
        assert code + " in " in verified.err, str(verified)
        if source and not allow:
            assert source in verified.err, str(verified)
    return found


def test_text_that_exec_runs_is_in_the_file_of_its_variables(files, tmp_path):
    files("setup.py", "# setup\n" + ASK)
    program = files("lib/site-packages/build_meta.py", SETUPTOOLS)
    check(program, "setup.py:3", str(tmp_path), "ctypes.CDLL('libcuda.so.1').cuInit(0)")


def test_function_of_such_a_text_is_named(files, tmp_path):
    files("setup.py", "import ctypes\ndef ask():\n    ctypes.CDLL('libcuda.so.1').cuInit(0)\nask()\n")
    found = check(files("lib/site-packages/build_meta.py", SETUPTOOLS), "setup.py:3", str(tmp_path))
    assert [os.path.basename(row["file"]) for row in found["python"]] == [
        "setup.py", "setup.py", "build_meta.py", "build_meta.py"], found


@pytest.mark.parametrize(("variables", "code"), [
    ("{}", "<string>:2"), ("{'__file__': 'none.py'}", "<string>:2"),
    ("{'__file__': '.'}", "<string>:2"), ("{'__file__': 3}", "<string>:2"),
    ("{'__file__': 'part.py', **{'n%d' % i: i for i in range(99)}}", "part.py:2"),
    # The text is not the module's file, though the module has one.
    ("globals()", "<string>:2"), ("dict(globals())", "<string>:2"),
    ("dict(globals(), **{'n%d' % i: i for i in range(999)})", "<string>:2")])
def test_text_is_named_by_its_file_if_it_has_one(files, tmp_path, variables, code):
    program = files("lib/site-packages/program.py", "exec(%r, %s)\n" % (ASK, variables))
    files("part.py", ASK)
    check(program, code, str(tmp_path))


def test_code_that_a_console_runs_is_not_the_packages(files, tmp_path):
    text = "exec(compile(%r, '<bpython-input-4>', 'exec'))\n" % ASK
    check(files("lib/site-packages/console.py", text), "<bpython-input-4>:2", str(tmp_path))


@pytest.mark.parametrize(("before", "code"), [("", "plot.py:3"), (PREAMBLE, "plot.py")])
def test_copied_script_is_named_by_its_original(files, tmp_path, before, code):
    """The line is given only if it is at the same place in both files."""
    text = ASK + "# %r\n" % (str(tmp_path),)
    original = files("scripts/plot.py", "#" * 200 + "\n" + text)
    if before:
        copy = before % original + "#" * 200 + "\n" + text
    else:
        first = "__file__ = %r" % original
        copy = first + "#" * (200 - len(first)) + "\n" + text
    check(files("tmp/tmpx81a.plot.py", copy), code, str(tmp_path))


@pytest.mark.parametrize("name", ["__file__", "'none.py'", "'.'", "None"])
def test_script_without_another_file_keeps_its_name(files, tmp_path, name):
    check(files("tmp/script.py", "__file__ = %s\n" % name + ASK), "script.py:3", str(tmp_path))


@pytest.mark.parametrize("name", ["", " ", ".", "/", "none.py", "/no/such/file.py", "/dev/null"])
def test_code_whose_file_cannot_be_opened_is_named_by_the_next_frame_out(files, tmp_path, name):
    files("helper.py", "def call(code):\n    exec(code, {})\n")
    program = files("program.py", "from helper import call\n\n"
                    "call(compile(%r, %r, 'exec'))\n" % (ASK, name))
    check(program, "helper.py:2", str(tmp_path))


@pytest.mark.parametrize("name", ["", "/no/such/file.py"])
def test_plug_in_names_a_line_that_can_be_opened(files, tmp_path, name):
    tests = files("test_it.py", "def test_it():\n    exec(compile(%r, %r, 'exec'), {})\n" % (ASK, name))
    result = harness.run([launcher.LAUNCHER, "run", "--", sys.executable, "-m", "pytest", "-p",
                          "cudaguard.pytest_plugin", "--cudaguard", "-p", "no:cacheprovider", tests],
                         world="none", guard=False, trace=False, cwd=str(tmp_path),
                         env={"PYTHONPATH": pytest_runs.PACKAGES})
    assert "CUDA was asked for by test_it.py:2 through ctypes/cffi" in result.out, str(result)


def test_each_of_many_texts_is_reported(files, tmp_path):
    """The code of one text may be where the code of the text before was."""
    count = 5
    for i in range(count):
        files("part%d.py" % i, ASK)
    program = files("lib/site-packages/all.py", "for i in range(%d):\n"
                    "    name = 'part%%d.py' %% i\n"
                    "    exec(open(name).read(), {'__file__': name})\n" % count)
    result = harness.run([launcher.LAUNCHER, "verify", "--", sys.executable, program],
                         world="none", guard=False, trace=False, cwd=str(tmp_path))
    for i in range(count):
        assert "part%d.py:2 in <module>" % i in result.err, str(result)


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
def test_cell_of_a_file_is_named_by_the_file(files, tmp_path, cell, file, before, code):
    """The line is given if IPython has not moved it."""
    real = files(file, before + ASK)
    program = files("lib/site-packages/IPython/run.py", IPYTHON.format(cell, real, ASK))
    check(program, code, str(tmp_path))


@pytest.mark.parametrize("file", ["none.ipy", "train.py", ".", ""])
def test_typed_cell_keeps_its_name(files, tmp_path, file):
    """Users set __file__ in notebooks, for code that reads it."""
    files("train.py", ASK)
    program = files("lib/site-packages/IPython/run.py", IPYTHON.format(CELL, file, ASK))
    control = harness.run([sys.executable, program], guard=False, trace=False, cwd=str(tmp_path))
    assert "cuInit" in control.fake_calls, str(control)
    guarded = harness.run([sys.executable, program], world="none", trace=False, cwd=str(tmp_path))
    assert messages.find(guarded.err, "no_cuda",
                         asked_by="notebook cell 1, line 2 through ctypes/cffi"), str(guarded)


DELETES = "import os\nos.remove(__file__)\n"
WRITE = "cat > %(file)s <<'EOF'\n%(text)sEOF\n%(python)s %(file)s\nrm -f %(file)s\n"


def check_started_by_script(words, code, directory):
    """The message and verify name the code and t.sh, and --allow accepts it."""
    control = harness.run(words, guard=False, trace=False, cwd=directory)
    assert "cuInit" in control.fake_calls, str(control)
    guarded = harness.run(words, world="none", trace=False, cwd=directory)
    assert messages.find(guarded.err, "no_cuda", asked_by=code + " through ctypes/cffi, started by "
                         "bash t.sh"), str(guarded)
    for allow, rc in (((), 1), (("--allow", "line:" + code), 0)):
        verified = harness.run([launcher.LAUNCHER, "verify", *allow, "--", *words], world="none",
                               guard=False, trace=False, cwd=directory)
        assert verified.rc == rc, str(verified)
        assert code + " in <module>, started by bash t.sh" in verified.err, str(verified)


def test_deleted_script_is_named_with_its_starter(files, tmp_path):
    """The reader can open the starter."""
    text = DELETES + ASK
    words = ["bash", files("t.sh", WRITE % {"file": tmp_path / "x.py", "text": text,
                                           "python": sys.executable})]
    check_started_by_script(words, "x.py:%d" % text.count("\n"), str(tmp_path))


@pytest.mark.parametrize(("command", "code"), [
    ("%s - <<'EOF'\n%sEOF\n", "<stdin>:2"), ("%s -u <<'EOF'\n%sEOF\n", "<stdin>:2"),
    ("%s <(cat <<'EOF'\n%sEOF\n) x\n", "/dev/fd/63:2"),
    ("cat <<'EOF' | %s /dev/stdin x\n%sEOF\n", "/dev/stdin:2"),
    ("%s -c \"%s\"\n", "<string>:2")])
def test_program_without_a_file_is_named_with_its_starter(files, tmp_path, command, code):
    words = ["bash", files("t.sh", command % (sys.executable, ASK) + "true\n")]
    check_started_by_script(words, code, str(tmp_path))


@pytest.mark.parametrize(("command", "code"), [
    ("%s - <<'EOF'\n%sEOF\n", "<stdin>:2"), ("%s -c \"%s\"\n", "<string>:2")])
def test_program_without_a_file_of_the_user_is_named_alone(tmp_path, command, code):
    """The user has typed the command."""
    def run(**more):
        return harness.run(["sh"], trace=False, cwd=str(tmp_path),
                           stdin=command % (sys.executable, ASK) + "true\n", **more)

    assert "cuInit" in run(guard=False).fake_calls
    guarded = run(world="none")
    assert messages.find(guarded.err, "no_cuda", asked_by=code + " through ctypes/cffi"), str(guarded)


def test_deleted_script_without_a_starter_is_marked(files, tmp_path):
    """The user has typed the command."""
    script = str(tmp_path / "x.py")
    text = DELETES + ASK

    def run(*launch, **more):
        files("x.py", text)
        return harness.run([*launch, "sh"], trace=False, cwd=str(tmp_path),
                           stdin="%s %s\ntrue\n" % (sys.executable, script), **more)

    assert "cuInit" in run(guard=False).fake_calls
    guarded = run(world="none")
    assert messages.find(guarded.err, "no_cuda",
                         asked_by="x.py:4 (deleted) through ctypes/cffi"), str(guarded)


def test_script_that_exists_is_named_alone(files, tmp_path):
    """The control, also after a change of the directory."""
    files("x.py", "import os\nos.chdir('/')\n" + ASK)
    script = files("t.sh", "%s x.py\ntrue\n" % sys.executable)
    control = harness.run(["bash", script], guard=False, trace=False, cwd=str(tmp_path))
    assert "cuInit" in control.fake_calls, str(control)
    guarded = harness.run(["bash", script], world="none", trace=False, cwd=str(tmp_path))
    assert messages.find(guarded.err, "no_cuda", asked_by="x.py:4 through ctypes/cffi"), str(guarded)
