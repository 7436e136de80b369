# SPDX-License-Identifier: Apache-2.0
"""A seccomp filter cannot be removed, and a call without an answer waits. So verify has a second
process, the keeper, which answers while the launcher is stopped and after its end."""

import ctypes
import os
import signal
import struct
import subprocess

import pytest

from launcher import test_observe_signals
from support import fence, fixtures, machine, verified

# Waits for a line, and then starts programs. Another line must come before the attempts.
PROGRAMS = """cd "${0%%/*}" && test ! -t 1 || exec 9>&1  # tmux ends what gives up the terminal
exec >log 2>&1 </dev/null
echo $$ >pid; mv pid daemon
read line <start
/bin/true && echo started
(exec /bin/echo again)
./nothing; echo $?
read line <ask
%s ask
python3 -c 'import ctypes; print(ctypes.CDLL("libcuda.so.1").cuInit(0))'
echo done
""" % fence.program("asks_static")
PTRACE_DETACH, PTRACE_SYSCALL, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 24, 0x4206, 0x4207
PTRACE_GET_SYSCALL_INFO, SYSCALL_ENTRY, TRACESYSGOOD = 0x420e, 1, 1
OPENS = {"x86_64": 257, "aarch64": 56}[os.uname().machine]  # openat
IOCTL = {"x86_64": 16, "aarch64": 29}[os.uname().machine]
# SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND, SECCOMP_IOCTL_NOTIF_ID_VALID
RECEIVE, ANSWER, STILL_WAITS = 0xC0502100, 0xC0182101, 0x80082102
READS_MEMORY = {"x86_64": 310, "aarch64": 270}[os.uname().machine]  # process_vm_readv
WAYS = {"daemon": "setsid -f sh %s",
        "shell": "sh %s &",
        "tmux": "tmux -S ${0%%/*}/tmux -f /dev/null new -d sh %s"}


class Case(test_observe_signals.Case):
    def begin(self, way="daemon"):
        """Returns (the launcher, the id of the keeper)."""
        for name in ("start", "ask"):
            os.mkfifo(self.path(name))
        programs = self.make("programs.sh", PROGRAMS)
        main = self.make("main.sh", WAYS[way] % programs + "\necho $$\nexec sleep 600\n")
        verify = self.popen([*verified.VERIFY, "--", "sh", main])
        self.program = int(verify.stdout.readline())
        self.until(lambda: os.path.exists(self.path("daemon")), way)
        self.addCleanup(self.end_programs)
        return verify, verified.keeper_of(self, verify.pid)

    def end_programs(self):
        with open(self.path("daemon"), encoding="utf-8") as stream:
            pid = int(stream.read())
        if not self.has_ended(pid):
            os.kill(pid, signal.SIGKILL)

    def log(self):
        with open(self.path("log"), encoding="utf-8") as stream:
            return stream.read().splitlines()

    def go(self, name):
        with open(self.path(name), "w", encoding="utf-8") as stream:
            stream.write("go\n")

    def starts(self):
        self.go("start")
        self.until(lambda: "127" in self.log(), "the programs' start")
        self.assertEqual(self.log()[:2], ["started", "again"])

    def asks(self):
        self.go("ask")
        self.until(lambda: "done" in self.log(), "the answers")
        asked, initialised, _ = self.log()[-3:]
        self.assertEqual((asked.split()[1:], initialised), (["ENODEV"], "100"))

    def counts_guarded_once(self, verify):
        """sh, sleep, setsid, sh, mv, true, echo and python3. Returns what verify printed."""
        os.kill(self.program, signal.SIGTERM)
        _, err = verify.communicate(timeout=test_observe_signals.PATIENCE)
        assert verify.returncode == 1, err
        assert " programs started: 8 guarded, " in err, err
        return err

    def counts_each_once(self, verify):
        """The same, and asks_static."""
        err = self.counts_guarded_once(verify)
        assert "8 guarded, 1 unguarded:" in " ".join(err.split()), err


make_case = fixtures.lent("case", Case)


def kill(case, verify):
    """As when memory has run out: the kernel sends SIGKILL."""
    verify.kill()


def crash(case, verify):
    """It dies by a signal of its own, as by abort()."""
    machine.need("tracing")
    case.need("gdb")
    subprocess.run(["gdb", "-q", "-batch", "-nx", "-p", str(verify.pid), "-ex", "set $pc=0", "-ex",
                    "detach"], capture_output=True, check=True, env={**os.environ, "HOME": "/"})


