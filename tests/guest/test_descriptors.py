# SPDX-License-Identifier: Apache-2.0
"""A program that was started with descriptors 0-2 closed has its own files there, and the
guard's line must not land in them. Where descriptor 2 is what the user gave, the line is there."""

import contextlib
import itertools
import os
import pty
import shlex
import shutil
import signal
import socket
import subprocess

import pytest

from support import guest, harness, machine, messages

MODES = {"w": "write", "we": "write, close-on-exec", "+": "both ways", "wa": "append"}


def is_exception(closed, mode):
    """In tests/lab/limits.md: 2 was closed, perhaps with 1, and the program has a regular file
    there, opened for writing only and without close-on-exec. With /dev/null, a terminal or a
    pipe at 0 this is the same as `>out 2>err`."""
    return closed in ((2,), (1, 2)) and mode in ("w", "wa")


# The closed descriptors and the mode of the program's own files.
OWN_FILES = [(closed, mode) for size in (1, 2, 3)
             for closed in itertools.combinations((0, 1, 2), size) for mode in MODES]
EXCEPTIONS = [row for row in OWN_FILES if is_exception(*row)]
RULES = [row for row in OWN_FILES if not is_exception(*row)]


@pytest.fixture(name="descriptors_case")
def make_descriptors_case(case):
    case.results = case.path("results")
    return case


def launch(case, redirections, steps, **options):
    """The program started by a shell with these redirections; its answers."""
    environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": harness.FAKE_DRIVER,
                   "CG_FAKE_LOG": case.path("fake.log"), **options.pop("env", {})}
    if options.pop("guard", True):
        environment["LD_PRELOAD"] = harness.GUARD
    words = " ".join(shlex.quote(word) for word in
                     ["env", *("%s=%s" % item for item in environment.items()), guest.STEPS,
                      *steps])
    subprocess.run(["/bin/sh", "-c", "exec " + words + " " + redirections], check=True,
                   timeout=60, env={"PATH": os.environ["PATH"]},
                   **{"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL,
                      "stderr": subprocess.DEVNULL, **options})
    with open(case.results, encoding="utf-8") as stream:
        return stream.read()


def own_files(case, closed, mode, guard=True, env=None):
    """Runs a program that opens as many files as there are closed descriptors, attempts to use
    CUDA, and writes to the files. Returns the descriptors it got and what the files hold then.
    """
    for name in os.listdir(case.directory):
        os.unlink(case.path(name))
    steps = ["open:%s:%s" % (case.path("file%d" % n), mode) for n in closed]
    # Only now: the results need a descriptor too.
    steps += ["results:" + case.results]
    steps += ["put:%d:before\n" % n for n in closed] + ["ask", "nvml"]
    steps += ["put:%d:after\n" % n for n in closed] + ["attempts"]
    out = launch(case, " ".join("%d>&-" % n for n in closed), steps, guard=guard, env=env or {})
    contents = {}
    for n in closed:
        with open(case.path("file%d" % n), encoding="utf-8", errors="replace") as stream:
            contents[n] = stream.read()
    return out, contents


@pytest.mark.parametrize(("closed", "mode", "log"), [
    *((*rule, "deny") for rule in RULES), *((*rule, "all") for rule in RULES if rule[1] == "w")])
def test_no_message_goes_to_the_programs_own_files(descriptors_case, closed, mode, log):
    _, unguarded = own_files(descriptors_case, closed, mode, guard=False)
    out, guarded = own_files(descriptors_case, closed, mode, env={"CUDAGUARD_LOG": log})
    assert "cuInit=100\n" in out
    assert "attempts=2\n" in out
    for n in closed:
        assert "before\nafter\n" in unguarded[n]
    assert guarded == unguarded


@pytest.mark.parametrize(("closed", "mode"), EXCEPTIONS)
def test_limit_message_can_land_in_a_file_of_the_program(descriptors_case, closed, mode):
    out, contents = own_files(descriptors_case, closed, mode)
    assert "cuInit=100\n" in out
    assert len(messages.find(contents[2], "no_cuda")) == 1, str(contents)
    assert messages.without(contents[2], "no_cuda") == "before\nafter\n"
    # The remedy.
    _, contents = own_files(descriptors_case, closed, mode, env={"CUDAGUARD_LOG": "off"})
    assert contents[2] == "before\nafter\n"


@pytest.mark.parametrize("closed", [closed for closed, mode in RULES if mode == "w"])
def test_no_record_goes_to_the_programs_own_files(descriptors_case, closed):
    _, unguarded = own_files(descriptors_case, closed, "w", guard=False)
    _, guarded = own_files(descriptors_case, closed, "w", env={"CUDAGUARD_REPORT": "/dev/stderr"})
    assert guarded == unguarded


@pytest.mark.parametrize(("make", "read"), [
    ("a, b = (end.detach() for end in socket.socketpair())", "b"), ("a, b = os.pipe()", "a")])
