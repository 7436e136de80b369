# SPDX-License-Identifier: Apache-2.0
"""These tests need a download (scripts/test --full): JIT compilers that register unwind tables,
.NET itself, and Python without a global lock."""

import glob
import os
import stat

import pytest

from support import harness, hosts

pytestmark = pytest.mark.full

ENVIRONMENTS = os.path.join(harness.DEPS, "frameworks")
ROUNDS = 2000 if harness.FULL else 200
PATIENCE = 30  # seconds after which a waiting worker is ended


class Fetched(hosts.Case):
    def environment(self, name):
        if not os.path.exists(os.path.join(ENVIRONMENTS, name, ".fetched")):
            harness.skip(self, "run scripts/fetch-frameworks %s %s" % (harness.DEPS, name))
        return os.path.join(ENVIRONMENTS, name)

    def jit(self, name):
        python = os.path.join(self.environment("numba"), "bin", "python")
        argv = [python, os.path.join(hosts.PROGRAMS, "asks_jit.py"), name,
                os.path.join(hosts.BIN, "thrower.so"), ROUNDS, PATIENCE]
        for guard, answer in ((False, 0), (True, 100)):
            result = harness.run(argv, guard=guard, trace=False, timeout=400)
            self.assertEqual((result.rc, result.out), (0, "exit %d: %d\n" % (answer, ROUNDS)), result)
            self.assertEqual(result.fake_calls.count("cuInit"), 0 if guard else ROUNDS)

    def test_llvmlite_workers_can_ask(self):
        self.jit("llvmlite")

    def test_numba_workers_can_ask(self):
        self.jit("numba")

    def test_dotnet_behaves_as_without_the_guard(self):
        """Mono's compiler builds the program."""
        (dotnet,) = glob.glob(self.environment("dotnet") + "/lib/python3*/site-packages/dotnetcore2/"
                              "bin/dotnet")
        os.chmod(dotnet, os.stat(dotnet).st_mode | stat.S_IXUSR)  # the wheel does not set this bit
        program = self.compile_c_sharp("asks.dll")
        with open(self.path("asks.runtimeconfig.json"), "w", encoding="utf-8") as stream:
            stream.write('{"runtimeOptions": {"framework": {"name": "Microsoft.NETCore.App", '
                         '"version": "3.1.0"}, '
                         '"configProperties": {"System.Globalization.Invariant": true}}}')
        self.compare([dotnet, program])

    def test_free_threaded_python_behaves_as_unguarded(self):
        python = os.path.join(harness.DEPS, "pythons", "free-threaded", "bin", "python3")
        if not os.path.exists(python):
            harness.skip(self, "run scripts/fetch-pythons %s free-threaded" % harness.DEPS)
        self.compare([python, os.path.join(hosts.PROGRAMS, "asks_threads.py")])
