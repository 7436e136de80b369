# SPDX-License-Identifier: Apache-2.0
"""With `run --children=gpu`, and with a --rule that only its workers match, a parent finds no GPU and
does not call the driver, but its workers reach it."""

import os
import re

import pytest

from support import harness, launcher

ASK = """import ctypes, os, sys


def ask(_=None):
    return ctypes.CDLL("libcuda.so.1").cuInit(0)


def say(name):
    print("%s=%d" % (name, ask()), flush=True)


if __name__ == "__main__" and "ASK_FIRST" in os.environ and sys.argv[-1] != "worker":
    say("first")
"""
POOL = """
if __name__ == "__main__":
    import multiprocessing
    with multiprocessing.get_context("METHOD").Pool(1) as pool:
        print("worker=%d" % pool.map(ask, range(1))[0], flush=True)
    say("parent")
"""
TORCHRUN = """
if sys.argv[1:] == ["worker"]:
    say("worker")
else:
    from torch.distributed import run
    run.main(["--nproc-per-node", "1", __file__, "worker"])
    say("parent")
"""
RAY = """
import ray
ray.init(num_cpus=1, num_gpus=1, include_dashboard=False)
print("worker=%d" % ray.get(ray.remote(num_gpus=1)(ask).remote()), flush=True)
say("parent")
"""
DASK = """
if __name__ == "__main__":
    from distributed import Client, LocalCluster
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            print("worker=%d" % client.submit(ask).result(), flush=True)
    say("parent")
"""
# A configuration with the hooks of the parent and of its worker, which ends the parent.
GUNICORN = """
import signal

bind = "unix:%s.socket" % __file__


def application(environ, start_response):
    return []


def on_starting(server):
    if "ASK_FIRST" in os.environ:
        say("first")


def post_worker_init(worker):
    say("worker")
    os.kill(os.getppid(), signal.SIGTERM)


def on_exit(server):
    say("parent")
"""
SPAWNED = 'VALIDATE args="*--multiprocessing-fork"'
# The program, its command, and a rule that only the worker matches. A forked worker has the
# executable and the command line of its parent, so there is none.
STARTERS = {
    "spawn": (POOL, "python3 {}", SPAWNED),
    "forkserver": (POOL, "python3 {}", 'VALIDATE args="*multiprocessing.forkserver*"'),
    "fork": (POOL, "python3 {}", None),
    "gunicorn": (GUNICORN, "gunicorn/bin/gunicorn --config {} --chdir {dir} start:application",
                 None),
    "torchrun": (TORCHRUN, "torch/bin/python {}", 'VALIDATE args="*start.py worker"'),
    "Ray": (RAY, "ray/bin/python {}", "VALIDATE args=*default_worker.py*"),
    "Dask": (DASK, "platforms/bin/python {}", SPAWNED),
}
FULL = ("torchrun", "Ray", "Dask")  # These need a large download.
ALL = [pytest.param(name, marks=pytest.mark.full if name in FULL else ()) for name in STARTERS]


def start(case, starter, *options, ask_first=False):
    text, command, _ = STARTERS[starter]
    path = case.make("start.py", ASK + text.replace("METHOD", starter), 0o644)
    words = command.format(path, dir=case.directory).split()
    if "/" in words[0]:
        environment, _, program = words[0].partition("/bin/")
        words[0] = os.path.join(case.need_fetched(environment), program)
    hosts = case.make("hosts", "127.0.0.1 localhost %s\n" % os.uname().nodename, 0o644)
    result = harness.run(
        [launcher.LAUNCHER, "run", *options, "--", *words], guard=False, trace=False, timeout=600,
        cwd=case.directory, bwrap=["--unshare-net", "--unshare-pid", "--proc", "/proc", "--ro-bind",
                                   hosts, "/etc/hosts"],
        env={"HOME": case.directory, "TMPDIR": case.directory, "RAY_TMPDIR": case.directory,
             "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1",
             **({"ASK_FIRST": "1"} if ask_first else {})})
    assert result.rc == 0, str(result)
    # Other programs print lines of this form, too.
    names = ("first", "worker", "parent")
    found = re.findall(r"\b(%s)=(\d+)" % "|".join(names), result.out)
    return dict(found), result


@pytest.mark.parametrize("starter", ALL)
def test_only_workers_reach_the_driver(case, starter):
    control, result = start(case, starter, "--policy=VALIDATE")
    assert control == {"worker": "0", "parent": "0"}, str(result)
    assert result.fake_calls.count("cuInit") == 2, str(result)
    rule = STARTERS[starter][2]
    for options in [["--children=gpu"]] + ([["--rule", rule]] if rule else []):
        answers, result = start(case, starter, *options, ask_first=True)
        assert answers == {"first": "100", "worker": "0", "parent": "100"}, str(result)
        assert result.fake_calls.count("cuInit") == 1, str(result)


@pytest.mark.parametrize("starter", [name for name in STARTERS if STARTERS[name][2] is None])
def test_rule_matches_a_forked_worker_as_its_parent(case, starter):
    for rule, wanted in (("VALIDATE args=*start*", "0"), ("VALIDATE args=*worker*", "100")):
        answers, result = start(case, starter, "--rule", rule)
        assert answers == {"worker": wanted, "parent": wanted}, str(result)
