# SPDX-License-Identifier: Apache-2.0
"""Provides the files that scripts/release has made, and machines to install them on.

A machine is an overlay over this one or over a minimal system (scripts/fetch-roots), with its own
/dev and process ids. Whatever a test installs there disappears with it.
"""

import os
import re
import shlex
import subprocess

from support import harness
from support.guard_checks import version

MACHINE = os.uname().machine
MULTIARCH = MACHINE + "-linux-gnu"
DEBIAN_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[MACHINE]
ROOTS = os.path.join(harness.DEPS, "roots")
ASK = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
SUITES = ("bullseye", "bookworm", "trixie", "jammy", "noble")
# The unguarded control prints this, because these systems have no driver.
NONE = "OSError: libcuda.so.1: cannot open shared object file"


def wheel(machine):
    return "cudaguard-%s-py3-none-manylinux_2_17_%s.whl" % (version(), machine)


RELEASE = os.path.join(harness.SOURCE, "build", "test-release")  # scripts/test makes it
TREE = "cudaguard-%s-linux-%s" % (version(), MACHINE)
TARBALL = TREE + ".tar.gz"
DEB = "cudaguard_%s_%s.deb" % (version(), DEBIAN_ARCHITECTURE)
WHEEL = wheel(MACHINE)
RPM = "cudaguard-%s-1.%s.rpm" % (version(), MACHINE)


def released(case, name, quick=True):
    """Returns the path of a release file. quick=False means that only scripts/test --full makes it.
    """
    path = os.path.join(RELEASE, name)
    if not os.path.exists(path):
        why = "%s is not there: scripts/release%s makes it" % (path, " --quick" if quick else "")
        if not quick and not harness.FULL:
            case.skipTest(why)
        harness.skip(case, why)
    return path


def sums(directory):
    """Returns {file: checksum} of a directory's SHA256SUMS."""
    lines = harness.read(directory, "SHA256SUMS").splitlines()
    return dict(reversed(line.split()) for line in lines)


def listed():
    """Returns the files that `cmake --install` makes, below its prefix."""
    lines = harness.read("tests", "artefacts", "installed.txt").splitlines()
    return {line[2:] for line in lines}


def other_version(deb, version, directory):
    """Builds the same Debian package with another version and longer libraries. Returns its path."""
    tree = os.path.join(directory, "tree" + version)
    subprocess.run(["dpkg-deb", "-R", deb, tree], check=True)
    control = os.path.join(tree, "DEBIAN", "control")
    text = harness.read(control)
    with open(control, "w", encoding="utf-8") as stream:
        stream.write(re.sub(r"(?m)^Version: .*", "Version: " + version, text))
    lib = os.path.join(tree, "usr", "lib", MULTIARCH)
    for parent in (lib, os.path.join(lib, "cudaguard")):
        for name in os.listdir(parent):
            path = os.path.join(parent, name)
            if ".so" in name and not os.path.islink(path):
                with open(path, "ab") as stream:
                    stream.write(b"another version" * 1000)
    built = os.path.join(directory, version + ".deb")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", tree, built], check=True,
                   stdout=subprocess.DEVNULL)
    return built


def run(command, **options):
    return subprocess.run(command, check=False, text=True, errors="replace",
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, **{"timeout": 300, **options})


# $1 is a directory for the overlay's own files, and $2 is the lower system.
BOOT = r"""
set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/up" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=$2,upperdir=$1/up,workdir=$1/work" overlay "$1/root"
cd "$1/root"
mount -t proc proc proc
mount -t tmpfs -o mode=755 dev dev
for node in null zero full random urandom tty; do
  touch dev/$node
  mount --bind /dev/$node dev/$node
done
mkdir -m 1777 dev/shm
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o mode=1777 tmp tmp
[ "$2" = / ] || cp -L /etc/resolv.conf etc/resolv.conf
rm -f var/lib/man-db/auto-update  # its index takes longer than all the rest
echo ready
exec cat  # until the test closes its end, or is no more
"""


