# SPDX-License-Identifier: Apache-2.0
"""Runs a real systemd that manages its own services: a user manager in a sandbox, as root.

Its own cgroup is the top of its view. If no cgroup can be made, the tests skip.
"""

import os
import subprocess
import time

from support import harness

PATIENCE = 60
# Waits for the manager, then runs the test's script.
INSIDE = """
%s --user --log-target=null </dev/null >/dev/null &
until systemctl --user list-units >/dev/null 2>&1; do kill -0 $! && sleep 0.05 || exit 99; done
exec sh "$1"
"""
PLACES = ("/usr/lib/systemd/systemd", "/lib/systemd/systemd")


def top_cgroup():
    """Returns the mount point of the unified cgroup hierarchy, or None."""
    with open("/proc/self/mountinfo", encoding="utf-8") as stream:
        for line in stream:
            words, kind = line.split(" - ")
            if kind.split()[0] == "cgroup2":
                return words.split()[4]
    return None


class Manager:
    def __init__(self, directory, mounts, user=None):
        """user: an ordinary user's id, whose manager it is."""
        self.directory = directory
        self.mounts = mounts
        self.user = user
        self.binary = next((path for path in PLACES if os.path.exists(path)), None)
        top = top_cgroup()
        self.cgroup = top and os.path.join(top, "cudaguard-test-%d" % os.getpid())

    def missing(self):
        """Returns why the manager cannot run here, or an empty text."""
        if os.geteuid() != 0:
            return "only root can make a cgroup for it"
        if not self.binary:
            return "systemd is not installed"
        if not self.cgroup:
            return "no cgroup2 file system"
        try:
            os.mkdir(self.cgroup)
            os.rmdir(self.cgroup)
        except OSError as error:
            return "no cgroup can be made: %s" % error
        return ""

    def run(self, script):
        """Runs a shell script together with a fresh manager that finds its units in
        `directory`/units."""
        home = os.path.join(self.directory, "home")
        os.makedirs(home, exist_ok=True)
        become = []
        if self.user:
            os.chown(home, self.user, self.user)
            become = ["setpriv", "--reuid=%d" % self.user, "--regid=%d" % self.user,
                      "--clear-groups"]
        path = os.path.join(self.directory, "script")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(script)
        box = harness.sandbox("fake", [
            "--tmpfs", "/run", "--dir", "/run/systemd/system", "--perms", "0777", "--tmpfs",
            "/run/user/0", "--unshare-pid", "--proc", "/proc", "--clearenv", "--setenv", "PATH",
            "/usr/bin:/bin:/usr/sbin:/sbin", "--setenv", "XDG_RUNTIME_DIR", "/run/user/0",
            "--setenv", "HOME", self.directory + "/home", "--setenv", "SYSTEMD_UNIT_PATH",
            self.directory + "/units:", *self.mounts])
        own_view = ("mount --make-rprivate / && mount -t cgroup2 none /sys/fs/cgroup && "
                    'exec "$@"')
        os.mkdir(self.cgroup)
        try:
            return subprocess.run(
                ["unshare", "--mount", "--cgroup", "sh", "-c", own_view, "sh", *box, *become, "sh", "-c",
                 INSIDE % self.binary, "sh", path], stdin=subprocess.DEVNULL, capture_output=True,
                text=True, timeout=PATIENCE, check=False, preexec_fn=self.enter)
        finally:
            self.remove()

    def enter(self):
        for name in ("", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"):
            if self.user:
                os.chown(os.path.join(self.cgroup, name), self.user, self.user)
        with open(os.path.join(self.cgroup, "cgroup.procs"), "w", encoding="utf-8") as stream:
            stream.write(str(os.getpid()))

    def remove(self):
        """Removes the cgroup and its children once their processes are gone."""
        end = time.monotonic() + PATIENCE
        while os.path.isdir(self.cgroup):
            for directory, _, _ in os.walk(self.cgroup, topdown=False):
                try:
                    os.rmdir(directory)
                except OSError:
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.02)
