# SPDX-License-Identifier: Apache-2.0
"""Calls CUDA from many places of a Python program and prints the stack of each place.

    cases.py CALLS.so all          each place in a forked child
    cases.py CALLS.so NAME         one place in this process

Prints a JSON line for each: [name, process id, [[file, line, function], ...]], innermost first.
Each place makes two calls on one line: `note`, which records the stack that Python itself sees, and
the driver. Runs on Python 3.6.
"""

import atexit
import ctypes
import gc
import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback

CASES = {}
# These places need a process that did nothing else before, so a forked child does not suffice.
ALONE = {}
seen = []  # the stack that was recorded first


def case(function):
    CASES[function.__name__] = function
    return function


def alone(function):
    ALONE[function.__name__] = function
    return function


def note(*_):
    if not seen:  # the record has the first call, too
        seen[:] = rows_of(sys._getframe(1))
    return 0


def rows_of(frame):
    summary = traceback.StackSummary.extract(traceback.walk_stack(frame), lookup_lines=False)
    return [[row.filename, row.lineno, row.name] for row in summary]


class Calls:
    """The functions that the places call. `both` is (note, cuInit)."""

    def __init__(self, path, library=ctypes.CDLL):
        self.driver = library("libcuda.so.1")
        self.helper = library(path)
        self.both = (note, self.driver.cuInit)
        self.address = ctypes.cast(self.driver.cuInit, ctypes.c_void_p)


@case
def function(calls):
    for call in calls.both:
        call(0)


@case
def gil_held(calls):
    for call in (note, ctypes.PyDLL("libcuda.so.1").cuInit):
        call(0)


@case
def several_lines(calls):
    for call in calls.both:
        call(
            int(
                "0"
            ),
        )


@case
def comprehensions(calls):
    return [[call(0) for _ in range(1)] for call in calls.both]


@case
def generator(calls):
    def values():
        for call in calls.both:
            yield call(0)

    def outer():
        yield from values()

    return [*outer()]


@case
def event_loop(calls):
    import asyncio

    async def inner(call):
        await asyncio.sleep(0)
        call(0)

    async def outer():
        for call in calls.both:
            await inner(call)

    asyncio.new_event_loop().run_until_complete(outer())


@case
def asynchronous_generator(calls):
    async def values():
        for call in calls.both:
            yield call(0)

    async def outer():
        return [value async for value in values()]

    try:
        outer().send(None)
    except StopIteration:
        pass


class Name(str):
    """A file's name may be an object of a class derived from str."""


CALL = "for call in both: call(0)"
LONG = "".join("    x = %d\n" % i for i in range(5000))
# Texts that are executed: the file's name and the code.
TEXTS = {
    "executed": ["<string>", "\n\ndef inner(call):\n    call(0)\n\n"
                 "for call in both:\n    inner(call)\n"],
    "not_unicode": [os.fsdecode(b"/tmp/\xff\xfe\xe9.py"), CALL],
    # The line's number needs more than 16 bits.
    "far_down": ["/tmp/far.py", "%sfor call in both:\n    call(0)\n" % (100000 * "\n")],
    # The line table has many entries.
    "long_function": ["/tmp/long.py", "def f(both):\n%s    for call in both:\n        call(0)\n%s"
                      "f(both)\n" % (LONG, LONG)],
    # Columns are beyond the limit of the tables.
    "wide_line": ["/tmp/wide.py", "for call in both: %scall(0)" % (2000 * " ")],
    "very_long_name": ["<string>", "def {0}(both):\n    {1}\n{0}(both)\n".format(5000 * "n", CALL)],
    "of_a_class_of_names": [Name("/tmp/name.py"), CALL],
}


def executes(file, text):
    return lambda calls: exec(compile(text, file, "exec"), {"both": calls.both})


CASES.update((name, executes(*row)) for name, row in TEXTS.items())


@case
def other_files(calls):
    """Builds the stack of a program whose files have odd names."""
    code = "for call in both: go_on(call)"
    names = ["/tmp/ü/prógramme.py", "/tmp/имя.py", "/tmp/日本語 𠀀.py",
             "/tmp/a\"b\\c\n\t\x1b[31m\x7f.py", "", "relative.py", "/" + 300 * "long/" + "x.py"]

    def calls_on(name, inner):
        code = compile("go_on(call)", name, "exec")
        return lambda call: exec(code, {"go_on": inner, "call": call})

    def go_on(call):
        call(0)

    for name in reversed(names):
        go_on = calls_on(name, go_on)
    exec(compile(code, "/tmp/last.py", "exec"), {"both": calls.both, "go_on": go_on})


@case
def names_of_functions(calls):
    names = ["é", "имя", "名前", "𠀀", "a" * 100, "b" * 70]
    code = "def last(call):\n    call(0)\n"
    for before, name in zip(["last"] + names, names):
        code += "def %s(call):\n    %s(call)\n" % (name, before)
    scope = {}
    exec(code, scope)
    for call in calls.both:
        scope[names[-1]](call)


@case
def deep_recursion(calls):
    def down(call, depth):
        return down(call, depth - 1) if depth else call(0)

    for call in calls.both:
        down(call, 900)


@case
def called_back(calls):
    """Python calls C, which calls Python, twice."""
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)

    def inner(call):
        return call(0)

    def outer(call):
        calls.helper.call_back(prototype(lambda _: inner(call) or 0))
        return 0

    for call in calls.both:
        calls.helper.call_back(prototype(lambda _: outer(call)))


