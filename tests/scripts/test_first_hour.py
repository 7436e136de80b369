# SPDX-License-Identifier: Apache-2.0
"""If scripts/quickstart, scripts/test and scripts/release cannot work, they print one line that
says what to do."""

import os
import re
import shutil
import subprocess

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
ROOT = {**TOOLS, "id": "echo 0"}
WITHOUT_APT = {"id": TOOLS["id"]}
OLD_CMAKE = {**TOOLS, "cmake": "echo cmake version 3.18.4"}
# CMake is not installed yet, and apt would install this one.
OLD_CANDIDATE = {**ROOT, "apt-get": "", "apt-cache": "echo '  Candidate: 3.18.4-2'"}


class Case(harness.DirectoryCase):
    def stubs(self, tools):
        """Returns a PATH with the shell's usual tools and these replacements for apt and similar
        tools."""
        path = self.path("bin")
        os.mkdir(path)
        for name in ("bash", "env", "dirname", "basename", "cat", "chmod", "grep", "head", "mkdir", "rm",
                     "sed", "sort"):
            os.symlink(shutil.which(name), os.path.join(path, name))
        for name, body in tools.items():
            self.make("bin/" + name, STUB % body)
        return path

    def copy(self, name):
        shutil.copytree(SCRIPTS, self.path(name, "scripts"), symlinks=True)
        return self.path(name)

    def call(self, *command, path=None):
        """Returns the finished command, and what it called of the stubs."""
        env = {"PATH": path or os.environ["PATH"], "NOTES": self.path("notes"), "LC_ALL": "C.UTF-8"}
        self.make("notes", "")
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120,
                              stdin=subprocess.DEVNULL, check=False)
        return done, harness.read(self.path("notes"))

    def refused(self, done, *words):
        """Fails unless the script printed one line, with these words."""
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(done.stdout, ("", "\n== packages\n"))
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def checkout(self, owner):
        """A committed checkout of the scripts, which belongs to this user."""
        if os.geteuid() != 0:
            harness.skip(self, "needs root, for files of another user")
        self.need("git")
        os.chmod(self.directory, 0o777)
        place = self.copy("checkout")
        shutil.copy(os.path.join(harness.SOURCE, "CMakeLists.txt"), place)
        git = ["git", "-C", place, "-c", "user.name=x", "-c", "user.email=x"]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
            subprocess.run([*git, *words], check=True, timeout=60)
        subprocess.run(["chown", "-R", owner, place], check=True, timeout=60)
        return place


make_case = fixtures.lent("case", Case)


@pytest.mark.parametrize("script", ["quickstart", "test"])
@pytest.mark.parametrize("name", ["with space", "with:colon"])
def test_bad_path_is_refused_at_once(case, name, script):
    """LD_PRELOAD cannot name a file there. A link does not hide the path."""
    os.symlink(case.copy(name), case.path("link"))
    done, noted = case.call(case.path("link", "scripts", script), path=case.stubs(TOOLS))
    case.refused(done, case.path(name) + "; please move the checkout")
    assert noted == ""


@pytest.mark.parametrize(("tools", "script", "words"), [
    # Debian 11 has CMake 3.18, which knows no presets.
    *((tools, script, ["CMake 3.18.4", "needs 3.22 (Debian 12 or newer)"])
      for tools, script in ((OLD_CMAKE, "quickstart"), (OLD_CMAKE, "test"),
                            (OLD_CANDIDATE, "install-build-deps"))),
    (WITHOUT_APT, "test", ["no apt-get", "CMake", "GoogleTest", "scripts/test --no-install"]),
    # quickstart is the control of the paths and of CMake's version, too.
    *((TOOLS, script, ["cudaguard: please install: ", some, "root or sudo"])
      for script, some in (("quickstart", "g++"), ("install-build-deps", "g++ ninja-build python3"),
                           ("install-test-deps", "strace")))])
def test_what_is_missing_is_one_line(case, tools, script, words):
    done, noted = case.call(os.path.join(case.copy("plain"), "scripts", script),
                            path=case.stubs(tools))
    case.refused(done, *words)
    assert "please install" not in done.stderr or "cmake" not in done.stderr  # it is installed
    assert "apt-get install" not in noted


@pytest.mark.parametrize(("tools", "called"), [
    ({**ROOT, "apt-get": "echo Reading; echo W: >&2"},
     r"apt-get update[^\n]*\n(?s:.*)apt-get install"),
    ({**TOOLS, "sudo": '"$@"'}, r"sudo env .*apt-get install")])
def test_packages_are_installed_silently(case, tools, called):
    done, noted = case.call(os.path.join(SCRIPTS, "install-build-deps"), path=case.stubs(tools))
    assert (done.returncode, done.stderr) == (0, ""), done
    assert re.fullmatch(r"installing: g\+\+ [^\n]*\n", done.stdout)
    assert re.search(called + r" .* g\+\+", noted), noted


