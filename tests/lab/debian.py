# SPDX-License-Identifier: Apache-2.0
"""A throw-away Debian for the rows of the lab: an overlay over a system of scripts/fetch-roots
with cudaguard, the fake driver and packages from Debian's archive."""

import os
import pathlib
import shutil
import subprocess

from support import packaged, places

SCRIPTS = pathlib.Path(__file__).parent / "engine_scripts"
PATIENCE = 1500


class NotInstalled(Exception):
    """What a row needs cannot be had here."""


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no output"


class Owner:
    """What packaged.Machine expects of the test case that it belongs to."""

    def __init__(self, directory, stack):
        self.directory, self.stack = directory, stack

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def addCleanup(self, function):
        self.stack.callback(function)

    def skipTest(self, reason):
        raise NotInstalled(reason)


class Machine:
    """A Debian with a network of its own, which is gone at the end of the row."""

    def __init__(self, lab, stack, suite="bookworm"):
        self.lab = lab
        self.suite = suite
        self.machine = packaged.Machine(Owner(lab.scratch, stack), suite)
        self.root = pathlib.Path(self.machine.root)

    def outside(self, *words, **options):
        """Runs a command of this machine that sees the mounts of the other one."""
        subprocess.run(["nsenter", "-t", self.machine.init, "--mount", *map(str, words)],
                       check=True, **options)

    def put(self, name, text):
        """Writes a file in /srv."""
        self.outside("sh", "-c", 'cat >"$1"', "sh", self.root / "srv" / name, input=text, text=True)

    def install(self, packages):
        """Installs the packages, and returns their versions."""
        for name, target in (("archives", "var/cache/apt/archives"),
                             ("lists", "var/lib/apt/lists")):
            # Each suite has its own, because apt removes the lists of other ones.
            cache = self.lab.state / self.suite / name
            (cache / "partial").mkdir(parents=True, exist_ok=True)
            self.outside("mkdir", "-p", self.root / target)
            self.outside("mount", "--bind", cache, self.root / target)
        tree = installed_tree(self.lab)
        self.outside("cp", "-a", tree, self.root / "opt/cudaguard")
        self.outside("cp", "-a", f"{tree}/.", self.root / "usr/local")
        driver = self.lab.build / "tests/fakes/driver/libcuda.so.1"
        self.outside("cp", driver, self.root / "usr/lib" / packaged.MULTIARCH)
        self.put("prepare.sh", (SCRIPTS / "prepare.sh").read_text())
        self.outside("mkdir", "-p", self.root / "run/cudaguard-lab")  # what prepare.sh wants
        done = packaged.run(self.machine.command("bash", "/srv/prepare.sh", *packages),
                            timeout=PATIENCE)
        if done.returncode != 0:
            errors = [line for line in done.stdout.splitlines() if line.startswith("E: ")]
            if errors:  # apt's
                raise NotInstalled(errors[0])
            raise RuntimeError(last_line(done.stdout))
        shown = packaged.run(self.machine.command(
            "dpkg-query", "-W", "-f=${Package}\t${Version}\n", *packages))
        return dict(line.split("\t") for line in shown.stdout.splitlines())

    def run(self, text, user="root", patience=PATIENCE):
        """What the script prints. It has a network of its own, without any other machine."""
        self.put("row.sh", text)
        start = ["HOME=/root"]
        if user != "root":
            start = [f"HOME=/home/{user}", f"USER={user}", "setpriv", "--reuid", user, "--regid", user,
                     "--init-groups"]
        done = packaged.run(["nsenter", "-t", self.machine.init, "--mount", "--pid", "unshare",
                             "--mount", "--net", "--ipc", "sh", SCRIPTS / "enter.sh", self.root,
                             *start, "timeout", str(patience), "bash", "/srv/row.sh"],
                            timeout=patience + 60)
        return done.stdout


def installed_tree(lab):
    """cudaguard as the tarball has it, without the pages."""
    tree = lab.scratch / "cudaguard"
    if not tree.exists():
        (tree / "bin").mkdir(parents=True)
        shutil.copy(lab.cudaguard, tree / "bin")
        shutil.copytree(lab.library.parent, tree / "lib", symlinks=True)
        for name in ("container", "kubernetes", "slurm"):
            shutil.copytree(places.script(name), tree / "share/cudaguard" / name)
    return tree
