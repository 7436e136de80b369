# SPDX-License-Identifier: Apache-2.0
"""The message, verify and the plug-in name a line that the user can open: none of code that a
library has generated, of a package outside site-packages, or of what starts a bundled program."""

import json
import os
import re
import shutil
import zipapp
import zipfile

import pytest

from support import fixtures, harness, messages

ENVIRONMENTS = os.path.join(harness.DEPS, "frameworks")
LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(harness.LIB)), "bin", "cudaguard")
VENDORED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "vendored.py")
PYTHON = "/usr/bin/python3"
# The user's program; its line 5 asks.
PROGRAM = "import sys\nimport vendored\n\ndef main():\n    print(vendored.get(sys.argv[-1])(1))\n\n" \
          'if __name__ == "__main__":\n    main()\n'
MODULE_ASKS = "import ctypes\n\ndef get(_):\n    return ctypes.CDLL('libcuda.so.1').cuInit\n"


class Case(harness.DirectoryCase):
    environment = None  # a virtual environment of scripts/fetch-frameworks

    def setUp(self):
        super().setUp()
        os.chmod(self.directory, 0o777)
        if self.environment and not os.path.exists(
                os.path.join(ENVIRONMENTS, self.environment, ".fetched")):
            harness.skip(self, "run scripts/fetch-frameworks %s %s" %
                         (harness.DEPS, self.environment))
        self.user = self.write("user/program.py", PROGRAM)

    def tool(self, name):
        return os.path.join(ENVIRONMENTS, self.environment, "bin", name)

    def write(self, name, text):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
        return path

    def vendor(self, directory):
        """Installs the package as `pip --target` does."""
        os.makedirs(self.path(directory, "vendored"))
        shutil.copy(VENDORED, self.path(directory, "vendored", "__init__.py"))
        self.write(directory + "/of_others-1.0.dist-info/METADATA",
                   "Metadata-Version: 2.1\nName: of-others\nVersion: 1.0\n")
        return self.path(directory)

    def wheel(self):
        """Makes the package's wheel."""
        path = self.path("of_others-1.0-py3-none-any.whl")
        files = {"of_others-1.0.dist-info/METADATA":
                 "Metadata-Version: 2.1\nName: of-others\nVersion: 1.0\n",
                 "of_others-1.0.dist-info/WHEEL":
                 "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
        with open(VENDORED, encoding="utf-8") as stream:
            files["vendored/__init__.py"] = stream.read()
        files["of_others-1.0.dist-info/RECORD"] = "".join(
            name + ",,\n" for name in [*files, "of_others-1.0.dist-info/RECORD"])
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        return path

    def make(self, *words, **variables):
        """Runs a tool without the guard."""
        result = harness.run(words, world="none", guard=False, trace=False, timeout=600,
                             cwd=self.directory, env=dict(variables, HOME=self.directory))
        self.assertEqual(result.rc, 0, result)

    def names(self, code, *words, **variables):
        """Fails unless the guard, verify and its --allow name this line for the program."""
        env = dict(variables, HOME=self.directory, PYTHONDONTWRITEBYTECODE="1")
        control = harness.run(words, guard=False, trace=False, cwd=self.directory, env=env)
        control.assert_reached(self)
        report = self.path("report.jsonl")
        guarded = harness.run(words, world="none", trace=False, cwd=self.directory,
                              env=dict(env, CUDAGUARD_REPORT=report))
        self.assertEqual(guarded.rc, 0, guarded)
        found = [record for record in harness.records(report) if "api" in record]
        os.remove(report)
        self.assertTrue(found, guarded)
        for record in found:
            self.assertEqual(record.get("code"), code, json.dumps(record["python"], indent=1))
        self.assertTrue(messages.find(guarded.err, "no_cuda",
                                      asked_by=re.compile(re.escape(code) + " through .*")), guarded)
        for allow, rc in (((), 1), (("--allow", "line:" + code), 0)):
            verified = harness.run([LAUNCHER, "verify", *allow, "--", *words], world="none",
                                   guard=False, trace=False, cwd=self.directory, env=env)
            self.assertEqual(verified.rc, rc, verified)
            self.assertIn(code, verified.err, verified)
        return found


class Generated(Case):
    environment = "generated"

    def test_function_of_a_worker_of_joblib_is_named(self):
        """cloudpickle gives it the name <dynamic-code>, and the worker has no file of the user."""
        program = self.write("user/pool.py", "import ctypes, joblib\n\ndef ask(_):\n"
                             "    return ctypes.CDLL('libcuda.so.1').cuInit(0)\n\n"
                             "print(joblib.Parallel(2)(joblib.delayed(ask)(i) for i in range(2)))\n")
        self.names("<dynamic-code>:4", self.tool("python"), program)

    def test_pickled_function_that_the_program_calls_names_the_program(self):
        program = self.write("user/calls.py", "import ctypes, pickle\nimport cloudpickle\n"
                             "def ask(): ctypes.CDLL('libcuda.so.1').cuInit(0)\n"
                             "again = pickle.loads(cloudpickle.dumps(ask))\nagain()\n")
        found = self.names("calls.py:5", self.tool("python"), program)
        self.assertEqual(found[0]["python"][0]["file"], "<dynamic-code>", found)

    def test_pex_names_the_user(self):
        self.make(self.tool("python"), "-m", "pex", "--no-index", self.wheel(), "-D",
                  self.path("user"), "-m", "program:main", "-o", self.path("program.pex"),
                  PEX_ROOT=self.path("pex"))
        # The tool pex is not needed to run the program.
        self.names("program.py:5", PYTHON, self.path("program.pex"), "plain",
                   PEX_ROOT=self.path("pex"))

    def test_shiv_names_the_outermost_line_of_its_packages(self):
        """The user's module is installed like the others, so the one that calls them is named."""
        os.makedirs(self.path("whole"))
        packages = self.vendor("whole/packages")
        shutil.copy(self.user, packages)
        self.make(self.tool("python"), "-m", "shiv.cli", "--site-packages", packages, "-e",
                  "program:main", "-o", self.path("program.shiv"))
        found = self.names("program.py:5", PYTHON, self.path("program.shiv"), "plain",
                           SHIV_ROOT=self.path("shiv"))
        self.assertIn("/_bootstrap/__init__.py", "".join(row["file"] for row in found[0]["python"]))


make_generated_case = fixtures.lent("generated_case", Generated)


@pytest.mark.parametrize(
    "how", ["beartype", "makefun", "boltons", "networkx", "sympy", "exec", "dataclass"])
def test_code_that_a_library_generates_is_not_named(generated_case, how):
    where = generated_case.vendor("packages")
    found = generated_case.names("program.py:5", generated_case.tool("python"), generated_case.user,
                                 how, PYTHONPATH=where)
    assert "<" in "".join(row["file"] for row in found[0]["python"])


class Places(Case):
    def test_package_beside_its_metadata_is_not_the_users(self):
        self.names("program.py:5", PYTHON, self.user, "plain", PYTHONPATH=self.vendor("packages"))

    def test_package_in_the_scripts_directory_is_not_the_users(self):
        self.vendor("user/of_all")
        for name in os.listdir(self.path("user/of_all")):
            shutil.move(self.path("user/of_all", name), self.path("user"))
        self.names("program.py:5", PYTHON, self.user, "plain")

    def test_module_of_a_package_is_not_the_users_outside_the_scripts_directory(self):
        self.write("packages/of_others-1.0.dist-info/METADATA", "")
        inner = self.write("packages/vendored.py",
                           MODULE_ASKS.replace("cuInit\n", "cuInit(0)\n").replace(
                               "return", "return lambda x:"))
        self.names("program.py:5", PYTHON, self.user, "plain", PYTHONPATH=os.path.dirname(inner))

    def test_users_own_package_without_metadata_is_named(self):
        package = self.write("library/vendored/__init__.py", "")
        shutil.copy(VENDORED, package)
        with open(VENDORED, encoding="utf-8") as stream:
            line = 1 + stream.read().splitlines().index("    return ctypes.CDLL(DRIVER).cuInit(0)")
        self.names("__init__.py:%d" % line, PYTHON, self.user, "plain",
                   PYTHONPATH=self.path("library"))

    def test_users_module_beside_metadata_is_named_in_the_scripts_directory(self):
        """AWS Lambda wants all packages in the directory of the program."""
        self.write("user/of_others-1.0.dist-info/METADATA", "")
        self.write("user/vendored.py", MODULE_ASKS.replace("cuInit\n", "cuInit(0)\n").replace(
            "return", "return lambda x:"))
        self.names("vendored.py:4", PYTHON, self.user, "plain")

    def test_command_with_a_package_that_generates_code_names_the_command(self):
        self.names("<string>:1", PYTHON, "-c", "import vendored; vendored.get('plain')(1)",
                   PYTHONPATH=self.vendor("packages"))

    def test_function_of_a_command_is_named_before_the_module_that_calls_it(self):
        self.write("user/calls.py", "def call(function):\n    function()\n")
        self.names("<string>:3", PYTHON, "-c", "import ctypes, calls\ndef ask():\n"
                   "    ctypes.CDLL('libcuda.so.1').cuInit(0)\ncalls.call(ask)",
                   PYTHONPATH=self.path("user"))

    def test_zipapp_names_the_user(self):
        packages = self.vendor("whole")
        shutil.copy(self.user, packages)
        zipapp.create_archive(packages, self.path("program.pyz"), main="program:main")
        self.names("program.py:5", PYTHON, self.path("program.pyz"), "plain")

    def test_zipapp_without_packages_names_the_innermost_line(self):
        self.write("whole/__main__.py", "from inner import asks\nasks.get(0)(0)\n")
        self.write("whole/inner/__init__.py", "")
        self.write("whole/inner/asks.py", MODULE_ASKS.replace("cuInit\n", "cuInit(0)\n").replace(
            "return", "return lambda x:"))
        zipapp.create_archive(self.path("whole"), self.path("program.pyz"))
        self.names("asks.py:4", PYTHON, self.path("program.pyz"))

    def test_zipapp_names_the_outermost_line_of_its_packages(self):
        packages = self.vendor("whole")
        self.write("whole/own/__init__.py", "")
        shutil.copy(self.user, self.path("whole/own/program.py"))
        self.write("whole/own/start.py", "from own import program\n\ndef main():\n"
                   "    program.main()\n")
        zipapp.create_archive(packages, self.path("program.pyz"), main="own.start:main")
        self.names("start.py:4", PYTHON, self.path("program.pyz"), "plain")

    def test_zipapps_own_main_program_is_named_if_it_asks(self):
        self.write("whole/__main__.py", "import ctypes\n"
                   "ctypes.CDLL('libcuda.so.1').cuInit(0)\n")
        zipapp.create_archive(self.path("whole"), self.path("program.pyz"))
        self.names("__main__.py:2", PYTHON, self.path("program.pyz"))


class Bundles(Case):
    """PyInstaller's programs have modules without directories and without files. This makes the
    same names with plain Python; Bundlers tests the tools themselves."""

    def compiled(self, source, name):
        """Compiles a file to a module that says it is `name`."""
        place = self.path("bundle", name + "c")
        os.makedirs(os.path.dirname(place), exist_ok=True)
        self.make(PYTHON, "-c", "import py_compile, sys; py_compile.compile(*sys.argv[1:4], True)",
                  source, place, name)
        return place

    def test_modules_without_files_do_not_hide_the_program(self):
        program = self.compiled(self.user, "program.py")
        self.compiled(VENDORED, "vendored/__init__.py")
        found = self.names("program.py:5", PYTHON, program, "plain")
        self.assertEqual(found[0]["python"][0]["file"], "vendored/__init__.py", found)

    def test_thread_of_a_bundled_program_does_not_name_the_standard_library(self):
        self.compiled(VENDORED, "vendored/__init__.py")
        thread = self.write("source/threading.py", "import _thread\n"
                            "from _thread import RLock  # for Python 3.14's ctypes\n"
                            "def run(what, ended):\n    what(1)\n"
                            "    ended.release()\n")
        self.compiled(thread, "threading.py")
        program = self.compiled(self.write("user/thread.py", "import _thread, vendored\n"
                                "import threading\nended = _thread.allocate_lock()\n"
                                "ended.acquire()\ndef work(x): vendored.get('plain')(x)\n"
                                "_thread.start_new_thread(threading.run, (work, ended))\n"
                                "ended.acquire()\n"), "thread.py")
        self.names("thread.py:5", PYTHON, program)


@pytest.mark.full
class Bundlers(Case):
    environment = "bundlers"

    def test_cx_freeze_names_the_program(self):
        where = self.vendor("packages")
        self.make(self.tool("cxfreeze"), "build_exe", "--script", self.user, "--build-exe",
                  self.path("frozen"), PYTHONPATH=where)
        self.names("program.py:5", self.path("frozen", "program"), "plain")

    def test_nuitka_names_the_line_of_the_call(self):
        where = self.vendor("packages")
        self.make(self.tool("python"), "-m", "nuitka", "--standalone", "--assume-yes-for-downloads",
                  "--output-dir=" + self.path("compiled"), self.user, PYTHONPATH=where)
        self.names("program.py:5", self.path("compiled", "program.dist", "program.bin"), "plain")

    def test_nuitka_names_each_line_of_a_function(self):
        """Its frames have no instruction pointer that would tell the calls apart."""
        program = self.write("user/two.py", "import ctypes\ncuda = ctypes.CDLL('libcuda.so.1')\n"
                             "def main():\n    cuda.cuInit(0)\n    cuda.cuInit(0)\nmain()\n")
        self.make(self.tool("python"), "-m", "nuitka", "--assume-yes-for-downloads",
                  "--output-dir=" + self.path("compiled"), program)
        words = [self.path("compiled", "two.bin")]
        harness.run(words, guard=False, trace=False).assert_reached(self)
        verified = harness.run([LAUNCHER, "verify", "--", *words], world="none", guard=False,
                               trace=False)
        self.assertEqual(verified.rc, 1, verified)
        self.assertIn("FAIL: 2 lines asked for CUDA", verified.err)


make_bundlers_case = fixtures.lent("bundlers_case", Bundlers)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["--onedir", "--onefile"])
def test_pyinstaller_names_the_program(bundlers_case, kind):
    where = bundlers_case.vendor("packages")
    bundlers_case.make(bundlers_case.tool("pyinstaller"), kind, "--distpath",
                       bundlers_case.path(kind),
                       "--workpath", bundlers_case.path("work"), "--specpath",
                       bundlers_case.path("work"), "--paths", where, bundlers_case.user)
    name = "program/program" if kind == "--onedir" else "program"
    bundlers_case.names("program.py:5", bundlers_case.path(kind, name), "plain")