@case
def called_back_in_foreign_thread(calls):
    """Python makes a state for a thread that it did not know and keeps it while the thread is in
    Python."""
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint)

    def inner():
        for call in calls.both:
            call(0)
        return 0

    function = prototype(lambda _: inner())
    calls.helper.call_in_thread(ctypes.cast(function, ctypes.c_void_p))


@case
def destructor(calls):
    class Thing:
        def __init__(self, call):
            self.call = call
            self.itself = self

        def __del__(self):
            self.call(0)

    gc.disable()
    for call in calls.both:
        thing = Thing(call)
        del thing
        gc.collect()


@case
def signal_handler(calls):
    for call in calls.both:
        signal.signal(signal.SIGUSR1, lambda *_: call(0))
        os.kill(os.getpid(), signal.SIGUSR1)


@case
def while_traced(calls):
    """A debugger or a coverage tool makes the interpreter run other instructions."""
    def trace(*_):
        return trace

    def inner(call):
        call(0)
        return call

    sys.settrace(trace)
    for call in calls.both:
        inner(call)
    sys.settrace(None)


@case
def while_profiled(calls):
    sys.setprofile(lambda *_: None)
    for call in calls.both:
        (lambda: call(0))()
    sys.setprofile(None)


@case
def importing(calls):
    with tempfile.TemporaryDirectory() as directory:
        for name, text in (("cg_outer", "\nimport cg_inner\n"),
                           ("cg_inner", "import sys\nfor call in sys.cg_both:\n    call(0)\n")):
            with open(os.path.join(directory, name + ".py"), "w") as stream:
                stream.write(text)
        sys.path.insert(0, directory)
        sys.cg_both = calls.both
        __import__("cg_outer")


def run_in_thread(run):
    worker = threading.Thread(target=run)
    worker.start()
    worker.join()


@case
def thread_beside_others(calls):
    """The record has the stack of the calling thread, whatever the other threads do."""
    ready, end = threading.Event(), threading.Event()

    def other():
        ready.set()
        end.wait()

    def run():
        for call in calls.both:
            call(0)

    others = [threading.Thread(target=other) for _ in range(3)]
    for each in others:
        each.start()
    ready.wait()
    run_in_thread(run)
    end.set()
    for each in others:
        each.join()


@case
def forked_in_thread(calls):
    def run():
        pid = os.fork()
        if pid == 0:
            for call in calls.both:
                call(0)
            print_rows("forked_in_thread")
            os._exit(0)
        os.waitpid(pid, 0)

    run_in_thread(run)
    return "printed"


@case
def foreign_thread(calls):
    """Python does not know this thread, so there is no stack."""
    calls.helper.call_in_thread(calls.address)
    seen[:] = []


@alone
def by_cffi(calls):
    import cffi

    ffi = cffi.FFI()
    ffi.cdef("int cuInit(unsigned flags);")
    for call in (note, ffi.dlopen("libcuda.so.1").cuInit):
        call(0)


@alone
def at_exit(calls):
    def last():
        for call in calls.both:
            call(0)
        print_rows("at_exit")

    atexit.register(last)
    return "printed"


@alone
def finalizing(calls):
    """A daemon thread is in a call while the interpreter ends, so the record has its stack or none.
    """

    go, state = ctypes.c_int(0), ctypes.c_int(0)

    class Last:
        def __del__(self, sleep=time.sleep):
            go.value = 1
            while state.value != 2:
                sleep(0.001)

    def run():
        for call, more in ((note, ()), (calls.helper.call_when, words)):
            if more:
                print_rows("finalizing")
            call(calls.address, *more)

    words = ctypes.byref(go), ctypes.byref(state)
    threading.Thread(target=run, daemon=True).start()
    # The end of the interpreter would end a thread that is still in Python code.
    while state.value == 0:
        time.sleep(0.001)
    sys.modules["cg_last"] = Last()
    return "printed"


@alone
def subinterpreter(calls):
    """A subinterpreter has its own GIL from 3.12 on, so the record has its stack or none."""
    code = """
import ctypes, json, os, sys
def note(_):
    frame, rows = sys._getframe(1), []
    while frame:
        rows.append([frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name])
        frame = frame.f_back
    os.write(1, (json.dumps(["subinterpreter", os.getpid(), rows]) + "\\n").encode())
def inner(call):
    call(0)
for call in (note, ctypes.CDLL("libcuda.so.1").cuInit):
    inner(call)
"""
    if sys.version_info >= (3, 13):
        import _interpreters as interpreters
        made = interpreters.create("isolated")
        problem = interpreters.exec(made, code)
        if problem is not None:
            os.write(2, str(problem.formatted).encode())
            return "printed"
    else:
        import _xxsubinterpreters as interpreters
        # In 3.12, ctypes cannot be loaded if the subinterpreter has another GIL.
        options = {"isolated": False} if sys.version_info >= (3, 12) else {}
        interpreters.run_string(interpreters.create(**options), code)
    return "printed"


def print_rows(name):
    os.write(1, (json.dumps([name, os.getpid(), seen]) + "\n").encode())


def run(name, function, calls):
    if function(calls) != "printed":
        print_rows(name)


def main():
    calls = Calls(sys.argv[1])
    if sys.argv[2] != "all":
        return run(sys.argv[2], dict(CASES, **ALONE)[sys.argv[2]], calls)
    for name, function in CASES.items():
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                run(name, function, calls)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        if os.waitpid(pid, 0)[1] != 0:
            os.write(1, (json.dumps([name, None, []]) + "\n").encode())


main()
