# SPDX-License-Identifier: Apache-2.0
"""Threads without a global lock make their first CUDA request at the same time, then forked
children do."""

import ctypes
import os
import sys
import threading

THREADS = 16
barrier = threading.Barrier(THREADS)
answers = set()


def ask():
    barrier.wait()
    for _ in range(100):
        answers.add(ctypes.CDLL("libcuda.so.1").cuInit(0))


def in_threads(where):
    answers.clear()
    threads = [threading.Thread(target=ask) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("%s cuInit=%s" % (where, ",".join(map(str, answers))), flush=True)


print("lock", sys._is_gil_enabled(), flush=True)
child = os.fork()
if child == 0:
    in_threads("child")
    os._exit(0)
os.waitpid(child, 0)
in_threads("main")
