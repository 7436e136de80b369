# SPDX-License-Identifier: Apache-2.0
"""A small root directory with sh, ls, su and the guard, for `cudaguard system --root`. The machine's
own /etc/ld.so.preload is never written."""

import functools
import os
import re
import shutil
import subprocess

from support import harness, launcher, machine

GUARD = "/opt/cudaguard/lib/libcudaguard.so"
FILE = "/etc/ld.so.preload"
PASSWD = "root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/:/bin/sh\n"
PAM = "".join("%s sufficient pam_permit.so\n" % kind
              for kind in ("auth", "account", "password", "session"))
# What must work in the root directory, whatever happened to the file.
PROGRAMS = (("/bin/sh", "-c", ":"), ("/bin/ls", "/"), ("/bin/su", "-", "alice", "-c", "ls /"))


@functools.lru_cache(None)
def libraries_of(path):
    """The libraries that ld.so loads with a program, and ld.so itself."""
    done = subprocess.run(["ldd", path], capture_output=True, text=True, check=True, timeout=60)
    return re.findall(r"(/\S+) \(0x", done.stdout)


class Case(launcher.Case):
    def setUp(self):
        super().setUp()
        self.need("ldd", "su", "chroot")
        machine.need("change_of_root")
        self.root = self.path("root")
        for name in ("etc/pam.d", "usr/bin", "tmp", "home", "opt/cudaguard/bin"):
            os.makedirs(self.inside(name))
        os.symlink("usr/bin", self.inside("bin"))
        for name in ("sh", "ls", "su"):
            self.add(shutil.which(name), "/usr/bin/" + name)
        (modules,) = {os.path.dirname(path) for path in libraries_of(shutil.which("su"))
                      if "libpam.so" in path}
        permit = os.path.join(modules, "security/pam_permit.so")
        for name in (permit, os.path.realpath(permit)):  # PAM looks below /lib or below /usr/lib
            self.add(permit, name)
        self.write("/etc/passwd", PASSWD)
        for service in ("su", "su-l", "other"):
            self.write("/etc/pam.d/" + service, PAM)
        harness.copy_install(self.inside(os.path.dirname(GUARD)))
        self.command = shutil.copy(launcher.LAUNCHER, self.inside("opt/cudaguard/bin"))

    def inside(self, name):
        return os.path.join(self.root, name.lstrip("/"))

    def add(self, path, target):
        """Copies a program or a library, with what it is linked to."""
        for source, name in [(path, target), *((one, one) for one in libraries_of(path))]:
            os.makedirs(os.path.dirname(self.inside(name)), exist_ok=True)
            shutil.copy(source, self.inside(name))

    def write(self, name, text, mode=0o644):
        self.make(self.inside(name), text, mode)

    def text(self):
        """The contents of /etc/ld.so.preload; None if there is no such file."""
        if not os.path.exists(self.inside(FILE)):
            return None
        return harness.read(self.inside(FILE))

    def system(self, *words, **more):
        """Runs the root directory's own command from outside."""
        action, *rest = words
        return self.start("system", action, "--root", self.root, *rest, launcher=self.command,
                          **more)

    def done(self, *words):
        """Fails unless the command succeeds without a warning. Returns its output."""
        done = self.system(*words)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        return done.stdout

    def run_in_root(self, *words):
        return self.unguarded(shutil.which("chroot"), self.root, *words, env={"PATH": "/usr/bin"})

    def programs_work(self):
        """Fails unless sh, ls and a login work, without an error of ld.so."""
        for words in PROGRAMS:
            done = self.run_in_root(*words)
            self.assertEqual((done.returncode, done.stderr), (0, ""), words)

    def guarded(self):
        """True if a program of the root directory loads the guard."""
        done = self.run_in_root("/bin/sh", "-c", "LD_TRACE_LOADED_OBJECTS=1 exec ls")
        return GUARD in done.stdout