class Machine:
    def __init__(self, case, suite=""):
        """suite: a system of scripts/fetch-roots; without one, this machine's own system."""
        self.case = case
        if os.geteuid() != 0:
            harness.skip(case, "only root can install packages")
        lower = self.fetch(suite) if suite else "/"
        directory = case.path("machine" + suite)
        os.mkdir(directory)
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", BOOT, "sh",
             directory, lower], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)
        case.addCleanup(self.stop)
        line = self.process.stdout.readline()
        if line != "ready\n":
            harness.skip(case, "no overlay of %s: %s" % (lower, line.strip()))
        self.lower, self.upper = lower, os.path.join(directory, "up")
        self.root = os.path.join(directory, "root")
        # unshare has forked process 1 of the machine.
        children = "/proc/%d/task/%d/children" % (self.process.pid, self.process.pid)
        self.init = harness.read(children).strip()

    def fetch(self, suite):
        script = os.path.join(harness.SOURCE, "scripts", "fetch-roots")
        done = run([script, ROOTS, suite], timeout=1200)
        if done.returncode != 0:
            harness.skip(self.case, done.stdout.strip())
        return os.path.join(ROOTS, suite)

    def stop(self):
        self.process.communicate(timeout=60)

    def command(self, *words, env=()):
        """Returns the command line that runs these words in the machine."""
        return ["nsenter", "-t", self.init, "--mount", "--pid", "chroot", self.root, "env", "-i",
                "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8",
                "DEBIAN_FRONTEND=noninteractive", *env, *words]

    def sh(self, text, ok=True, **options):
        """Runs the text with sh. With ok, it has to exit with 0."""
        done = run(self.command("sh", "-c", text), **options)
        if ok:
            self.case.assertEqual(done.returncode, 0, "%s\n%s" % (text, done.stdout))
        return done

    def need_python(self):
        """Installs Python from the system's own archive."""
        done = self.sh("command -v python3 || { apt-get update && apt-get install -y "
                       "--no-install-recommends python3; }", ok=False, timeout=600)
        if done.returncode != 0:
            harness.skip(self.case, done.stdout.strip().split("\n")[-1])

    def put(self, path, name=None):
        """Copies a file to the machine's /tmp."""
        target = "/tmp/" + (name or os.path.basename(path))
        with open(path, "rb") as stream:
            subprocess.run(self.command("sh", "-c", "cat >" + shlex.quote(target)), stdin=stream,
                           check=True, timeout=60)
        return target

    def added(self):
        """Returns the files added since the start, without the records of apt and dpkg."""
        notes = r"(tmp|var/cache|var/log|var/lib/(apt|dpkg/(?!info)))/"
        found = run(["nsenter", "-t", self.init, "--mount", "find", self.upper, "!", "-type", "d",
                     "!", "-type", "c", "-printf", r"%P\n"])
        return sorted(name for name in found.stdout.splitlines() if not re.match(notes, name) and
                      not os.path.lexists(os.path.join(self.lower, name)))


class Case(harness.DirectoryCase):
    def setUp(self):
        super().setUp()
        self.need("unshare", "nsenter")

    def machine(self, suite=""):
        return Machine(self, suite)

    def unpacked(self, name=TARBALL, where="unpacked"):
        """Unpacks the tarball and returns the directory in it."""
        target = self.path(where)
        os.makedirs(target, exist_ok=True)
        subprocess.run(["tar", "-xzf", released(self, name), "-C", target], check=True, timeout=60)
        (directory,) = os.listdir(target)
        return os.path.join(target, directory)


def tree(directory):
    """Returns {path: kind} of all files and links in the directory."""
    found = {}
    for parent, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(parent, name)
            where = os.path.relpath(path, directory)
            if os.path.islink(path):
                found[where] = "-> " + os.readlink(path)
            else:
                with open(path, "rb") as stream:
                    found[where] = stream.read()
    return found
