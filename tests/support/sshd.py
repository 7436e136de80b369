# SPDX-License-Identifier: Apache-2.0
"""Runs a real sshd. The client starts it for each connection without a port, and it has its own
keys, /etc/passwd and directory. If the machine has no sshd, scripts/fetch-daemons unpacks one."""

import os
import shutil

from support import harness

SSH = os.path.join(harness.DEPS, "ssh")
# The user who runs the tests gets the name that the settings of docs/integrations use.
ME = "alice"
SETTINGS = """HostKey {0}/host
AuthorizedKeysFile {0}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
LogLevel FATAL
"""
# The first user logs in. Root's sshd runs as the second before the login.
USERS = "%s:x:%d:%d::%s:/bin/sh\nsshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n"


def unpacked_settings():
    """Returns the settings that let an unpacked sshd (OpenSSH 9.8 or later) find its other
    programs."""
    rows = (("SshdSessionPath", "sshd-session"), ("SshdAuthPath", "sshd-auth"))
    return "".join("%s %s/usr/lib/openssh/%s\n" % (name, SSH, file) for name, file in rows
                   if os.path.exists(os.path.join(SSH, "usr/lib/openssh", file)))


def tool(name, directory="bin"):
    unpacked = os.path.join(SSH, "usr", directory, name)
    return unpacked if os.path.exists(unpacked) else shutil.which(
        name, path=os.environ["PATH"] + ":/usr/sbin")


class Server:
    def __init__(self, case, mounts=()):
        """Makes the server for a test, which skips if there is no sshd. mounts: more arguments for
        bubblewrap."""
        self.case, self.libraries = case, case.need_daemon("ssh")
        os.mkdir(case.path("home"))
        case.make("passwd", USERS % (ME, os.getuid(), os.getgid(), case.path("home")), 0o644)
        case.make("shadow", "".join("%s:*:1::::::\n" % name for name in (ME, "sshd")), 0o600)
        self.sandbox = harness.sandbox("fake", [
            "--tmpfs", "/run", "--dir", "/run/sshd", *mounts,
            "--ro-bind", case.path("passwd"), "/etc/passwd",
            "--ro-bind", case.path("shadow"), "/etc/shadow"])
        for name in ("host", "user"):
            done = case.unguarded(*self.sandbox, tool("ssh-keygen"), "-q", "-t", "ed25519",
                                  "-N", "", "-f", case.path(name))
            case.assertEqual(done.returncode, 0, done)

    def connect(self, command, settings="", key="", options=(), before=()):
        """Runs the command after a login; None starts the login shell. key: options that precede
        the user's key. before: a prefix for the server's command."""
        case = self.case
        case.make("authorized_keys", key + harness.read(case.path("user.pub")), 0o600)
        case.make("config", SETTINGS.format(case.directory) + unpacked_settings() + settings, 0o644)
        server = [*before, "env", "LD_LIBRARY_PATH=" + self.libraries, tool("sshd", "sbin"), "-i",
                  "-e", "-f", case.path("config")]
        return case.unguarded(*self.sandbox, tool("ssh"), "-F", "none", "-i", case.path("user"),
                              "-o", "ProxyCommand=" + " ".join(server),
                              "-o", "StrictHostKeyChecking=no",
                              "-o", "UserKnownHostsFile=/dev/null",
                              "-o", "BatchMode=yes", "-o", "LogLevel=ERROR", *options,
                              ME + "@host", *([command] if command else []))