@pytest.mark.parametrize(("preload", "result"), [(harness.GUARD, 100), ("", 0)])
def test_programs_own_socket_and_pipe_get_no_message(descriptors_case, make, read, preload, result):
    """A program with all three closed that has a connection, or a pipe's end to read from, at 2."""
    script = ("import ctypes, os, socket, sys\n"
              "%s; os.dup2(a, 2); os.close(0); os.close(1)\n"
              "r = ctypes.CDLL('libcuda.so.1').cuInit(0)\n"
              "os.set_blocking(%s, False)\n"
              "try: got = os.read(%s, 1000)\n"
              "except BlockingIOError: got = b''\n"
              "open(sys.argv[1], 'w').write('%%d %%r' %% (r, got))\n") % (make, read, read)
    environment = {"LD_PRELOAD": preload, "LD_LIBRARY_PATH": harness.FAKE_DRIVER}
    subprocess.run([guest.PYTHON, "-c", script, descriptors_case.results], env=environment,
                   check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, timeout=60)
    with open(descriptors_case.results, encoding="utf-8") as stream:
        assert stream.read() == "%d b''" % result


# --- where the line is wanted ---------------------------------------------------------------
def assert_line_descriptors(text, count=1):
    assert guest.lines_of(text).count(guest.DENIED % "steps") == count, text


def attempt(case, redirections="", **options):
    launch(case, redirections, ["results:" + case.results, "ask"], **options)


def read(case, name):
    with open(case.path(name), encoding="utf-8", newline="") as stream:
        return stream.read()


@pytest.mark.parametrize(("redirections", "more"), [
    ("2>{}", {}), (">{} 2>&1", {}), ("<&- >{} 2>&1", {}),
    ("2>{}", {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE})])
def test_message_goes_to_a_file(descriptors_case, redirections, more):
    attempt(descriptors_case, redirections.format(descriptors_case.path("err")), **more)
    assert_line_descriptors(read(descriptors_case, "err"))


def test_messages_are_appended_to_a_file(descriptors_case):
    for _ in range(2):
        attempt(descriptors_case,
                ">>%s 2>>%s" % (descriptors_case.path("out"), descriptors_case.path("err")))
    assert_line_descriptors(read(descriptors_case, "err"), 2)


def test_message_goes_to_a_pipe(descriptors_case):
    read_end, write_end = os.pipe()
    attempt(descriptors_case, stderr=write_end)
    os.close(write_end)
    with os.fdopen(read_end, encoding="utf-8") as stream:
        assert_line_descriptors(stream.read())


