# SPDX-License-Identifier: Apache-2.0
"""Greenlets, nested and in threads, ask for CUDA: whose stack it is changes with each switch."""

import ctypes
import os
import threading

import greenlet


def ask(parent, depth):
    if depth:
        return greenlet.greenlet(ask).switch(parent, depth - 1)
    parent.switch()  # and is continued from there
    return ctypes.CDLL("libcuda.so.1").cuInit(0)


def in_greenlets():
    started = [greenlet.greenlet(ask) for _ in range(10)]
    for one in started:
        one.switch(greenlet.getcurrent(), 0)
    return {one.switch() for one in started} | {nested()}


def nested():
    """The innermost of 20 greenlets asks, after an exception has passed through them."""
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
if child == 0:  # its first request
    show("child")
    os._exit(0)
os.waitpid(child, 0)
show("main")
thread = threading.Thread(target=show, args=["thread"])
thread.start()
thread.join()
