# SPDX-License-Identifier: Apache-2.0
"""A real sshd: started by the client for each connection, on no port, with keys, an /etc/passwd and a
directory of its own. Unpacked (scripts/fetch-daemons) where the machine has none."""

import glob
import os
import shutil

from support import harness

SSH = os.path.join(harness.DEPS, "ssh")
ME = "alice"  # whoever runs this, by the name that the settings of docs/integrations have
SETTINGS = """HostKey {0}/host
AuthorizedKeysFile {0}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
LogLevel ERROR
"""
# Who may log in, and whom root's sshd becomes before that.
USERS = "%s:x:%d:%d::%s:/bin/sh\nsshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n"


def unpacked_settings():
    """Where an unpacked sshd (from OpenSSH 9.8 on) has its other halves."""
    rows = (("SshdSessionPath", "sshd-session"), ("SshdAuthPath", "sshd-auth"))
    return "".join("%s %s/usr/lib/openssh/%s\n" % (name, SSH, file) for name, file in rows
                   if os.path.exists(os.path.join(SSH, "usr/lib/openssh", file)))


def libraries():
    """The directories of the unpacked packages' libraries."""
    return ":".join(glob.glob(SSH + "/usr/lib/*-linux-gnu") + glob.glob(SSH + "/lib/*-linux-gnu"))


def tool(name, directory="bin"):
    unpacked = os.path.join(SSH, "usr", directory, name)
    return unpacked if os.path.exists(unpacked) else shutil.which(
        name, path=os.environ["PATH"] + ":/usr/sbin")


class Server:
    def __init__(self, case, mounts=()):
        """For a test, which skips where there is none. mounts: more words for bubblewrap."""
        reason = harness.fetch_daemon("ssh")
        if reason:
            harness.skip(case, reason)
        self.case = case
        os.mkdir(case.path("home"))
        case.make("passwd", USERS % (ME, os.getuid(), os.getgid(), case.path("home")), 0o644)
        case.make("shadow", "".join("%s:*:1::::::\n" % name for name in (ME, "sshd")), 0o600)
        self.sandbox = harness.sandbox("fake", [
            "--tmpfs", "/run", "--dir", "/run/sshd", *mounts,
            "--ro-bind", case.path("passwd"), "/etc/passwd",
            "--ro-bind", case.path("shadow"), "/etc/shadow"])
        for name in ("host", "user"):
            done = case.bare(*self.sandbox, tool("ssh-keygen"), "-q", "-t", "ed25519", "-N", "",
                             "-f", case.path(name))
            case.assertEqual(done.returncode, 0, done)

    def connect(self, command, settings="", key="", options=(), before=()):
        """Runs the command behind a login; None: the login's own shell. key: in front of the user's
        key. before: the words that start the server."""
        case = self.case
        with open(case.path("user.pub"), encoding="utf-8") as stream:
            case.make("authorized_keys", key + stream.read(), 0o600)
        case.make("config", SETTINGS.format(case.directory) + unpacked_settings() + settings, 0o644)
        server = [*before, "env", "LD_LIBRARY_PATH=" + libraries(), tool("sshd", "sbin"), "-i",
                  "-e", "-f", case.path("config")]
        return case.bare(*self.sandbox, tool("ssh"), "-F", "none", "-i", case.path("user"),
                         "-o", "ProxyCommand=" + " ".join(server),
                         "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
                         "-o", "BatchMode=yes", "-o", "LogLevel=ERROR", *options,
                         ME + "@host", *([command] if command else []))