def test_apts_error_is_printed(case):
    fails = 'case "$*" in *install*) echo Reading lists; echo "E: no file" >&2; exit 100 ;; esac'
    done, _ = case.call(os.path.join(SCRIPTS, "install-build-deps"),
                        path=case.stubs({**ROOT, "apt-get": fails}))
    assert done.returncode != 0
    assert "Reading lists\nE: no file\n" in done.stderr


def test_packages_that_the_release_lacks_are_left_out(case):
    """apt treats an unknown package name with a + in it as a pattern."""
    has = ('for one in "$@"; do case $one in g++-1[34]) echo Package: clang-13 ;;'
           ' show | ruby) ;; *) echo "Package: $one" ;; esac; done')
    done, noted = case.call(os.path.join(SCRIPTS, "install-test-deps"), "--full",
                            path=case.stubs({**ROOT, "apt-cache": has}))
    assert done.returncode == 0, done
    for name in ("g++-13", "g++-14", "ruby"):
        assert "cudaguard: no package %s in this release; " % name in done.stderr
    assert done.stderr.count("\n") == 3, done.stderr
    installed = re.search(r"apt-get install .*", noted)[0].split()
    assert "g++-12" in installed
    assert not {"g++-13", "g++-14", "ruby", "clang-13"} & set(installed), installed


def test_release_reads_another_users_commit(case):
    """The script reaches the step "packages", which follows all that it asks git at the start."""
    place = case.checkout(NOBODY)
    case.make(place + "/scripts/install-build-deps", "#!/bin/sh\necho packages; exit 3\n")
    done, _ = case.call("env", "-u", "SUDO_UID", place + "/scripts/release", "--quick")
    assert done.returncode == 3 and done.stdout.endswith("packages\n"), done
    assert "dubious ownership" not in done.stderr
    # Control: git refuses this checkout.
    assert "dubious ownership" in case.call("git", "-C", place, "rev-parse", "HEAD")[0].stderr


def test_build_must_be_writable(case):
    place, path = case.checkout("0"), case.stubs(TOOLS)
    user = [shutil.which("setpriv"), "--reuid=" + NOBODY, "--clear-groups", place + "/scripts/test"]
    done, _ = case.call(*user, path=path)
    case.refused(done, "cudaguard: %s/build: Permission denied; please " % place)
    # Control: with a writable build/ it continues with the packages.
    os.mkdir(os.path.join(place, "build"))
    os.chmod(os.path.join(place, "build"), 0o777)
    assert "please install: " in case.call(*user, path=path)[0].stderr


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
def test_release_of_a_fresh_clone_stops_at_the_first_error(case, cmake, python):
    """No process of the other build goes on: each would hold the pipe open."""
    place = case.checkout("0")
    path = case.stubs({"cmake": CMAKE + cmake, "python3": PYTHON + python,
                       "dpkg-query": "echo install ok installed"})
    os.mkfifo(case.path("fifo"))
    ours, theirs = os.pipe()
    with open(ours, "rb") as stream:
        with open(theirs, "wb"):
            done = subprocess.run(
                [place + "/scripts/release", "--quick"], text=True, timeout=120,
                env={"PATH": path + ":" + os.environ["PATH"], "STARTED": case.path("fifo"),
                     "NOTES": os.devnull},
                stdin=subprocess.DEVNULL, capture_output=True, pass_fds=[theirs], check=False)
        assert stream.read() == b""
    assert done.returncode == 1, done
    assert "no space left" in done.stderr
    assert "mkdir" not in done.stderr, "a link in the release leads to no directory"
    assert done.stderr.splitlines()[-1].startswith("scripts/release: nothing is released; please ")
    assert not [name for parent, _, names in os.walk(place + "/build") for name in names
                if "release" in parent]


NO_ADDRESS = "scripts/release: a release needs an address: --address https://"
REFUSED = 'scripts/release: --address "%s" is not accepted (accepted: https://HOST/'


@pytest.mark.parametrize(("words", "printed"), [
    ([], NO_ADDRESS), (["out"], NO_ADDRESS), (["--address"], NO_ADDRESS),
    (["--quick", "--address", ""], NO_ADDRESS),
    # packages/test_recipes.py has those of fill-in, which has a check of its own.
    *((["--quick", "--address", address], REFUSED % address) for address in (
        "github.com/ann/cudaguard", "https://github.com/cudaguard",
        "https://github.com/ann/other", "https://a b/c/cudaguard"))])
def test_release_refuses_a_bad_address_before_it_installs(case, words, printed):
    place = case.checkout("0")
    path = case.stubs({name: "echo changed >&2; exit 1" for name in ("apt-get", "dpkg-query")})
    path += ":" + os.environ["PATH"]
    done, noted = case.call(place + "/scripts/release", *words, path=path)
    case.refused(done, printed)
    assert noted == ""
    assert not os.path.exists(place + "/build")
