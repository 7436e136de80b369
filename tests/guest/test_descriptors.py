# SPDX-License-Identifier: Apache-2.0
"""A program that was started with descriptors 0-2 closed has its own files there, and the
guard's line must not land in them. Where descriptor 2 is what the user gave, the line is there."""

import contextlib
import itertools
import os
import pty
import shlex
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
    return read(case, "results")


def read(case, name):
    with open(case.path(name), encoding="utf-8", errors="replace", newline="") as stream:
        return stream.read()


def own_files(case, closed, mode, guard=True, env=None):
    """Runs a program that opens as many files as there are closed descriptors, attempts to use
    CUDA, and writes to the files. Returns the descriptors it got and what the files hold then.
    """
    for name in os.listdir(case.directory):
        os.unlink(case.path(name))
    steps = ["open:%s:%s" % (case.path("file%d" % n), mode) for n in closed]
    # Only now: the results need a descriptor too.
    steps += ["results:" + case.path("results")]
    steps += ["put:%d:before\n" % n for n in closed] + ["ask", "nvml"]
    steps += ["put:%d:after\n" % n for n in closed] + ["attempts"]
    out = launch(case, " ".join("%d>&-" % n for n in closed), steps, guard=guard, env=env or {})
    return out, {n: read(case, "file%d" % n) for n in closed}


@pytest.mark.parametrize(("closed", "mode", "env"), [
    *((*rule, {}) for rule in RULES),
    *((*rule, env) for rule in RULES if rule[1] == "w"
      for env in ({"CUDAGUARD_LOG": "all"}, {"CUDAGUARD_REPORT": "/dev/stderr"}))])
def test_no_message_or_record_goes_to_the_programs_own_files(case, closed, mode, env):
    _, unguarded = own_files(case, closed, mode, guard=False)
    out, guarded = own_files(case, closed, mode, env=env)
    assert "cuInit=100\n" in out
    assert "attempts=2\n" in out
    for n in closed:
        assert "before\nafter\n" in unguarded[n]
    assert guarded == unguarded


@pytest.mark.parametrize(("closed", "mode"), EXCEPTIONS)
def test_limit_message_can_land_in_a_file_of_the_program(case, closed, mode):
    out, contents = own_files(case, closed, mode)
    assert "cuInit=100\n" in out
    assert len(messages.find(contents[2], "no_cuda")) == 1, str(contents)
    assert messages.without(contents[2], "no_cuda") == "before\nafter\n"
    # The remedy.
    _, contents = own_files(case, closed, mode, env={"CUDAGUARD_LOG": "off"})
    assert contents[2] == "before\nafter\n"


@pytest.mark.parametrize(("make", "end"), [
    ("a, b = (end.detach() for end in socket.socketpair())", "b"), ("a, b = os.pipe()", "a")])
@pytest.mark.parametrize(("preload", "result"), [(harness.GUARD, 100), ("", 0)])
def test_programs_own_socket_and_pipe_get_no_message(case, make, end, preload, result):
    """A program with all three closed that has a connection, or a pipe's end to read from, at 2."""
    script = ("import ctypes, os, socket, sys\n"
              "%s; os.dup2(a, 2); os.close(0); os.close(1)\n"
              "r = ctypes.CDLL('libcuda.so.1').cuInit(0)\n"
              "os.set_blocking(%s, False)\n"
              "try: got = os.read(%s, 1000)\n"
              "except BlockingIOError: got = b''\n"
              "open(sys.argv[1], 'w').write('%%d %%r' %% (r, got))\n") % (make, end, end)
    environment = {"LD_PRELOAD": preload, "LD_LIBRARY_PATH": harness.FAKE_DRIVER}
    subprocess.run([guest.PYTHON, "-c", script, case.path("results")], env=environment,
                   check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, timeout=60)
    assert read(case, "results") == "%d b''" % result


# Where the line is wanted.


def assert_line(text, count=1, asked_by="steps"):
    assert len(messages.find(text, "no_cuda", cause="FORCE_CPU", asked_by=asked_by)) == count, text


def attempt(case, redirections="", **options):
    launch(case, redirections, ["results:" + case.path("results"), "ask"], **options)


@pytest.mark.parametrize(("redirections", "more"), [
    ("2>{}", {}), (">{} 2>&1", {}), ("<&- >{} 2>&1", {}),
    ("2>{}", {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE})])
def test_message_goes_to_a_file(case, redirections, more):
    attempt(case, redirections.format(case.path("err")), **more)
    assert_line(read(case, "err"))


def test_messages_are_appended_to_a_file(case):
    for _ in range(2):
        attempt(case, ">>%s 2>>%s" % (case.path("out"), case.path("err")))
    assert_line(read(case, "err"), 2)


STREAMS = ("stdin", "stdout", "stderr")


