# SPDX-License-Identifier: Apache-2.0
"""A trainer and its workers. Each worker makes a context on device 0, as environment workers do that
import a framework. A line on stdin starts each step, and a line on stdout answers it:

  1 the trainer makes its context   2 the workers make theirs   3 all end

    workers.py COUNT spawn|fork     (forked before the trainer's first CUDA call)
"""

import ctypes
import os
import subprocess
import sys


def make_context():
    """Returns cuInit's answer, and the context's answer or -1 if there was no such call."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return -1, -1
    init, device, context = driver.cuInit(0), ctypes.c_int(), ctypes.c_void_p()
    if init != 0:
        return init, -1
    answer = driver.cuDeviceGet(ctypes.byref(device), 0)
    return init, answer or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)


def work(report, stay):
    """Reports the answers and stays until the other end of `stay` is closed."""
    os.write(report, b"%d %d\n" % make_context())
    os.read(stay, 1)


def main():
    count, how = int(sys.argv[1]), sys.argv[2]
    (reported, report), (stay, end), (go, start) = os.pipe(), os.pipe(), os.pipe()
    for _ in range(count if how == "fork" else 0):
        if os.fork() == 0:
            os.close(end)
            os.close(start)
            os.read(go, 1)
            work(report, stay)
            os._exit(0)
    sys.stdin.readline()
    print("trainer.cuInit=%d trainer.context=%d" % make_context(), flush=True)
    sys.stdin.readline()
    os.close(start)
    for _ in range(count if how == "spawn" else 0):
        subprocess.Popen([sys.executable, __file__, "worker", str(report), str(stay)],
                         pass_fds=(report, stay))
    os.close(report)
    with os.fdopen(reported) as stream:
        answers = [tuple(map(int, line.split())) for line in (stream.readline() for _ in range(count))]
    print("started=%d contexts=%d refused=%d" % (len(answers), sum(one == (0, 0) for one in answers),
                                                 sum(one[:1] == (100,) for one in answers)), flush=True)
    sys.stdin.readline()
    os.close(end)
    for _ in answers:
        os.wait()


if __name__ == "__main__":
    work(*map(int, sys.argv[2:])) if sys.argv[1] == "worker" else main()
