# SPDX-License-Identifier: Apache-2.0
"""Greenlets, nested and in threads, ask for CUDA. Each switch changes whose stack the thread has.
"""

import ctypes
import os
import threading

import greenlet


def ask(parent, depth):
    if depth:
        return greenlet.greenlet(ask).switch(parent, depth - 1)
    parent.switch()  # the parent continues it from here
    return ctypes.CDLL("libcuda.so.1").cuInit(0)


def in_greenlets():
    started = [greenlet.greenlet(ask) for _ in range(10)]
    for one in started:
        one.switch(greenlet.getcurrent(), 0)
    return {one.switch() for one in started} | {nested()}


def nested():
    """Asks in the innermost of 20 greenlets, after an exception has propagated through them."""
    def inner(depth):
        if depth:
            return greenlet.greenlet(inner).switch(depth - 1)
        raise KeyError(ctypes.CDLL("libcuda.so.1").cuInit(0))

    try:
        return greenlet.greenlet(inner).switch(20)
    except KeyError as error:
        return error.args[0]


def show(where):
    print("%s cuInit=%s" % (where, ",".join(map(str, in_greenlets()))), flush=True)


child = os.fork()
if child == 0:  # the first request of the child
    show("child")
    os._exit(0)
os.waitpid(child, 0)
show("main")
thread = threading.Thread(target=show, args=["thread"])
thread.start()
thread.join()
