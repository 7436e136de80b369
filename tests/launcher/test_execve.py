# SPDX-License-Identifier: Apache-2.0
"""Under verify each execve waits for an answer, and the programs notice nothing of it: they run the
same calls with the same outcome as without cudaguard."""

import os
import sys

import pytest

from launcher import test_verify_tree
from support import fixtures, harness

# Each line is the name of a call and its outcome.
CALLS = r"""
import ctypes, errno, os, subprocess, threading
directory = os.path.dirname(os.path.abspath(__file__))
os.chdir(directory)
libc = ctypes.CDLL(None, use_errno=True)
ECHO = ["/bin/echo", "hello"]

def make(name, data, mode):
    with open(name, "wb") as stream:
        stream.write(data)
    os.chmod(name, mode)
    return name

def child(name, call):
    # What the program prints, or the errno.
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writing, 1)
        try:
            call()
        except OSError as error:
            os.write(1, errno.errorcode[error.errno].encode())
        os._exit(9)
    os.close(writing)
    said = open(reading, "rb").read().decode().strip()
    print(name, said, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)

def execveat(fd, path, flags):
    words = (ctypes.c_char_p * 3)(*[word.encode() for word in ECHO])
    libc.syscall(%d, fd, path, words, None, flags)
    raise OSError(ctypes.get_errno(), "execveat")

def memfd():
    fd = os.memfd_create("program")
    os.write(fd, open("/bin/echo", "rb").read())
    os.execve(fd, ECHO, os.environ)

def thread():
    done = threading.Thread(target=os.execv, args=(ECHO[0], ECHO))
    done.start()
    done.join()

busy = make("busy", open("/bin/echo", "rb").read(), 0o755)
writer = open(busy, "ab")
echo = os.open("/bin/echo", os.O_RDONLY)
run = lambda path, words=ECHO, env=os.environ: lambda: os.execve(path, words, env)
child("run", run("/bin/echo"))
child("ENOENT", run("./nothing"))
child("no interpreter", run(make("no-interpreter", b"#!/nothing\n", 0o755)))
child("EACCES", run(make("not-executable", b"#!/bin/sh\n", 0o644)))
child("directory", run("/bin"))
child("ENOEXEC", run(make("no-program", b"\0\1\2", 0o755)))
child("E2BIG", run("/bin/echo", ["x" * (1 << 20)] * 20))
child("ETXTBSY", run("./busy"))
os.path.islink("loop") or os.symlink("loop", "loop")
child("ELOOP", run("loop"))
child("EFAULT", lambda: execveat(-100, 8, 0))
child("huge environment", run("/bin/echo", ECHO, {str(i): "x" * 1000 for i in range(1000)}))
child("script", run(make("script", b"#!/bin/sh\necho $0\n", 0o755)))
child("PATH", lambda: os.execvpe("echo", ECHO, {"PATH": "/nothing:" + directory + ":/bin"}))
child("fexecve", run(echo))
child("AT_EMPTY_PATH", lambda: execveat(echo, b"", 0x1000))
child("execveat", lambda: execveat(os.open("/bin", os.O_RDONLY), b"echo", 0))
child("memfd", memfd)
child("thread", thread)
os.posix_spawn("/bin/echo", ["echo", "spawned"], os.environ)
os.wait()
subprocess.run(["/bin/echo", "vfork"], close_fds=False, check=True)
try:
    os.posix_spawn("/nothing", ["nothing"], os.environ)
except OSError as error:
    print("posix_spawn", errno.errorcode[error.errno], flush=True)
""" % {"x86_64": 322, "aarch64": 281}[os.uname().machine]

# Signals reach the children at any time around their execve. A handler without SA_RESTART can make
# execve fail with EINTR (tests/lab/limits.md).
STORM = r"""
import os, random, signal
signal.signal(signal.SIGUSR1, lambda *_: None)
ends = {}
for i in range(300):
    pid = os.fork()
    if pid == 0:
        while True:
            try:
                os.execv("/bin/true", ["true"])
            except InterruptedError:
                pass
    number = (signal.SIGUSR1, signal.SIGSTOP, signal.SIGKILL)[i % 3]
    for _ in range(random.randrange(100)):
        os.getppid()
    os.kill(pid, number)
    os.kill(pid, signal.SIGCONT)
    end = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert end == 0 or -end in (signal.SIGKILL, signal.SIGUSR1), (number, end)
"""


class Case(test_verify_tree.Case):
    def passes(self, *words):
        """Runs the words without cudaguard and under verify, with the same output."""
        unguarded = harness.run(words, world="none", guard=False, trace=False)
        result = self.verify(words)
        self.assertEqual((unguarded.rc, unguarded.out), (0, result.out), (unguarded, result))
        self.assertIn(result.rc, (0, 3), result)
        return result


make_case = fixtures.lent("case", Case)


def test_calls_end_as_without_verify(case):
    result = case.passes(sys.executable, case.make("calls.py", CALLS))
    assert result.out.count("hello") == 8, str(result)


def test_signals_around_execve_do_no_harm(case):
    case.passes(sys.executable, case.make("storm.py", STORM))


@pytest.mark.needs("tracing")
@pytest.mark.parametrize("words", [
    ["strace", "-f", "-o", "/dev/null", "sh", "-c", "/bin/echo inside; true"],
    ["gdb", "-q", "-batch", "-nx", "-ex", "set startup-with-shell off", "-ex", "run", "-ex",
     "info inferiors", "/bin/true"]], ids=lambda words: words[0])
def test_tracers_work_below_verify(case, words):
    case.need(words[0])
    done = case.verify(words)
    assert done.rc in (0, 3), done
    assert ("inside" if words[0] == "strace" else "exited normally") in done.out, done