def streams(kind):
    """Returns the program's streams, and the descriptor from which its messages can be read."""
    if kind == "pipe":
        ours, theirs = os.pipe()
        return {"stderr": theirs}, ours
    if kind == "terminal":
        ours, theirs = pty.openpty()
        return dict.fromkeys(STREAMS, theirs), ours
    pairs = {name: [end.detach() for end in socket.socketpair()] for name in STREAMS}
    if kind == "sockets":
        return {name: theirs for name, (_, theirs) in pairs.items()}, pairs["stderr"][0]
    return dict.fromkeys(STREAMS[-kind:], pairs["stderr"][1]), pairs["stderr"][0]


@pytest.mark.parametrize("kind", ["pipe", "terminal", "sockets", 2, 1])
def test_message_goes_to_a_pipe_a_terminal_or_a_socket(case, kind):
    """Node gives its children three sockets. systemd opens /dev/null as descriptor 0 and one stream
    socket, the journal's, as 1 and 2, or as 2 alone."""
    theirs, ours = streams(kind)
    attempt(case, **theirs)
    assert_line(os.read(ours, 4096).decode().replace("\r\n", "\n"))
    for descriptor in {*theirs.values(), ours}:
        os.close(descriptor)


def test_file_that_is_open_for_reading_gets_no_message(case):
    attempt(case, "2<" + case.make("err", ""))
    assert read(case, "err") == ""


# The guard rather loses the message than lets the program die or wait.


def ask(case, *steps, guard=True, wrap=(), **options):
    """Runs the steps; the exit code and what it printed."""
    # Where every user may look.
    words = [*wrap, "env", "-i", "LD_LIBRARY_PATH=" + harness.public(harness.FAKE_DRIVER)]
    if guard:
        words.append("LD_PRELOAD=" + harness.public_guard())
    words += ["%s=%s" % item for item in options.pop("env", {}).items()]
    try:
        done = subprocess.run([*words, harness.public(guest.STEPS), *steps], check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60,
                              **options)
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


LIMITED = ("prlimit", "--fsize=0")


@pytest.mark.parametrize("env", [{}, {"CUDAGUARD_REPORT": "/dev/stderr"},
                                 {"CUDAGUARD_REPORT": "FILE"}])
def test_limit_of_the_file_size_does_not_kill(case, env):
    case.need("prlimit")
    env = {key: value.replace("FILE", case.path("report")) for key, value in env.items()}
    code = same_as_unguarded(case, "ask", "nvml", make_stderr=lambda: file(case), wrap=LIMITED,
                             env=env)
    assert (code, read(case, "err")) == (0, "")


def test_limit_of_the_file_size_kills_a_program_that_writes_itself(case):
    """The limit is one, and the program's own signals are still its own."""
    code = same_as_unguarded(case, "ask", "put:2:x", make_stderr=lambda: file(case), wrap=LIMITED)
    assert code == -signal.SIGXFSZ
    # Without the limit the line does land there.
    with file(case) as stderr:
        ask(case, "ask", stderr=stderr)
    assert_line(read(case, "err"))


def check_pipes(case, *before, wrap=()):
    """No reader, no room, and both as they should be."""
    for env in ({}, {"CUDAGUARD_REPORT": "/dev/stderr"}):
        options = {"wrap": wrap, "env": env}
        code = same_as_unguarded(case, *before, "ask", make_stderr=no_reader, **options)
        assert code == 0
        code = same_as_unguarded(case, *before, "ask", make_stderr=full, **options)
        assert code == 0
        # Without a free descriptor, no code has a file's name.
        asked_by = "code outside any file" if before else "steps"
        assert_line(with_room(case, *before, "ask", **options), asked_by=asked_by)
    # SIGPIPE is what the program itself would get.
    code = same_as_unguarded(case, *before, "ask", "put:2:x", make_stderr=no_reader, wrap=wrap)
    assert code == -signal.SIGPIPE


@pytest.mark.parametrize("before", [(), ("load:libcuda.so.1", "nofile:3")],
                         ids=["", "no free descriptor"])
def test_pipe_without_reader_or_room_does_not_kill(case, before):
    check_pipes(case, *before)


def test_pipe_of_another_user_does_not_kill(case):
    """A service manager's: /proc/self/fd/2 cannot be opened."""
    case.need("setpriv")
    machine.need("other_users")
    read_end, write_end = os.pipe()
    done = subprocess.run([*machine.AS_NOBODY, "sh", "-c", ": <>/proc/self/fd/2"],
                          stderr=write_end, check=False)
    os.close(write_end)
    with os.fdopen(read_end, encoding="utf-8") as stream:
        assert "Permission denied" in stream.read()
    assert done.returncode != 0
    check_pipes(case, wrap=machine.AS_NOBODY)
