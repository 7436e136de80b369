# SPDX-License-Identifier: Apache-2.0
"""libc or PAM loads modules that are linked to the driver into programs unrelated to CUDA: name
service, PAM, character sets."""

import os
import shutil

from support import harness, hosts


class Modules(hosts.Case):
    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as stream:
            stream.write(text)
        return self.path(name)

    def test_name_service_module_is_guarded(self):
        """libc loads the module without dlopen. ld.so maps the driver, but no call initialises it.
        """
        self.need("getent")
        conf = self.write("nsswitch.conf", "passwd: files asks\n")
        if not os.path.exists("/etc/nsswitch.conf"):
            harness.skip(self, "this machine has no /etc/nsswitch.conf")
        options = {"bwrap": ["--ro-bind", conf, "/etc/nsswitch.conf"],
                   "env": {"LD_LIBRARY_PATH": hosts.BIN}}
        unguarded = harness.run(["getent", "passwd", "cuda"], guard=False, **options)
        self.assertEqual((unguarded.rc, unguarded.out), (0, "cuda::0:0:::\n"), unguarded)
        unguarded.assert_reached(self)
        guarded = harness.run(["getent", "passwd", "cuda"], **options)
        self.assertEqual((guarded.rc, guarded.out), (0, "cuda::100:0:::\n"), guarded)
        guarded.assert_untouched(self, linked=True)
        self.assertEqual(hosts.without_ours(guarded.err), unguarded.err)

    def test_pam_module_is_guarded(self):
        self.need("pamtester")
        conf = self.write("service", "auth required %s/pam_asks.so\n" % hosts.BIN)
        self.compare(["pamtester", "asks", "root", "authenticate"],
                     bwrap=["--tmpfs", "/etc/pam.d", "--ro-bind", conf, "/etc/pam.d/asks"])

    def test_character_set_module_is_guarded(self):
        """libc loads the module without dlopen."""
        self.need("iconv")
        shutil.copy(os.path.join(hosts.BIN, "gconv_asks.so"), self.directory)
        self.write("gconv-modules", "module INTERNAL ASKS// gconv_asks 1\n")
        for guard, digit in ((False, "0"), (True, "1")):
            result = harness.run(["iconv", "-f", "UTF-8", "-t", "ASKS"], guard=guard, stdin="abc",
                                 env={"GCONV_PATH": self.directory})
            self.assertEqual((result.rc, result.out), (0, 3 * digit), result)
            if guard:
                result.assert_untouched(self, linked=True)
                self.assertEqual(hosts.without_ours(result.err), "", result)
            else:
                result.assert_reached(self)
