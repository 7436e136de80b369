# SPDX-License-Identifier: Apache-2.0
"""Calls CUDA many times, each time from a different place, while other threads collect garbage,
execute code and read all frames.

    busy.py TIMES              one call after the other
    busy.py TIMES threads      four threads at once

Prints one JSON line: [[[file, line, function], ...], ...], the stack of each call as Python sees
it. With "threads" it is {thread's id: its own stack}.
"""

import ctypes
import gc
import json
import os
import sys
import threading
import traceback

end = threading.Event()
seen = []


def rows_of(frame):
    summary = traceback.StackSummary.extract(traceback.walk_stack(frame), lookup_lines=False)
    return [[row.filename, row.lineno, row.name] for row in summary]


def note(_):
    seen.append(rows_of(sys._getframe(1)))


def collect():
    while not end.is_set():
        cycles = []
        for _ in range(200):
            cycle = []
            cycle.append(cycle)
            cycles.append(cycle)
        del cycle, cycles
        gc.collect(0)


def execute():
    number = 0
    while not end.is_set():
        number += 1
        scope = {}
        exec("def function_%d(x):\n    return [y for y in range(x)]\n" % (number % 50), scope)
        scope["function_%d" % (number % 50)](20)


def look():
    while not end.is_set():
        for frame in sys._current_frames().values():
            while frame is not None:
                frame.f_locals
                frame.f_lineno
                frame = frame.f_back


class Attempts:
    def __init__(self, times):
        self.times = times
        self.watch = ctypes.CDLL(None).cudaguard_watch
        self.both = [(note, library("libcuda.so.1").cuInit)
                     for library in (ctypes.CDLL, ctypes.PyDLL)]

    def run(self, first):
        for i in range(first, self.times, 2):
            self.watch(None)
            both = self.both[i // 2 % 2]
            code = "%sfor call in both:\n    %s\n" % (
                i % 1000 * "\n", ("call(0)", "[call(0) for _ in (1,)]", "(lambda: call(0))()",
                                  "exec('call(0)')")[i // 4 % 4])
            exec(compile(code, "/tmp/место_%d.py" % i, "exec"), {"both": both})

    def run_all(self, how):
        if how == "threads":
            return self.from_threads()
        worker = threading.Thread(target=self.run, args=(0,))
        worker.start()
        worker.join()
        self.run(1)  # the same in the main thread
        print_json(seen)

    def from_threads(self):
        stacks = {}

        def run(own):
            both = self.both[0]
            for i in range(self.times // 4):
                self.watch(None)
                own(both[1])
            seen_here = []
            own(lambda _: seen_here.extend(rows_of(sys._getframe(1))))
            stacks[threading.get_native_id()] = seen_here

        threads = []
        for i in range(4):
            scope = {}
            exec(compile("%sdef own_%d(call):\n    call(0)\n" % (i * "\n", i),
                         "/tmp/own_%d.py" % i, "exec"), scope)
            threads.append(threading.Thread(target=run, args=(scope["own_%d" % i],)))
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        print_json(stacks)


def print_json(what):
    os.write(1, (json.dumps(what) + "\n").encode())


def main():
    sys.setswitchinterval(1e-5)
    attempts = Attempts(int(sys.argv[1]))
    others = [threading.Thread(target=each) for each in (collect, collect, execute, look)]
    for each in others:
        each.start()
    attempts.run_all(sys.argv[2] if len(sys.argv) > 2 else "")
    end.set()
    for each in others:
        each.join()


main()