def test_message_goes_to_a_terminal(descriptors_case):
    ours, theirs = pty.openpty()
    attempt(descriptors_case, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    assert_line_descriptors(os.read(ours, 4096).decode().replace("\r\n", "\n"))
    os.close(ours)


@pytest.mark.parametrize("streams", [("stdout", "stderr"), ("stderr",)])
def test_message_goes_to_the_journal(descriptors_case, streams):
    """systemd opens /dev/null as descriptor 0 and one stream socket as 1 and 2, or as 2 alone."""
    ours, theirs = socket.socketpair()
    attempt(descriptors_case, **dict.fromkeys(streams, theirs))
    theirs.close()
    assert_line_descriptors(ours.recv(4096).decode())
    ours.close()


def test_message_goes_to_the_parent_of_three_sockets(descriptors_case):
    """Node gives its children such."""
    pairs = {name: socket.socketpair() for name in ("stdin", "stdout", "stderr")}
    attempt(descriptors_case, **{name: theirs for name, (_, theirs) in pairs.items()})
    assert_line_descriptors(pairs["stderr"][0].recv(4096).decode())
    for pair in pairs.values():
        for end in pair:
            end.close()


def test_file_that_is_open_for_reading_gets_no_message(descriptors_case):
    open(descriptors_case.path("err"), "w", encoding="utf-8").close()
    attempt(descriptors_case, "2<" + descriptors_case.path("err"))
    assert read(descriptors_case, "err") == ""


NOBODY = 65534


# The guard rather loses the message than lets the program die or wait.


@pytest.fixture(name="never_kills_case")
def make_never_kills_case(case):
    # Where every user may look.
    case.guard = harness.copy_install(case.path("lib"))
    case.program = case.path("steps")
    shutil.copy(guest.STEPS, case.program)
    case.driver = case.path("driver")
    shutil.copytree(harness.FAKE_DRIVER, case.driver, symlinks=True)
    return case


def ask(case, *steps, guard=True, wrap=(), **options):
    """Runs the steps; the exit code and what it printed."""
    words = [*wrap, "env", "-i", "LD_LIBRARY_PATH=" + case.driver]
    if guard:
        words.append("LD_PRELOAD=" + case.guard)
    words += ["%s=%s" % item for item in options.pop("env", {}).items()]
    try:
        done = subprocess.run(words + [case.program, *steps], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, timeout=60, check=False, **options)
    except subprocess.TimeoutExpired:
        case.fail("waits: " + shlex.join(words))
    return done.returncode, done.stdout.decode()


def same_as_unguarded(case, *steps, make_stderr, **options):
    """Checks that the program ends alike, guarded and not. make_stderr gives a descriptor."""
    outcomes = []
    for guard in (False, True):
        with make_stderr() as stderr:
            outcomes.append(ask(case, *steps, guard=guard, stderr=stderr, **options))
    unguarded, guarded = outcomes
    assert "cuInit=0\n" in unguarded[1]
    answers = unguarded[1].replace("cuInit=0", "cuInit=100")
    assert guarded == (unguarded[0], answers.replace("nvmlInit_v2=0", "nvmlInit_v2=9"))
    return unguarded[0]


@contextlib.contextmanager
def no_reader():
    read_end, write_end = os.pipe()
    os.close(read_end)
    yield write_end
    os.close(write_end)


@contextlib.contextmanager
def full():
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    try:
        while True:
            os.write(write_end, b"x" * 4096)
    except BlockingIOError:
        pass
    os.set_blocking(write_end, True)
    yield write_end
    os.close(write_end)
    os.close(read_end)


def with_room(case, *steps, **options):
    """What arrives in a pipe."""
    read_end, write_end = os.pipe()
    code, out = ask(case, *steps, stderr=write_end, **options)
    os.close(write_end)
    with os.fdopen(read_end, encoding="utf-8") as stream:
        text = stream.read()
    assert code == 0, text
    assert "cuInit=100\n" in out
    return text


@contextlib.contextmanager
def file(case):
    with open(case.path("err"), "wb") as stream:
        yield stream


@pytest.mark.parametrize("env", [{}, {"CUDAGUARD_LOG": "all"}, {"CUDAGUARD_REPORT": "/dev/stderr"},
                                 {"CUDAGUARD_REPORT": "FILE"}])
def test_limit_of_the_file_size_does_not_kill(never_kills_case, env):
    wrap = ("prlimit", "--fsize=0")
    never_kills_case.need("prlimit")
    env = {
        key: value.replace("FILE", never_kills_case.path("report")) for key, value in env.items()
    }
    code = same_as_unguarded(never_kills_case, "ask", "nvml", make_stderr=lambda: file(never_kills_case),
                             wrap=wrap, env=env)
    assert (code, os.path.getsize(never_kills_case.path("err"))) == (0, 0)


def test_limit_of_the_file_size_kills_a_program_that_writes_itself(never_kills_case):
    wrap = ("prlimit", "--fsize=0")
    # The limit is one, and the program's own signals are still its own.
    code = same_as_unguarded(never_kills_case, "ask", "put:2:x", make_stderr=lambda: file(never_kills_case),
                             wrap=wrap)
    assert code == -signal.SIGXFSZ
    # Without the limit the line does land there.
    with file(never_kills_case) as stderr:
        ask(never_kills_case, "ask", stderr=stderr)
    with open(never_kills_case.path("err"), encoding="utf-8") as stream:
        assert_line_never_kills(stream.read())


def assert_line_never_kills(text):
    assert len(messages.find(text, "no_cuda", cause="FORCE_CPU")) == 1, text


def check_pipes(case, *before, wrap=()):
    """No reader, no room, and both as they should be."""
    for env in ({}, {"CUDAGUARD_REPORT": "/dev/stderr"}):
        options = {"wrap": wrap, "env": env}
        code = same_as_unguarded(case, *before, "ask", make_stderr=no_reader, **options)
        assert code == 0
        code = same_as_unguarded(case, *before, "ask", make_stderr=full, **options)
        assert code == 0
        assert_line_never_kills(with_room(case, *before, "ask", **options))
    # SIGPIPE is what the program itself would get.
    code = same_as_unguarded(case, *before, "ask", "put:2:x", make_stderr=no_reader, wrap=wrap)
    assert code == -signal.SIGPIPE


def test_pipe_without_reader_or_room_does_not_kill(never_kills_case):
    check_pipes(never_kills_case)


def test_pipe_of_another_user_does_not_kill(never_kills_case):
    """A service manager's: /proc/self/fd/2 cannot be opened."""
    never_kills_case.need("setpriv")
    machine.need("other_users")
    wrap = ("setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups")
    read_end, write_end = os.pipe()
    done = subprocess.run([*wrap, "sh", "-c", ": <>/proc/self/fd/2"], stderr=write_end,
                          check=False)
    os.close(write_end)
    with os.fdopen(read_end, encoding="utf-8") as stream:
        assert "Permission denied" in stream.read()
    assert done.returncode != 0
    check_pipes(never_kills_case, wrap=wrap)


def test_pipes_do_not_kill_without_a_free_descriptor(never_kills_case):
    check_pipes(never_kills_case, "load:libcuda.so.1", "nofile:3")