def leave(case, verify):
    """The first signal ends the program, and a later one the wait for the daemon. One that comes just
    as the program ends is the program's."""
    def ends():
        verify.terminate()
        return verify.poll() is not None

    case.until(ends, "the launcher's end")


@pytest.mark.parametrize("way,how", [("daemon", kill), ("shell", kill), ("tmux", kill),
                                     ("daemon", crash), ("daemon", leave)],
                         ids=lambda one: one if isinstance(one, str) else one.__name__)
def test_programs_start_after_the_launchers_end(case, way, how):
    if way == "tmux":
        case.need("tmux")
    verify, keeper = case.begin(way)
    how(case, verify)
    verify.wait(test_observe_signals.PATIENCE)
    case.starts()
    case.asks()
    case.until(lambda: case.has_ended(keeper), "the keeper's end")


@pytest.mark.parametrize("way", WAYS)
def test_programs_start_while_the_launcher_is_stopped(case, way):
    if way == "tmux":
        case.need("tmux")
    verify, keeper = case.begin(way)
    verify.send_signal(signal.SIGSTOP)
    case.until(lambda: case.state(verify.pid) == "T", "the stop")
    case.starts()
    verify.send_signal(signal.SIGCONT)
    case.asks()
    os.kill(case.program, signal.SIGTERM)
    _, err = verify.communicate(timeout=test_observe_signals.PATIENCE)
    assert verify.returncode == 1, err
    assert "python3 -c import ctypes" in err and "asks_static ask" in err, err
    assert "cudaguard was stopped for a time, or too slow, and missed " in " ".join(err.split()), err
    case.until(lambda: case.has_ended(keeper), "the keeper's end")


def trace(request, pid, address=0, data=None):
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.ptrace(request, pid, ctypes.c_void_p(address), data) >= 0, \
        os.strerror(ctypes.get_errno())


