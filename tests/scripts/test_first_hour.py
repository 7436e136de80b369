# SPDX-License-Identifier: Apache-2.0
"""If scripts/quickstart and scripts/test cannot work, they print one line that says what to do."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest

import pytest

from support import fixtures, harness

SCRIPTS = os.path.join(harness.SOURCE, "scripts")
NOBODY = "65534"
# Each tool prints this and records its arguments in a file.
STUB = '#!/bin/bash\necho "${0##*/} $*" >>"$NOTES"\n%s\n'
TOOLS = {
    "id": "echo 1000",
    "dpkg-query": 'case "${@: -1}" in cmake | make) echo "install ok installed" ;; *) exit 1 ;; esac',
    "apt-get": "exit 0",
    "apt-cache": "echo Package: x",
}  # fmt: skip


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="cg-")
        self.addCleanup(scratch.cleanup)
        self.directory = scratch.name

    def stubs(self, tools):
        """Returns a PATH with the shell's usual tools and these replacements for apt and similar
        tools."""
        path = os.path.join(self.directory, "bin")
        os.mkdir(path)
        for name in ("bash", "env", "dirname", "basename", "cat", "chmod", "grep", "head", "mkdir", "rm",
                     "sed", "sort"):
            os.symlink(shutil.which(name), os.path.join(path, name))
        for name, body in tools.items():
            with open(os.path.join(path, name), "w", encoding="utf-8") as stream:
                stream.write(STUB % body)
            os.chmod(os.path.join(path, name), 0o755)
        return path

    def copy(self, name):
        place = os.path.join(self.directory, name)
        shutil.copytree(SCRIPTS, os.path.join(place, "scripts"), symlinks=True)
        return place

    def call(self, command, path=None):
        self.notes = os.path.join(self.directory, "notes")
        env = {"PATH": path or os.environ["PATH"], "NOTES": self.notes, "LC_ALL": "C.UTF-8"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120,
                              stdin=subprocess.DEVNULL)
        noted = ""
        if os.path.exists(self.notes):
            with open(self.notes, encoding="utf-8") as stream:
                noted = stream.read()
        return done, noted


class Path(Case):
    """LD_PRELOAD cannot name a file below such a directory. The script reports it before it does
    anything."""

    def test_link_does_not_hide_a_bad_path(self):
        place = self.copy("real place")
        os.symlink(place, os.path.join(self.directory, "link"))
        done, _ = self.call([os.path.join(self.directory, "link", "scripts", "quickstart")],
                            self.stubs(TOOLS))
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(place, done.stderr)

    def test_control_good_path_is_accepted(self):
        """Control: in another place the same copy continues with the packages."""
        done, noted = self.call([os.path.join(self.copy("plain"), "scripts", "quickstart")],
                                self.stubs(TOOLS))
        self.assertNotIn("please move", done.stderr)
        self.assertIn("dpkg-query", noted)


make_path_case = fixtures.lent("path_case", Path)


@pytest.mark.parametrize("name", ["with space", "with:colon"])
def test_bad_path_is_refused_at_once(path_case, name):
    path = path_case.stubs(TOOLS)
    place = path_case.copy(name)
    for script in ("quickstart", "test"):
        done, noted = path_case.call([os.path.join(place, "scripts", script)], path)
        assert done.returncode == 1, str(done)
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1, done.stderr
        assert place + "; please move the checkout" in done.stderr
        assert noted == ""


class OldCMake(Case):
    """Debian 11 has CMake 3.18, which knows no presets."""

    def test_without_apt_the_line_names_what_is_needed_and_the_option(self):
        tools = {name: text for name, text in TOOLS.items() if not name.startswith(("apt", "dpkg"))}
        done, _ = self.call([os.path.join(self.copy("plain"), "scripts", "test")], self.stubs(tools))
        self.assertEqual((done.returncode, done.stdout), (1, ""), done)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for word in ("no apt-get", "CMake", "GoogleTest", "pytest", "scripts/test --no-install"):
            self.assertIn(word, done.stderr)


make_old_cmake = fixtures.lent("old_cmake", OldCMake)


@pytest.mark.parametrize("script", ["quickstart", "test", "install-build-deps"])
@pytest.mark.parametrize("tools", [{"cmake": "echo cmake version 3.18.4"}, {
    "id": "echo 0", "apt-get": "", "apt-cache": "echo '  Candidate: 3.18.4-2'"
}])
def test_old_cmake_is_one_line(old_cmake, tools, script):
    place = old_cmake.copy("plain")
    done, noted = old_cmake.call([os.path.join(place, "scripts", script)],
                                 old_cmake.stubs({**TOOLS, **tools}))
    shutil.rmtree(place)
    shutil.rmtree(os.path.join(old_cmake.directory, "bin"))
    assert (done.returncode, done.stdout) == (1, ""), str(done)
    assert done.stderr.count("\n") == 1, done.stderr
    assert "CMake 3.18.4" in done.stderr
    assert "needs 3.22 (Debian 12 or newer)" in done.stderr
    assert "install" not in noted


class Owner(Case):
    """The checkout belongs to a user other than the one who runs the script."""

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            harness.skip(self, "needs root, for files of another user")
        if not shutil.which("git"):
            harness.skip(self, "not installed: git")
        os.chmod(self.directory, 0o777)

    def checkout(self, owner):
        place = os.path.join(self.directory, "checkout")
        shutil.copytree(SCRIPTS, os.path.join(place, "scripts"), symlinks=True)
        shutil.copy(os.path.join(harness.SOURCE, "CMakeLists.txt"), place)
        git = ["git", "-C", place, "-c", "user.name=x", "-c", "user.email=x"]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
            subprocess.run([*git, *words], check=True, timeout=60)
        subprocess.run(["chown", "-R", owner, place], check=True, timeout=60)
        return place

    def test_release_reads_another_users_commit(self):
        """The script reaches the step "packages", which follows all that it asks git at the start.
        """
        place = self.checkout(NOBODY)
        with open(os.path.join(place, "scripts", "install-build-deps"), "w") as stream:
            stream.write("#!/bin/sh\necho packages; exit 3\n")
        done, _ = self.call(["env", "-u", "SUDO_UID", place + "/scripts/release", "--quick"])
        self.assertEqual(done.returncode, 3, done)
        self.assertTrue(done.stdout.endswith("packages\n"), done)
        self.assertNotIn("dubious ownership", done.stderr)
        # Control: git refuses this checkout.
        done, _ = self.call(["git", "-C", place, "rev-parse", "HEAD"])
        self.assertIn("dubious ownership", done.stderr)

    def test_build_must_be_writable(self):
        place = self.checkout("0")
        user = [shutil.which("setpriv"), "--reuid=" + NOBODY, "--clear-groups"]
        done, _ = self.call([*user, place + "/scripts/test"], self.stubs(TOOLS))
        self.assertEqual((done.returncode, done.stdout), (1, ""), done)
        self.assertRegex(done.stderr, "^cudaguard: %s/build: Permission denied; please " % place)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        # Control: with a writable build/ it continues with the packages.
        os.mkdir(os.path.join(place, "build"))
        os.chmod(os.path.join(place, "build"), 0o777)
        done, _ = self.call([*user, place + "/scripts/test"], os.path.join(self.directory, "bin"))
        self.assertIn("please install: ", done.stderr)


class Packages(Case):
    def install(self, tools, script="install-build-deps"):
        return self.call([os.path.join(SCRIPTS, script)], self.stubs(tools))

    def test_root_installs_silently(self):
        done, noted = self.install({**TOOLS, "id": "echo 0", "apt-get": "echo Reading; echo W: >&2"})
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        self.assertRegex(done.stdout, r"\Ainstalling: g\+\+ [^\n]*\n\Z")
        self.assertIn("apt-get update", noted)
        self.assertRegex(noted, r"apt-get install .* g\+\+")

    def test_sudo_installs_if_the_user_is_not_root(self):
        done, noted = self.install({**TOOLS, "sudo": '"$@"'})
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(noted, r"sudo env .*apt-get install .* g\+\+")

    def test_apts_error_is_printed(self):
        fails = 'case "$*" in *install*) echo Reading lists; echo "E: Unable to fetch" >&2; exit 100 ;; esac'
        done, _ = self.install({**TOOLS, "id": "echo 0", "apt-get": fails})
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("E: Unable to fetch", done.stderr)
        self.assertIn("Reading lists", done.stderr)

    def test_packages_that_the_release_lacks_are_left_out(self):
        """apt treats an unknown package name with a + in it as a pattern."""
        has = ('for one in "$@"; do case $one in g++-1[34]) echo Package: clang-13 ;;'
               ' show | ruby) ;; *) echo "Package: $one" ;; esac; done')
        done, noted = self.call([os.path.join(SCRIPTS, "install-test-deps"), "--full"],
                                self.stubs({**TOOLS, "id": "echo 0", "apt-cache": has}))
        self.assertEqual(done.returncode, 0, done)
        for name in ("g++-13", "g++-14", "ruby"):
            self.assertIn("cudaguard: no package %s in this release; " % name, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 3, done.stderr)
        installed = re.search(r"apt-get install .*", noted)[0].split()
        self.assertIn("g++-12", installed)
        self.assertFalse({"g++-13", "g++-14", "ruby", "clang-13"} & set(installed), installed)


make_packages_case = fixtures.lent("packages_case", Packages)


@pytest.mark.parametrize(("script", "some"), [("install-build-deps", "g++ ninja-build python3"),
                                              ("install-test-deps", "strace")])
def test_missing_packages_are_named_without_root(packages_case, script, some):
    done, noted = packages_case.install(TOOLS, script)
    shutil.rmtree(os.path.join(packages_case.directory, "bin"))
    assert done.returncode == 1, str(done)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert re.search("^cudaguard: please install: .*" + some.replace("+", r"\+"),
                     done.stderr), done.stderr
    assert "root or sudo" in done.stderr
    assert "cmake" not in done.stderr  # cmake is installed
    assert "apt-get" not in noted


make_release = fixtures.lent("release", Owner)


# Each says on the FIFO that it has started, or waits for that of the other one and fails. The second
# replaces pip, so it makes the directory that pip would make.
WAITS = 'echo >"$STARTED"; exec sleep 600'
FAILS = 'read -r _ <"$STARTED"; echo "no space left" >&2; exit 1'
CMAKE = '[ "$*" != --version ] || { echo cmake version 3.25.1; exit; }\n'
PYTHON = """case "$*" in
*--version) exit ;;
*"pip install"*) while [ $# -gt 1 ] && [ "$1" != --target ]; do shift; done; exec mkdir -p "$2" ;;
esac
"""


@pytest.mark.parametrize("cmake, python", [(WAITS, FAILS), (FAILS, WAITS)])
def test_release_of_a_fresh_clone_stops_at_the_first_error(release, cmake, python):
    """No process of the other build goes on: each would hold the pipe open."""
    place = release.checkout("0")
    build = os.path.join(place, "build")
    path = release.stubs({"cmake": CMAKE + cmake, "python3": PYTHON + python,
                          "dpkg-query": "echo install ok installed"})
    fifo = os.path.join(release.directory, "fifo")
    os.mkfifo(fifo)
    ours, theirs = os.pipe()
    with open(ours, "rb") as stream:
        with open(theirs, "wb"):
            done = subprocess.run(
                [os.path.join(place, "scripts", "release"), "--quick"], text=True, timeout=120,
                env={"PATH": path + ":" + os.environ["PATH"], "STARTED": fifo, "NOTES": os.devnull},
                stdin=subprocess.DEVNULL, capture_output=True, pass_fds=[theirs])
        assert stream.read() == b""
    assert done.returncode == 1, done
    assert "no space left" in done.stderr
    assert "mkdir" not in done.stderr, "a link in the release leads to no directory"
    assert done.stderr.splitlines()[-1].startswith("scripts/release: nothing is released; please "), done.stderr
    assert not [name for place, _, names in os.walk(build) for name in names if "release" in place]


@pytest.mark.parametrize("words", [[], ["out"], ["--address"], ["--address", ""],
                                   ["--quick", "--address", ""]])
def test_release_needs_an_address(release, words):
    place = release.checkout("0")
    done, _ = release.call([place + "/scripts/release", *words])
    assert (done.returncode, done.stdout) == (1, ""), done
    assert done.stderr.startswith("scripts/release: a release needs an address: --address https://")
    assert not os.path.exists(place + "/build")


@pytest.mark.parametrize("first", [[], ["--quick"]])
@pytest.mark.parametrize("address", ["github.com/ann/cudaguard", "https://github.com/cudaguard",
                                     "https://github.com/ann/other", "https://a b/c/cudaguard"])
def test_release_refuses_a_bad_address_before_it_installs(release, first, address):
    place = release.checkout("0")
    tools = {name: "echo changed >&2; exit 1" for name in ("apt-get", "dpkg-query")}
    path = release.stubs(tools)
    done = subprocess.run([place + "/scripts/release", *first, "--address", address], text=True,
                          env={"PATH": path + ":" + os.environ["PATH"]}, timeout=120,
                          stdin=subprocess.DEVNULL, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (
        1, "", 'scripts/release: --address "%s" is not accepted (accepted: '
        'https://HOST/ACCOUNT/cudaguard)\n' % address)
    assert not os.path.exists(place + "/build")
