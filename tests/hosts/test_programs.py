# SPDX-License-Identifier: Apache-2.0
"""Programs with event loops, coroutines, workers and runtimes of their own behave the same under
the guard, except for the answers of CUDA."""

import os
import shutil
import subprocess

from support import harness, hosts


class Programs(hosts.Case):
    def python(self, program, module, package):
        if subprocess.run([hosts.PYTHON, "-c", "import " + module], stderr=subprocess.DEVNULL,
                          check=False).returncode != 0:
            harness.skip(self, "not installed: " + package)
        self.compare([hosts.PYTHON, os.path.join(hosts.PROGRAMS, program)])

    def compile(self, *command):
        self.need(command[0])
        done = subprocess.run([*command], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def source(self, name):
        return os.path.join(hosts.PROGRAMS, name)

    def test_greenlets_behave_as_without_the_guard(self):
        self.python("asks_greenlet.py", "greenlet", "python3-greenlet")

    def test_gevent_behaves_as_without_the_guard(self):
        self.python("asks_gevent.py", "gevent", "python3-gevent")

    def test_uwsgi_behaves_as_without_the_guard(self):
        if not shutil.which("uwsgi_python3"):
            harness.skip(self, "not installed: uwsgi-plugin-python3")
        self.compare([hosts.PYTHON, self.source("uwsgi_workers.py"), "uwsgi_python3"])

    def test_node_behaves_as_without_the_guard(self):
        self.need("node")
        # Node marks descriptors 0 to 2 as close-on-exec, as if it had opened them itself.
        self.compare(["node", self.source("asks.js"), os.path.join(hosts.BIN, "node_asks.node")],
                     message=False)

    def test_rust_behaves_as_without_the_guard(self):
        self.compile("rustc", "-O", "-o", self.path("asks"), self.source("asks.rs"))
        self.compare([self.path("asks")])

    def test_mono_behaves_as_without_the_guard(self):
        self.compare(["mono", self.compile_c_sharp("asks.exe")])