def text_at(pid, address):
    with open("/proc/%d/mem" % pid, "rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(64).split(b"\0")[0].decode()


def hold_at(pid, call, begin, paths=(), requests=()):
    """Begins something, and stops the process where it makes this system call. With paths, where it
    opens the last of them, after the others. With requests, the same for those of ioctl."""
    wanted = [*paths, *requests]
    trace(PTRACE_SEIZE, pid, 0, TRACESYSGOOD)
    trace(PTRACE_INTERRUPT, pid)
    begin()
    info = ctypes.create_string_buffer(96)
    while True:
        _, status = os.waitpid(pid, 0)
        assert os.WIFSTOPPED(status), status
        trace(PTRACE_GET_SYSCALL_INFO, pid, len(info), info)
        kind, number, _, path = struct.unpack_from("=B23xQQQ", info.raw)
        if (kind, number) == (SYSCALL_ENTRY, call):
            if wanted and (path if requests else text_at(pid, path)) == wanted[0]:
                del wanted[0]
            if not wanted:
                return
        trace(PTRACE_SYSCALL, pid)


@pytest.mark.needs("tracing")
@pytest.mark.parametrize("end", [signal.SIGCONT, signal.SIGKILL])
def test_keeper_answers_a_start_that_the_stopped_launcher_has_received(case, end):
    verify, keeper = case.begin()
    os.kill(keeper, signal.SIGSTOP)  # otherwise it could be the first to receive the call
    hold_at(verify.pid, READS_MEMORY, lambda: case.go("start"))
    verify.send_signal(signal.SIGSTOP)
    trace(PTRACE_DETACH, verify.pid)
    case.until(lambda: case.state(verify.pid) == "T", "the stop")
    os.kill(keeper, signal.SIGCONT)
    case.until(lambda: "127" in case.log(), "the programs' start")
    assert case.log()[:2] == ["started", "again"]
    assert case.state(verify.pid) == "T"
    verify.send_signal(end)
    case.asks()
    if end == signal.SIGCONT:
        os.kill(case.program, signal.SIGTERM)
    # Before Linux 6.11, a zombie keeps its filter.
    _, err = verify.communicate(timeout=test_observe_signals.PATIENCE)
    if end == signal.SIGCONT:
        assert verify.returncode == 1, err
        assert "or too slow, and missed " in " ".join(err.split()), err
        # All but true and echo, whose calls the keeper has answered.
        assert " programs started: 6 guarded, 1 unguarded:" in " ".join(err.split()), err
    case.until(lambda: case.has_ended(keeper), "the keeper's end")


@pytest.mark.needs("tracing")
def test_attempt_that_the_stopped_launcher_has_received_is_reported(case):
    """The keeper answers it, and what follows."""
    verify, keeper = case.begin()
    case.starts()
    os.kill(keeper, signal.SIGSTOP)
    hold_at(verify.pid, IOCTL, lambda: case.go("ask"),
            requests=[RECEIVE, ANSWER, RECEIVE, STILL_WAITS])
    verify.send_signal(signal.SIGSTOP)
    trace(PTRACE_DETACH, verify.pid)
    case.until(lambda: case.state(verify.pid) == "T", "the stop")
    os.kill(keeper, signal.SIGCONT)
    case.until(lambda: "done" in case.log(), "the answers")
    assert case.log()[-3].split()[1:] + case.log()[-2:] == ["ENODEV", "100", "done"]
    verify.send_signal(signal.SIGCONT)
    os.kill(case.program, signal.SIGTERM)
    _, err = verify.communicate(timeout=test_observe_signals.PATIENCE)
    assert verify.returncode == 1, err
    assert "FAIL: 1 place asked for CUDA, in 1 of " in err, err
    assert "asked    ioctl 0xc020462a RM_CONTROL to NVIDIA's driver" in err, err
    assert "or too slow, and missed " in " ".join(err.split()), err


@pytest.mark.needs("tracing")
@pytest.mark.all
def test_keeper_answers_when_the_launcher_has_done_nothing_for_ten_seconds(case):
    verify, _ = case.begin()
    hold_at(verify.pid, READS_MEMORY, lambda: case.go("start"))
    case.until(lambda: "127" in case.log(), "the programs' start")
    assert case.log()[:2] == ["started", "again"]
    trace(PTRACE_DETACH, verify.pid)
    case.asks()
    os.kill(case.program, signal.SIGTERM)
    _, err = verify.communicate(timeout=test_observe_signals.PATIENCE)
    assert "or too slow, and missed " in " ".join(err.split()), err


@pytest.mark.needs("tracing")
def test_keeper_answers_a_start_that_the_killed_launcher_has_received(case):
    verify, keeper = case.begin()
    os.kill(keeper, signal.SIGSTOP)
    hold_at(verify.pid, READS_MEMORY, lambda: case.go("start"))
    verify.kill()
    verify.wait(test_observe_signals.PATIENCE)
    os.kill(keeper, signal.SIGCONT)
    case.until(lambda: "127" in case.log(), "the programs' start")
    case.asks()
    case.until(lambda: case.has_ended(keeper), "the keeper's end")


@pytest.mark.needs("tracing")
def test_launcher_answers_a_start_that_the_killed_keeper_has_received(case):
    verify, keeper = case.begin()
    verify.send_signal(signal.SIGSTOP)
    case.until(lambda: case.state(verify.pid) == "T", "the stop")
    hold_at(keeper, IOCTL, lambda: case.go("start"), requests=[RECEIVE, ANSWER])
    os.kill(keeper, signal.SIGKILL)
    os.waitpid(keeper, 0)  # its tracer is the first to reap it
    verify.send_signal(signal.SIGCONT)
    case.until(lambda: "127" in case.log(), "the programs' start")
    assert case.log()[:2] == ["started", "again"]
    case.asks()
    case.counts_each_once(verify)


def test_keeper_holds_nothing_of_the_users(case):
    _, keeper = case.begin()
    assert os.readlink("/proc/%d/cwd" % keeper) == "/"
    held = {os.readlink("/proc/%d/fd/%s" % (keeper, name)).split(":")[0]
            for name in os.listdir("/proc/%d/fd" % keeper)}
    assert held == {"/dev/null", "socket", "anon_inode"}, held


def test_launcher_goes_on_without_the_keeper(case):
    verify, keeper = case.begin()
    os.kill(keeper, signal.SIGKILL)
    case.starts()
    case.asks()
    os.kill(case.program, signal.SIGTERM)
    _, err = verify.communicate(timeout=test_observe_signals.PATIENCE)
    assert verify.returncode == 1, err


def test_limit_nothing_starts_without_both(case):
    """tests/lab/limits.md"""
    verify, keeper = case.begin()
    os.kill(keeper, signal.SIGKILL)
    verify.kill()
    verify.wait(test_observe_signals.PATIENCE)
    case.go("start")
    case.until(lambda: case.log()[-1:] and case.log()[-1].isdigit(), "the errors")
    assert case.log()[-1] == "126", case.log()
    assert "Function not implemented" in case.log()[0], case.log()
