# SPDX-License-Identifier: Apache-2.0
"""The driver's log (cuLogs*, CUDA_LOG_FILE) says why there is no CUDA, by the contract of cuda.h."""

import os

import pytest

from support import guest, harness

PROGRAM = guest.binary("driver_log")
MESSAGE = "cudaguard: " + guest.DENIED % "driver_log"
BEGIN = MESSAGE.partition("driver_log")[0]
SIZE = len(MESSAGE) + 1  # with the newline
ENTRY = MESSAGE + "\n"


def run(*steps, **env):
    result = harness.run([PROGRAM, *steps], trace=False, env=env)
    assert result.rc == 0, str(result)
    return result


def lines(*steps, **env):
    """What the steps have printed. A dump ends with a newline of its own."""
    return [line for line in run(*steps, **env).out.splitlines() if line]


def test_control_without_the_guard_the_program_reaches_the_driver(case):
    result = harness.run([PROGRAM, "control"], guard=False)
    result.assert_reached(case)
    harness.run([PROGRAM, "control"]).assert_untouched(case)


def test_log_is_empty_before_the_first_refusal():
    assert lines("mark", "dump:900", "all:900", "all:0") == [
        "mark=0", "dump=0,0,kept,", "dump=0,0,kept,", "dump=0,0,kept,"]


def test_refused_call_makes_one_entry_with_the_guards_message():
    result = run("init", "all:900", "all:900")
    assert result.out == "init=100,77\n" + ("dump=0,%d,kept,%s\n" % (SIZE, ENTRY)) * 2, str(result)
    # It is the message on stderr, without the number of the process.
    assert MESSAGE.partition(": ")[2] in result.err


@pytest.mark.parametrize(("room", "shown"), [(0, False), (1, False), (2, False), (SIZE - 1, False),
                                             (SIZE, False), (SIZE + 1, True), (SIZE + 2, True)])
def test_entry_needs_room_for_its_terminator(room, shown):
    """Otherwise the size is 0, the buffer empty, and the iterator stays."""
    answer = "dump=0,%d,kept,%s" % (SIZE, MESSAGE) if shown else "dump=1,0,kept,"
    again = "dump=0,0,kept," if shown else "dump=0,%d,kept,%s" % (SIZE, MESSAGE)
    assert lines("mark", "init", "dump:%d" % room, "dump:900") == [
        "mark=0", "init=100,77", answer, again]


def test_iterator_shows_what_came_after_it():
    """Each refused call is news, and a dump sets the iterator to the end."""
    entry, nothing = "dump=0,%d,kept,%s" % (SIZE, MESSAGE), "dump=0,0,kept,"
    assert [line for line in lines("init", "mark", "dump:900", "init", "dump:900", "dump:900",
                                   "init", "init", "dump:900", "dump:900")
            if line.startswith("dump=")] == [nothing, entry, nothing, entry, nothing]


def test_entry_is_appended_to_a_file(case):
    path = case.path("log")
    with open(path, "w", encoding="utf-8") as stream:
        stream.write("own\n")
    assert lines("init", "file:" + path, "file:" + path, "init", "file:" + path)[1:] == [
        "file=0,77", "file=0,77", "init=100,77", "file=0,77"]
    with open(path, encoding="utf-8") as stream:
        assert stream.read() == "own\n" + 2 * ENTRY
    assert lines("mark", "file:" + case.path("new"))[1:] == ["file=0,77"]
    assert os.path.getsize(case.path("new")) == 0


def test_wrong_arguments_are_invalid_values():
    assert lines("bad") == ["bad=1111111111"]


def test_callback_gets_the_entry_once():
    called = "called=%d,0,1," + MESSAGE
    assert lines("add", "add", "init", "init") == [
        "add=0", "add=0", called % 0, called % 1, "init=100,77", "init=100,77"]
    # One that comes later gets the next one, and a removed one gets none.
    assert lines("init", "add", "add", "remove:0", "remove:0", "init", "remove:1", "remove:1")[3:] == [
        "remove=0", "remove=1", called % 1, "init=100,77", "remove=0", "remove=1"]


def test_callback_that_calls_cuinit_does_not_recurse():
    assert lines("add-without-handle", "init") == ["add=0", "init=100,77"]


def test_callbacks_are_limited_and_their_places_are_used_again():
    assert lines(*["add"] * 17, "remove:3", "add", "remove:3") == [
        *["add=0"] * 16, "add=1", "remove=0", "add=0", "remove=1"]


