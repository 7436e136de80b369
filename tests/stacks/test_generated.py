# SPDX-License-Identifier: Apache-2.0
"""The message, verify and the plug-in name a line that the user can open: none of code that a
library has generated, of a package outside site-packages, or of what starts a bundled program."""

import os
import zipapp
import zipfile

import pytest

from support import fixtures, framework, harness, launcher, named

PYTHON = "/usr/bin/python3"
PROGRAMS = os.path.join(harness.SOURCE, "tests", "stacks", "programs")
VENDORED = harness.read(os.path.join(PROGRAMS, "vendored.py"))
ASKS = 1 + VENDORED.splitlines().index("    return ctypes.CDLL(DRIVER).cuInit(0)")
# The user's program; its line 5 asks.
PROGRAM = """import sys
import vendored

def main():
    print(vendored.get(sys.argv[-1])(1))

if __name__ == "__main__":
    main()
"""
# A module of the same name, whose line 3 asks.
MODULE = """import ctypes
def get(_):
    return lambda x: ctypes.CDLL("libcuda.so.1").cuInit(0)
"""
METADATA = {"of_others-1.0.dist-info/METADATA":
            "Metadata-Version: 2.1\nName: of-others\nVersion: 1.0\n"}
# What `pip --target` installs.
PACKAGE = {"vendored/__init__.py": VENDORED, **METADATA}


def below(directory, files):
    return {directory + "/" + name: text for name, text in files.items()}


class Case(named.Case):
    def setUp(self):
        super().setUp()
        os.chmod(self.directory, 0o777)
        self.user = self.path("user/program.py")
        self.packages = self.path("packages")
        self.write({"user/program.py": PROGRAM})

    def unguarded_run(self, *words, **variables):
        result = harness.run(words, world="none", guard=False, trace=False, timeout=600,
                             cwd=self.directory, env=dict(variables, HOME=self.directory))
        self.assertEqual(result.rc, 0, result)


make_case = fixtures.lent("case", Case)


@pytest.mark.parametrize(("files", "code", "words"), [
    (below("packages", PACKAGE), "program.py:5", ["user/program.py", "plain"]),
    (below("user", PACKAGE), "program.py:5", ["user/program.py", "plain"]),
    (below("packages", {"vendored.py": MODULE, **METADATA}), "program.py:5", ["user/program.py"]),
    # AWS Lambda wants all packages in the directory of the program.
    (below("user", {"vendored.py": MODULE, **METADATA}), "vendored.py:3", ["user/program.py"]),
    ({"packages/vendored/__init__.py": VENDORED}, "__init__.py:%d" % ASKS,
     ["user/program.py", "plain"]),
    (below("packages", PACKAGE), "<string>:1", ["-c", "import vendored; vendored.get('plain')(1)"]),
    ({"packages/calls.py": "def call(function):\n    function()\n"}, "<string>:3",
     ["-c", "import ctypes, calls\ndef ask():\n    ctypes.CDLL('libcuda.so.1').cuInit(0)\n"
      "calls.call(ask)"])],
    ids=["package-beside-its-metadata", "package-in-the-scripts-directory", "installed-module",
         "users-module-in-the-scripts-directory", "users-package-without-metadata",
         "command-with-a-package", "function-of-a-command"])
def test_owner_of_a_line_depends_on_its_place(case, files, code, words):
    case.write(files)
    case.names(code, PYTHON, *words, PYTHONPATH=case.packages)


@pytest.mark.parametrize(("files", "main", "code"), [
    ({"program.py": PROGRAM, **PACKAGE}, "program:main", "program.py:5"),
    ({"__main__.py": "from inner import asks\nasks.get(0)(0)\n", "inner/__init__.py": "",
      "inner/asks.py": MODULE}, None, "asks.py:3"),
    ({"own/__init__.py": "", "own/program.py": PROGRAM,
      "own/start.py": "from own import program\n\ndef main():\n    program.main()\n", **PACKAGE},
     "own.start:main", "start.py:4"),
    ({"__main__.py": named.ASK}, None, "__main__.py:2")],
    ids=["users-module", "innermost-without-packages", "outermost-with-packages", "main-program"])
def test_line_in_a_zipapp_is_named(case, files, main, code):
    case.write(below("whole", files))
    zipapp.create_archive(case.path("whole"), case.path("program.pyz"), main=main)
    case.names(code, PYTHON, case.path("program.pyz"), "plain")


class Bundles(Case):
    """PyInstaller's programs have modules without directories and without files. This makes the
    same names with plain Python; Bundlers tests the tools themselves."""

    def compiled(self, text, name):
        """Compiles a text to a module that says it is `name`."""
        place = self.path("bundle", name + "c")
        self.write({"source/" + name: text})
        os.makedirs(os.path.dirname(place), exist_ok=True)
        self.unguarded_run(
            PYTHON, "-c", "import py_compile, sys; py_compile.compile(*sys.argv[1:], True)",
            self.path("source", name), place, name)
        return place


make_bundle = fixtures.lent("bundle", Bundles)


def test_modules_without_files_do_not_hide_the_program(bundle):
    program = bundle.compiled(PROGRAM, "program.py")
    bundle.compiled(VENDORED, "vendored/__init__.py")
    (found,), _ = bundle.names("program.py:5", PYTHON, program, "plain")
    assert found["python"][0]["file"] == "vendored/__init__.py"


def test_thread_of_a_bundled_program_does_not_name_the_standard_library(bundle):
    bundle.compiled(VENDORED, "vendored/__init__.py")
    bundle.compiled("import _thread\nfrom _thread import RLock  # for Python 3.14's ctypes\n"
                    "def run(what, ended):\n    what(1)\n    ended.release()\n", "threading.py")
    program = bundle.compiled(
        "import _thread, vendored\nimport threading\nended = _thread.allocate_lock()\n"
        "ended.acquire()\ndef work(x): vendored.get('plain')(x)\n"
        "_thread.start_new_thread(threading.run, (work, ended))\nended.acquire()\n", "thread.py")
    bundle.names("thread.py:5", PYTHON, program)


