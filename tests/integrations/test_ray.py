# SPDX-License-Identifier: Apache-2.0
"""A real Ray cluster of one node gives its workers the runtime_env of docs/integrations."""

import os
import shlex

import pytest

from support import harness, places

pytestmark = pytest.mark.full

RAY = os.path.join(harness.DEPS, "frameworks", "ray", "bin")
ASK = """import sys

import ray


@ray.remote
def ask():
    import ctypes
    return ctypes.CDLL("libcuda.so.1").cuInit(0)


exec(sys.argv[1])
print("%s=%d" % (sys.argv[2], ray.get(ask.options(**eval(sys.argv[3])).remote())))
"""
# Neither the daemons nor the program of a job are guarded.
CLUSTER = """ray start --head --num-cpus=2 --include-dashboard=false >ray.log 2>&1 || {{
  cat ray.log >&2
  exit 1
}}
{}
"""
OFF = "dict(runtime_env={'env_vars': {'CUDAGUARD_POLICY': 'OFF'}})"


class Ray(places.Case):
    def test_documented_settings_guard_workers(self):
        if not os.path.exists(RAY + "/ray"):
            harness.skip(self, "run scripts/fetch-frameworks %s ray" % harness.DEPS)
        by_launcher, by_variable = places.blocks("python", "python", "Ray")
        self.assertIn("py_executable", by_launcher)
        self.assertIn("LD_PRELOAD", by_variable)
        jobs = (("unguarded", "ray.init()", "{}"), ("by_launcher", by_launcher, "{}"),
                ("by_variable", by_variable, "{}"), ("off", by_variable, OFF))
        lines = [shlex.join([RAY + "/python", "ask.py", job, name, options])
                 for name, job, options in jobs]
        self.make("ask.py", ASK, 0o644)
        # The network is private, and its only other name is this machine's.
        hosts = self.make("hosts", "127.0.0.1 localhost %s\n" % os.uname().nodename, 0o644)
        result = harness.run(
            ["sh", "-ec", CLUSTER.format("\n".join(lines))], guard=False, trace=False, timeout=600,
            cwd=self.directory,
            bwrap=[*places.usr_local(self.directory), "--unshare-net", "--unshare-pid", "--proc",
                   "/proc", "--ro-bind", hosts, "/etc/hosts"],
            env={"HOME": self.directory, "RAY_TMPDIR": self.directory, "RAY_ADDRESS": "auto",
                 "RAY_USAGE_STATS_ENABLED": "0", "PATH": RAY + ":/usr/bin:/bin"})
        self.assertEqual(result.rc, 0, result)
        answers = {name: result.answers[name] for name, *_ in jobs}
        self.assertEqual(answers, {"unguarded": "0", "by_launcher": "100", "by_variable": "100",
                                   "off": "0"}, result)
        # Only the two unguarded workers reached the fake driver.
        self.assertEqual(result.fake_calls.count("cuInit"), 2, result)
