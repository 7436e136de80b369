# SPDX-License-Identifier: Apache-2.0
"""A real sshd runs with the settings of docs/integrations."""

import os
import re

from support import harness, messages, places, sshd


class Ssh(places.Case):
    def setUp(self):
        super().setUp()
        self.server = sshd.Server(self, places.usr_local(self.path("tree")))

    def ask(self, settings="", key="", command=" ".join(places.OPEN), options=()):
        """Returns (answers, fake calls, the finished run) of the program that a connection starts.
        """
        # The fake driver needs these variables in the only SetEnv line that counts.
        known = "LD_LIBRARY_PATH=%s CG_FAKE_LOG=%s" % (harness.FAKE_DRIVER, self.fake_log())
        done = self.server.connect(
            command, key=key, options=options,
            settings="%sMatch all\nSetEnv %s\n" % (
                settings.replace("SetEnv", "SetEnv " + known), known))
        return dict(re.findall(r"([\w.\-]+)=(\S*)", done.stdout)), self.logged(), done

    def no_device(self, *words, **more):
        answers, calls, done = self.ask(*words, **more)
        self.assertEqual((answers.get("cuInit"), calls), ("100", []), done)
        return done

    def a_device(self, *words, **more):
        answers, calls, done = self.ask(*words, **more)
        self.assertEqual(answers.get("cuInit"), "0", done)
        self.assertIn("cuInit", calls)

    def blocks(self):
        """Returns (SetEnv, ForceCommand)."""
        return places.blocks("text", "slurm-and-systemd", "ssh")

    def test_control_connection_is_unguarded_by_default(self):
        self.a_device()
        # sshd does not accept the client's own variable.
        self.a_device(options=["-o", "SetEnv=LD_PRELOAD=/usr/local/lib/libcudaguard.so"])

    def test_set_env_guards_the_user(self):
        settings = self.blocks()[0]
        done = self.no_device(settings)
        # The settings have CUDAGUARD_LOG=error.
        self.assertEqual(messages.find(done.stderr, "no_cuda"), [])
        self.a_device(settings.replace("alice", "somebody"))
        # As documented, only the first of two SetEnv lines counts.
        two = re.sub(r"(SetEnv) (\S+) (\S+)", r"\1 \3\n    SetEnv \2", settings)
        self.assertEqual(two.count("SetEnv"), 2)
        self.a_device(two)

    def test_force_command_guards_every_command(self):
        settings = self.blocks()[1]
        self.no_device(settings)
        self.no_device(settings, command="echo 'a  b'; sh -c '%s; true'" % " ".join(places.OPEN))
        for command in ("exit 7", "echo 'a  b' >&2; kill -TERM $$"):
            unguarded, forced = (self.ask(text, command=command)[2] for text in ("", settings))
            self.assertEqual((unguarded.returncode, unguarded.stdout, unguarded.stderr),
                             (forced.returncode, forced.stdout, forced.stderr))
        # Without a command, the user gets a login shell, which reads the profile.
        self.make("home/.profile", "echo profile; exec %s\n" % " ".join(places.OPEN))
        login = {"command": None, "options": ["-T"]}
        self.assertIn("profile", self.ask(**login)[2].stdout)  # the control
        self.assertIn("profile", self.no_device(settings, **login).stdout)

    def test_force_command_guards_a_subsystem(self):
        """A subsystem is a command like any other, except the subsystem inside sshd itself."""
        forced = self.blocks()[1]
        program = self.make("server", "#!/bin/sh\necho as a server\n%s\n" % " ".join(places.OPEN))
        own = ["-s"]
        for settings in ("", forced):
            answers, _, done = self.ask("Subsystem sftp %s\n" % program + settings, command="sftp",
                                        options=own)
            self.assertEqual(done.returncode, 0, done)
            self.assertEqual(done.stdout.split("\n")[0], "as a server")
            self.assertEqual(answers["cuInit"], "100" if settings else "0", done)
        unguarded, refused = (self.ask("Subsystem sftp internal-sftp\n" + settings, command="sftp",
                                       options=own)[2] for settings in ("", forced))
        self.assertEqual(unguarded.returncode, 0, unguarded)
        self.assertNotEqual(refused.returncode, 0, refused)

    def test_users_own_file_guards_if_permitted(self):
        line = re.search(r"LD_PRELOAD=\S+", self.blocks()[0])[0]
        self.make("home/.ssh/environment", line + "\n", 0o600)
        self.a_device()
        self.no_device("PermitUserEnvironment yes\n")
        os.remove(self.path("home", ".ssh", "environment"))
        self.a_device("PermitUserEnvironment yes\n")
        self.no_device("PermitUserEnvironment yes\n", key='environment="%s" ' % line)
        self.a_device(key='environment="%s" ' % line)
