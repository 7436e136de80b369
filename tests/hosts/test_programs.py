# SPDX-License-Identifier: Apache-2.0
"""Programs with coroutines and runtimes of their own, and a module that libc loads, behave
the same under the guard, except for the answers of CUDA."""

import glob
import os
import stat
import subprocess

import pytest

from support import harness, hosts

ENVIRONMENT = os.path.join(harness.DEPS, "frameworks", "dotnet")


class Programs(hosts.Case):
    def source(self, name):
        return os.path.join(hosts.PROGRAMS, name)

    def test_greenlets_behave_as_without_the_guard(self):
        if subprocess.run([hosts.PYTHON, "-c", "import greenlet"], stderr=subprocess.DEVNULL,
                          check=False).returncode != 0:
            harness.skip(self, "not installed: python3-greenlet")
        self.compare([hosts.PYTHON, self.source("asks_greenlet.py")])

    def test_node_behaves_as_without_the_guard(self):
        self.need("node")
        # Node marks descriptors 0 to 2 as close-on-exec, as if it had opened them itself.
        self.compare(["node", self.source("asks.js"), os.path.join(hosts.BIN, "node_asks.node")],
                     message=False)

    def test_rust_behaves_as_without_the_guard(self):
        self.need("rustc")
        subprocess.run(["rustc", "-O", "-o", self.path("asks"), self.source("asks.rs")], check=True)
        self.compare([self.path("asks")])

    def test_mono_behaves_as_without_the_guard(self):
        self.compare(["mono", self.compile_c_sharp("asks.exe")])

    @pytest.mark.full
    def test_dotnet_behaves_as_without_the_guard(self):
        """Mono's compiler builds the program."""
        if not os.path.exists(os.path.join(ENVIRONMENT, ".fetched")):
            harness.skip(self, "run scripts/fetch-frameworks %s dotnet" % harness.DEPS)
        (dotnet,) = glob.glob(ENVIRONMENT + "/lib/python3*/site-packages/dotnetcore2/bin/dotnet")
        os.chmod(dotnet, os.stat(dotnet).st_mode | stat.S_IXUSR)  # the wheel does not set this bit
        program = self.compile_c_sharp("asks.dll")
        with open(self.path("asks.runtimeconfig.json"), "w", encoding="utf-8") as stream:
            stream.write('{"runtimeOptions": {"framework": {"name": "Microsoft.NETCore.App", '
                         '"version": "3.1.0"}, '
                         '"configProperties": {"System.Globalization.Invariant": true}}}')
        self.compare([dotnet, program])

    def test_name_service_module_is_guarded(self):
        """libc loads the module, which is linked to the driver, without dlopen. ld.so maps the
        driver, but no call initialises it."""
        self.need("getent")
        if not os.path.exists("/etc/nsswitch.conf"):
            harness.skip(self, "this machine has no /etc/nsswitch.conf")
        with open(self.path("nsswitch.conf"), "w", encoding="utf-8") as stream:
            stream.write("passwd: files asks\n")
        options = {"bwrap": ["--ro-bind", self.path("nsswitch.conf"), "/etc/nsswitch.conf"],
                   "env": {"LD_LIBRARY_PATH": hosts.BIN}}
        unguarded = harness.run(["getent", "passwd", "cuda"], guard=False, **options)
        self.assertEqual((unguarded.rc, unguarded.out), (0, "cuda::0:0:::\n"), unguarded)
        unguarded.assert_reached(self)
        guarded = harness.run(["getent", "passwd", "cuda"], **options)
        self.assertEqual((guarded.rc, guarded.out), (0, "cuda::100:0:::\n"), guarded)
        guarded.assert_untouched(self, linked=True)
        self.assertEqual(hosts.without_ours(guarded.err), unguarded.err)