def test_forked_child_has_the_log_and_the_callbacks_of_its_parent():
    """The guard makes no second message for it."""
    entry = "dump=0,%d,kept,%s" % (SIZE, MESSAGE)
    assert lines("init", "fork", "all:900", "init", "all:900") == [
        "init=100,77", entry, "init=100,77", entry, "child=0"]
    assert lines("add", "fork", "init", "remove:0") == [
        "add=0", "called=0,0,1," + MESSAGE, "init=100,77", "remove=0", "child=0"]


def test_handler_may_make_every_call():
    assert lines("signal") == ["handled=1"]


def test_handlers_may_interrupt_every_call():
    assert lines("storm") == ["storm=done"]


def test_log_has_an_entry_without_a_message():
    """With CUDAGUARD_LOG=off there is no message whose caller it could name."""
    assert lines("init", "all:900", CUDAGUARD_LOG="off")[1].endswith("," + BEGIN.partition(";")[0] + ")")


def test_log_has_the_message_that_a_report_keeps_from_stderr(case):
    result = run("init", "all:900", CUDAGUARD_LOG="error", CUDAGUARD_REPORT=case.path("report"))
    assert result.err == "", str(result)
    assert ENTRY in result.out, str(result)


def test_nvml_makes_no_entry():
    program = ("import ctypes; ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2(); n = ctypes.c_uint(7); "
               "print(ctypes.CDLL('libcuda.so.1').cuLogsCurrent(ctypes.byref(n), 0), n.value)")
    result = harness.run(["python3", "-c", program], trace=False)
    assert result.out == "0 0\n", str(result)


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_log_file_can_be_a_stream(name):
    result = run("init", "init", CUDA_LOG_FILE=name)
    text = result.out if name == "stdout" else result.err
    assert text.count(ENTRY) == 1, str(result)
    assert ENTRY not in (result.err if name == "stdout" else result.out)


def test_log_file_gets_the_entry_once_for_each_program(case):
    """A forked child writes no second one."""
    path = case.path("log")
    for times in (1, 2):
        run("init", "fork", "init", CUDA_LOG_FILE=path)
        with open(path, encoding="utf-8") as stream:
            assert stream.read() == times * ENTRY


@pytest.mark.parametrize("value", ["", "/nowhere/file", "/dev/full"])
def test_log_file_that_cannot_be_written_changes_nothing(value):
    assert lines("init", CUDA_LOG_FILE=value) == ["init=100,77"]


def test_log_file_without_a_reader_stops_nobody(case):
    os.mkfifo(case.path("fifo"))
    assert lines("init", CUDA_LOG_FILE=case.path("fifo")) == ["init=100,77"]


def test_entry_of_another_namespace(case):
    """A copy of the null driver in a dlmopen namespace finds the guard's message, too."""
    program = """
import ctypes
libc = ctypes.CDLL(None)
libc.dlmopen.restype = ctypes.c_void_p
handle = libc.dlmopen(ctypes.c_long(-1), b"libcuda.so.1", 2)
driver = ctypes.CDLL("libcuda.so.1", handle=handle)
buffer, size = ctypes.create_string_buffer(900), ctypes.c_size_t(900)
print(driver.cuInit(0), driver.cuLogsDumpToMemory(None, buffer, ctypes.byref(size), 0))
print(buffer.value.decode())
"""
    result = harness.run(["python3", "-c", program], trace=False)
    assert result.out.startswith("100 0\n" + BEGIN), str(result)


def test_log_file_gets_the_entry_of_a_program_that_uses_the_runtime():
    """The runtime itself answers cudaLogsDumpToMemory, by 100."""
    program = """
import ctypes
runtime = ctypes.CDLL("%s/cuda-13/lib/libcudart.so.13")
buffer, size = ctypes.create_string_buffer(900), ctypes.c_size_t(900)
print(runtime.cudaGetDeviceCount(ctypes.byref(ctypes.c_int())),
      runtime.cudaLogsDumpToMemory(None, buffer, ctypes.byref(size), 0))
""" % harness.DEPS
    result = harness.run(["python3", "-c", program], trace=False, env={"CUDA_LOG_FILE": "stdout"})
    assert result.out.count(BEGIN) == 1, str(result)
    assert "100 100" in result.out, str(result)
