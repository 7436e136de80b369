# SPDX-License-Identifier: Apache-2.0
"""The wheel contains the right files, and guards wherever pip and uv install it."""

import glob
import os
import shlex
import shutil
import stat
import sys
import tempfile
import zipfile

import pytest

from support import fixtures, harness, packaged

ATTEMPT = "import ctypes; print('cuInit=%d' % ctypes.CDLL('libcuda.so.1').cuInit(0))"
MOST_BYTES = 2000000  # Debian 13 makes the larger launcher, with 1,816,523 bytes on 2026-11-27
# If links are missing, another file name or RTLD_DEEPBIND would open these.
ENTRY_POINTS = ("deepbind", "nvml.deepbind-plugin-dev", "opencl.deepbind")
# Where a wheel has the files of these directories.
PLACES = (("bin/", "{}/scripts/"), ("lib/", "{}/data/libexec/"), ("share/cudaguard/python/", ""),
          ("share/", "{}/data/share/"), ("include/", "{}/data/include/"))
EXECUTABLE = ("scripts/cudaguard", "cudaguard-probe", "fence-profile", "make-image",
              "install-kernel", "task-prolog")
SPACE = "takes no path with a space or a colon"


def environment(**more):
    """Returns the environment without variables that tell pip or Python where to search."""
    env = {key: value for key, value in os.environ.items()
           if not key.startswith(("PYTHON", "PIP_", "UV_")) and not harness.SCRUBBED.match(key)}
    return {**env, "PYTHONDONTWRITEBYTECODE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_ROOT_USER_ACTION": "ignore", "PIP_BREAK_SYSTEM_PACKAGES": "1", "LC_ALL": "C.UTF-8",
            **more}


class Case(packaged.Case):
    installed = None

    def setUp(self):
        super().setUp()
        self.wheel = packaged.released(self, packaged.WHEEL)

    def ok(self, *words, **env):
        done = packaged.run(list(map(str, words)), env=environment(**env))
        self.assertEqual(done.returncode, 0, done)
        return done.stdout

    def install(self, *words, **env):
        """Installs with the pip of the shell's python3, without an index."""
        return self.ok(sys.executable, "-m", "pip", "install", "-q", "--no-index", *words, self.wheel,
                       **env)

    def target(self, name="target"):
        """Returns the result of `pip install --target`, which is installed once and then copied."""
        if Case.installed is None:
            Case.installed = tempfile.TemporaryDirectory(prefix="cg-")
            self.install("--target", Case.installed.name + "/target")
        shutil.copytree(Case.installed.name + "/target", self.path(name), symlinks=True)
        return self.path(name)

    def venv(self, *words):
        self.ok(sys.executable, "-m", "venv", self.path("venv"), *words)
        return self.path("venv")

    def uv_venv(self):
        """Makes an environment into which uv has installed the wheel and uv."""
        found = glob.glob(os.path.join(harness.DEPS, "frameworks", ".uv-*", "bin", "uv"))
        if not found:
            harness.skip(self, "no uv: scripts/fetch-frameworks %s pytest" % harness.DEPS)
        venv = self.venv("--without-pip")

        def uv(*words, **env):
            self.ok(found[0], *words, self.wheel, UV_CACHE_DIR=self.path("cache"), UV_OFFLINE="1",
                    HOME=self.directory, **env)

        uv("pip", "install", "-q", "--python", venv + "/bin/python")
        return venv, uv

    def guards(self, prefix, python=sys.executable, **env):
        """Fails unless bin/cudaguard guards this Python and the package knows its place. Each has a
        control."""
        def start(*words):
            result = harness.run(words, guard=False, env=env, cwd="/")
            result.driver_files = [path for path in result.driver_files
                                   if not path.startswith(prefix + "/libexec/")]
            return result

        launcher = prefix + "/bin/cudaguard"
        unguarded = start(python, "-c", ATTEMPT)
        unguarded.assert_reached(self)
        self.assertEqual(unguarded.answers["cuInit"], "0", unguarded)
        guarded = start(launcher, "run", "--", python, "-c", ATTEMPT)
        guarded.assert_untouched(self)
        self.assertEqual(guarded.answers["cuInit"], "100", guarded)
        self.assertEqual(guarded.err.count("\n"), 1, guarded)
        asked = start(python, "-c", "import cudaguard as c; print(c.launcher(), c.library())\n"
                      "try: c.attempts()\nexcept c.NotGuarded as why: print(why)")
        library = prefix + "/libexec/libcudaguard.so"
        self.assertEqual(asked.out.splitlines()[0], "%s %s" % (launcher, library), asked)
        self.assertIn("not loaded in this process", asked.out)
        code = "import cudaguard; print(cudaguard.attempts()); %s; print(cudaguard.attempts())"
        counted = harness.run([python, "-c", code % ATTEMPT], guard=False,
                              env={**env, "LD_PRELOAD": library}, cwd="/")
        self.assertEqual(counted.out, "0\ncuInit=100\n1\n", counted)
        same = start(python, "-m", "cudaguard", "run", "--log=off", "--", python, "-c", ATTEMPT)
        self.assertEqual((same.out, same.err, same.rc), ("cuInit=100\n", "", 0), same)
        self.assertEqual(start(python, "-m", "cudaguard", "run", "false").rc, 1)