class Tools(Case, framework.Case):
    environment = "generated"

    def run_tool(self, name, *words, **variables):
        self.unguarded_run(self.tool(name), *words, **variables)


class Bundlers(Tools):
    environment = "bundlers"


make_tools = fixtures.lent("tools", Tools)
make_bundlers = fixtures.lent("bundlers", Bundlers)


@pytest.mark.parametrize("how", ["beartype", "exec", "dataclass"])
def test_code_that_a_library_generates_is_not_named(tools, how):
    """tests/unit/user_code_test.cpp has the names of more libraries."""
    tools.write(below("packages", PACKAGE))
    found, _ = tools.names("program.py:5", tools.tool("python"), tools.user, how,
                           PYTHONPATH=tools.packages)
    assert "<" in "".join(row["file"] for row in found[0]["python"])


def test_function_of_a_worker_of_joblib_is_named(tools):
    """cloudpickle gives it the name <dynamic-code>, and the worker has no file of the user."""
    tools.write({"user/pool.py": "import ctypes, joblib\n\ndef ask(_):\n"
                 "    return ctypes.CDLL('libcuda.so.1').cuInit(0)\n\n"
                 "print(joblib.Parallel(2)(joblib.delayed(ask)(i) for i in range(2)))\n"})
    tools.names("<dynamic-code>:4", tools.tool("python"), tools.path("user/pool.py"))


def test_pickled_function_that_the_program_calls_names_the_program(tools):
    tools.write({"user/calls.py": "import ctypes, pickle\nimport cloudpickle\n"
                 "def ask(): ctypes.CDLL('libcuda.so.1').cuInit(0)\n"
                 "again = pickle.loads(cloudpickle.dumps(ask))\nagain()\n"})
    found, _ = tools.names("calls.py:5", tools.tool("python"), tools.path("user/calls.py"))
    assert found[0]["python"][0]["file"] == "<dynamic-code>"


def test_pex_names_the_user(tools):
    """The tool pex is not needed to run the program."""
    wheel, info = tools.path("of_others-1.0-py3-none-any.whl"), "of_others-1.0.dist-info/"
    files = {**PACKAGE, info + "WHEEL":
             "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    files[info + "RECORD"] = "".join(name + ",,\n" for name in [*files, info + "RECORD"])
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    root = tools.path("pex")
    tools.run_tool("python", "-m", "pex", "--no-index", wheel, "-D", tools.path("user"), "-m",
                   "program:main", "-o", tools.path("program.pex"), PEX_ROOT=root)
    tools.names("program.py:5", PYTHON, tools.path("program.pex"), "plain", PEX_ROOT=root)


def test_shiv_names_the_outermost_line_of_its_packages(tools):
    """The user's module is installed like the others, so the one that calls them is named."""
    tools.write(below("packages", {"program.py": PROGRAM, **PACKAGE}))
    tools.run_tool("python", "-m", "shiv.cli", "--site-packages", tools.packages, "-e",
                   "program:main", "-o", tools.path("program.shiv"))
    found, _ = tools.names("program.py:5", PYTHON, tools.path("program.shiv"), "plain",
                           SHIV_ROOT=tools.path("shiv"))
    assert "/_bootstrap/__init__.py" in "".join(row["file"] for row in found[0]["python"])


BUNDLERS = {
    "cx_freeze": (["cxfreeze", "build_exe", "--script", "{user}", "--build-exe", "{made}"],
                  "program"),
    "nuitka": (["python", "-m", "nuitka", "--standalone", "--assume-yes-for-downloads",
                "--output-dir={made}", "{user}"], "program.dist/program.bin"),
    **{"pyinstaller" + kind: (
        ["pyinstaller", kind, "--distpath", "{made}", "--workpath", "{made}/work", "--specpath",
         "{made}/work", "--paths", "{packages}", "{user}"], program)
       for kind, program in (("--onedir", "program/program"), ("--onefile", "program"))},
}


@pytest.mark.full
@pytest.mark.parametrize("bundler", BUNDLERS)
def test_bundled_program_is_named(bundlers, bundler):
    words, program = BUNDLERS[bundler]
    bundlers.write(below("packages", PACKAGE))
    places = {"user": bundlers.user, "made": bundlers.path("made"), "packages": bundlers.packages}
    bundlers.run_tool(*(word.format(**places) for word in words), PYTHONPATH=bundlers.packages)
    bundlers.names("program.py:5", bundlers.path("made", program), "plain")


@pytest.mark.full
def test_nuitka_names_each_line_of_a_function(bundlers):
    """Its frames have no instruction pointer that would tell the calls apart."""
    bundlers.write({"user/two.py": "import ctypes\ncuda = ctypes.CDLL('libcuda.so.1')\n"
                 "def main():\n    cuda.cuInit(0)\n    cuda.cuInit(0)\nmain()\n"})
    bundlers.run_tool("python", "-m", "nuitka", "--assume-yes-for-downloads",
                      "--output-dir=" + bundlers.path("made"), bundlers.path("user/two.py"))
    words = [bundlers.path("made/two.bin")]
    harness.run(words, guard=False, trace=False).assert_reached(bundlers)
    verified = harness.run([launcher.LAUNCHER, "verify", "--", *words], world="none", guard=False,
                           trace=False)
    assert verified.rc == 1 and "FAIL: 2 lines asked for CUDA" in verified.err, str(verified)
