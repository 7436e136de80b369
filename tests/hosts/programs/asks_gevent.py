# SPDX-License-Identifier: Apache-2.0
"""gevent's tasks, its pool of threads, its forks and its subprocesses ask for CUDA."""

import gevent.monkey

gevent.monkey.patch_all()

import ctypes  # noqa: E402 (after the patches)
import os  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402

import gevent  # noqa: E402


def ask():
    gevent.sleep(0)
    return ctypes.CDLL("libcuda.so.1").cuInit(0)


def show(where, answers):
    print("%s cuInit=%s" % (where, ",".join(map(str, set(answers)))), flush=True)


child = os.fork()
if child == 0:  # the child's first request, under its parent's event loop
    show("child", [gevent.spawn(ask).get()])
    os._exit(0)
os.waitpid(child, 0)
tasks = [gevent.spawn(ask) for _ in range(50)]
show("tasks", [task.get() for task in tasks])
show("threads", gevent.get_hub().threadpool.map(lambda _: ask(), range(8)))
code = "import ctypes; print('child cuInit=%d' % ctypes.CDLL('libcuda.so.1').cuInit(0))"
print(subprocess.check_output([sys.executable, "-c", code], text=True), end="", flush=True)