def files_of_a_wheel():
    """What `cmake --install` makes, in a wheel's directories."""
    name = "cudaguard-%s." % packaged.version()
    found = {name + "dist-info/" + file for file in (
        "METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE",
        "licenses/scripts/packaging/debian/copyright")}
    for file in packaged.listed():
        start, place = next(pair for pair in PLACES if file.startswith(pair[0]))
        found.add(place.format(name + "data") + file[len(start):])
    return found


class Wheel(Case):
    def test_wheel_has_the_listed_files(self):
        with zipfile.ZipFile(self.wheel) as archive:
            members = archive.infolist()
        modes = {member.filename: stat.S_IMODE(member.external_attr >> 16) for member in members}
        self.assertEqual(modes, {name: 0o755 if name.endswith(EXECUTABLE) else 0o644
                                 for name in files_of_a_wheel()})
        self.assertEqual(len(modes), len(members))
        self.assertEqual([member.filename for member in members
                          if not stat.S_ISREG(member.external_attr >> 16)], [])
        self.assertLess(os.path.getsize(self.wheel), MOST_BYTES)

    def test_wheel_in_a_venv_guards_and_uninstalls(self):
        """conda's pip does the same: both install into a prefix with lib/python3.X/site-packages in
        it."""
        venv = self.venv()
        # The environment's own pip installs it, because --prefix means PREFIX/local to Debian's
        # pip.
        self.ok(venv + "/bin/pip", "install", "-q", "--no-index", self.wheel)
        python = venv + "/bin/python"
        self.guards(venv, python)
        link = self.path("link")  # pipx makes such links
        os.symlink(venv + "/bin/cudaguard", link)
        result = harness.run([link, "run", "--log=off", "--", python, "-c", ATTEMPT], guard=False,
                             trace=False)
        self.assertEqual((result.out, result.err), ("cuInit=100\n", ""), result)
        # Uninstalling removes every file.
        self.assertTrue(os.path.exists(venv + "/share/cudaguard"))
        self.ok(venv + "/bin/pip", "uninstall", "-q", "-y", "cudaguard")
        left = [os.path.join(parent, name) for parent, _, names in os.walk(venv) for name in names
                if "cudaguard" in os.path.join(parent, name)[len(self.directory):]]
        self.assertEqual(left, [])

    def test_wheel_in_the_users_directory_guards(self):
        base = self.path("base")
        self.install("--user", PYTHONUSERBASE=base)
        self.guards(base, PYTHONUSERBASE=base)

    def test_wheel_in_a_target_directory_guards(self):
        target = self.target()
        self.guards(target, PYTHONPATH=target)

    def test_wheel_installed_by_uv_guards(self):
        venv, uv = self.uv_venv()
        self.guards(venv, venv + "/bin/python")
        target = self.path("target")
        uv("pip", "install", "-q", "--python", venv + "/bin/python", "--target", target)
        self.guards(target, PYTHONPATH=target)
        uv("tool", "install", "-q", "--python", sys.executable, UV_TOOL_DIR=self.path("tools"),
           UV_TOOL_BIN_DIR=self.path("bin"))
        result = harness.run([self.path("bin", "cudaguard"), "run", "--log=off", "--",
                              sys.executable, "-c", ATTEMPT], guard=False, trace=False)
        self.assertEqual((result.out, result.err), ("cuInit=100\n", ""), result)

    def test_copies_replace_links_in_the_entry_point_matrix(self):
        """A wheel has no links, so these files replace them. They suffice and are necessary."""
        lib = self.target() + "/libexec"
        entry_points = [sys.executable, os.path.join(harness.SOURCE, "tests", "entry_points", "entry_points.py"), "--lib", lib]
        for group in () if harness.FULL else ENTRY_POINTS:
            entry_points += ["--entry-point", group]
        done = packaged.run(entry_points, timeout=850)
        self.assertEqual(done.returncode, 0, done.stdout[-6000:])
        self.assertRegex(done.stdout, r"\n[1-9]\d* passed, 0 failed")
        for name in ("libcuda.so", "libnvidia-ml.so", "libnvidia-opencl.so.1"):
            os.unlink(os.path.join(lib, "cudaguard", name))
        control = packaged.run(entry_points, timeout=850)
        self.assertEqual(control.returncode, 1, control.stdout[-2000:])
        rows = ["deepbind.plugin-dev-first", "nvml.deepbind-plugin-dev"]
        if harness.have_real_driver():  # without its OpenCL, the unguarded program asks nothing
            rows.append("opencl.deepbind")
        for row in rows:
            self.assertRegex(control.stdout, r"(?m)^%s +\|.*FAIL" % row)

    def test_pytest_plugin_works_from_the_wheel(self):
        """The plug-in works with and without "-p"."""
        python = self.need_fetched("pytest") + "/python"
        target = self.target()
        self.make("test_it.py", "def test_attempt():\n    %s\n" % ATTEMPT)
        pytest = (python, "-m", "pytest", "-p", "no:cacheprovider", "test_it.py")

        def start(*words):
            return harness.run(words, guard=False, trace=False, cwd=self.directory,
                               env={"PYTHONPATH": target, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": None})

        launcher = (target + "/bin/cudaguard", "run", "--")
        self.assertEqual(start(*launcher, *pytest).rc, 0)  # control: --cudaguard is not given
        unguarded = start(*pytest, "--cudaguard")
        self.assertEqual(unguarded.rc, 4, unguarded)
        for more in ((), ("-p", "cudaguard.pytest_plugin")):
            failed = start(*launcher, *pytest, *more, "--cudaguard")
            self.assertEqual(failed.rc, 1, failed)
            self.assertIn("CUDA was asked for by test_it.py:2", failed.out)

    def test_kernel_from_the_wheel_is_installed(self):
        python = self.need_fetched("jupyter") + "/python"
        target = self.target()
        self.ok(python, "-m", "cudaguard.install_kernel", "--prefix", self.path("jupyter"),
                PYTHONPATH=target)
        path = self.path("jupyter", "share", "jupyter", "kernels", "cudaguard-cpu", "kernel.json")
        self.assertIn('"%s/bin/cudaguard"' % target, harness.read(path))

    def test_editable_install_guards(self):
        """`pip install -e .` leaves the package in the checkout and the rest in the environment."""
        venv, _ = self.uv_venv()
        (packages,) = glob.glob(venv + "/lib/python3*/site-packages")
        shutil.rmtree(packages + "/cudaguard")
        with open(packages + "/cudaguard.pth", "w", encoding="utf-8") as stream:
            stream.write(os.path.join(harness.SOURCE, "shim", "python") + "\n")
        self.guards(venv, venv + "/bin/python")

    def test_package_alone_reports_the_missing_launcher(self):
        package = shutil.copytree(os.path.join(harness.SOURCE, "shim", "python"), self.path("packages"))
        venv = self.venv("--without-pip")
        done = packaged.run([venv + "/bin/python", "-m", "cudaguard", "run", "true"],
                            env=environment(PYTHONPATH=package))
        self.assertEqual(done.returncode, 125, done)
        self.assertRegex(done.stdout, r"\Acudaguard: there is no bin/cudaguard in a directory above .+, "
                         "nor in %s\n\\Z" % venv)


@pytest.mark.full
def test_wheel_has_its_own_libdir_in_a_conda_build(tmp_path):
    """conda-forge's compilers set CMAKE_ARGS, which scikit-build-core passes to CMake. With "lib"
    the libraries went to a directory of the source, and the package had none."""
    words = ["cmake", "-S", harness.SOURCE, "-B", str(tmp_path), "-DCMAKE_INSTALL_LIBDIR=lib"]
    for wheel, place in ((["-DSKBUILD=2", "-DSKBUILD_SCRIPTS_DIR=bin"], "libexec"), ([], "lib")):
        done = packaged.run([*words, *wheel])
        assert done.returncode == 0, done.stdout
        cache = (tmp_path / "CMakeCache.txt").read_text(encoding="utf-8")
        assert "\nCMAKE_INSTALL_LIBDIR:PATH=%s\n" % place in cache
        shutil.rmtree(tmp_path)


make_wheel_case = fixtures.lent("wheel_case", Wheel)


@pytest.mark.parametrize("name", ["with space", "with:colon"])
def test_path_with_a_space_is_refused(wheel_case, name):
    wheel_case.target(name)
    launcher = wheel_case.path(name, "bin", "cudaguard")
    done = packaged.run([launcher, "run", "true"], env=environment())
    assert done.returncode == 125, str(done)
    assert SPACE in done.stdout
    assert "install cudaguard elsewhere" in done.stdout
    code = ("import sys; sys.path[:0] = [sys.argv[1]]\nimport cudaguard\n"
            "try: cudaguard.library()\nexcept cudaguard.NotUsable as why: print(why)")
    assert wheel_case.ok(sys.executable, "-c", code, wheel_case.path(name)) == done.stdout


class OtherMachine(packaged.Case):
    def test_wheel_of_the_other_machine_has_the_same_files(self):
        """The wheel for AArch64 has the same files. test_release checks that they are built for
        that machine."""
        other = {"x86_64": "aarch64", "aarch64": "x86_64"}[packaged.MACHINE]
        names = []
        for machine in (packaged.MACHINE, other):
            path = packaged.released(self, packaged.wheel(machine), machine != other)
            with zipfile.ZipFile(path) as archive:
                names.append(sorted(archive.namelist()))
        self.assertEqual(*names)


make_systems = fixtures.lent("systems", Case)


@pytest.mark.full
@pytest.mark.parametrize("suite", ["xenial", *packaged.SUITES])
def test_wheel_guards_in_other_systems(systems, suite):
    """With their own Python, from the oldest glibc to the newest."""
    # The oldest system's Python is too old for the package, but not for the guard.
    python = "python3" if suite == "xenial" else "python3 python3-pip"
    machine = systems.machine(suite)
    machine.sh("! grep -q ubuntu /etc/os-release || "
               "sed -i 's/ main$/ main universe/' /etc/apt/sources.list")
    machine.sh("apt-get update -q && apt-get install -y -q --no-install-recommends " + python,
               timeout=900)
    wheel = machine.put(systems.wheel)
    asks = "python3 -c " + shlex.quote(packaged.ASK)
    assert packaged.NONE in machine.sh(asks, ok=False).stdout
    if suite == "xenial":
        systems.ok("tar", "-cf", systems.path("target.tar"), "-C", systems.target(), ".")
        machine.sh("tar -xf %s -C /usr/local" % machine.put(systems.path("target.tar")))
    else:
        machine.sh("PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install -q --no-index " + wheel)
        path = machine.sh("python3 -c 'import cudaguard as c; print(c.library())'").stdout
        assert path == "/usr/local/libexec/libcudaguard.so\n"
    printed = machine.sh("/usr/local/bin/cudaguard run --log off -- " + asks).stdout
    assert printed == "100\n"
