# SPDX-License-Identifier: Apache-2.0
"""These tests pin what the fence does not stop. tests/lab/limits.md documents it."""

import socket
import subprocess
import sys
import threading

import pytest

from support import fence, fixtures, launcher

RM_CONTROL = "c020462a"
UVM_INITIALIZE = "30000001"
# Of nvidia-uvm, whose requests are plain numbers: UVM_REGISTER_GPU, UVM_MM_INITIALIZE,
# UVM_MAP_EXTERNAL_ALLOCATION.
UVM_OTHERS = ["25", "4b", "21"]
# nvidia-modeset's only one, nvidia-drm's GET_DEV_INFO, DRM_IOCTL_VERSION, MODE_GETRESOURCES.
DISPLAY = ["c0106d00", "c0146443", "c0406400", "c04064a0"]
# KFD's GET_VERSION, amdgpu's INFO, i915's GETPARAM, xe's DEVICE_QUERY, nouveau's GEM_NEW.
OTHER_MAKERS = ["80084b01", "40206445", "c0106446", "c0286440", "c0306480"]
# RM_CONTROL with another type, write only, read only, neither.
MADE_UP = ["c020472a", "4020462a", "8020462a", "20462a"]

# On the descriptor that its first word names: what it reads, maps, and what requests answer.
ON_A_DESCRIPTOR = """
import errno, fcntl, mmap, os, socket, sys
number = int(sys.argv[1])
if sys.argv[2] == "over-socket":
    number = socket.recv_fds(socket.socket(fileno=number), 1, 1)[1][0]
print("read", os.pread(number, 5, 0).decode())
print("mapped", mmap.mmap(number, 5, prot=mmap.PROT_READ)[:5].decode())
for request in sys.argv[3:]:
    try:
        fcntl.ioctl(number, int(request, 16))
    except OSError as error:
        print(request, errno.errorcode[error.errno])
"""


def starts_for_others(listening):
    """Starts the program that a client names, and sends its output, as dockerd and systemd do."""
    with listening.accept()[0] as client, client.makefile("rw", encoding="utf-8") as stream:
        words = stream.readline().split()
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False, env=launcher.environment())
        stream.write(done.stdout)


ASKS = """
import socket, sys
with socket.socket(socket.AF_UNIX) as to:
    to.connect(sys.argv[1])
    to.sendall(" ".join(sys.argv[2:]).encode() + b"\\n")
    print(to.makefile().read(), end="")
"""

# Takes its parent's descriptor, and answers its own request by it: the kernel shall go on.
TAKES_THE_ANSWER = """
import ctypes, errno, os, signal, struct, threading
libc = ctypes.CDLL(None, use_errno=True)
PIDFD_OPEN, PIDFD_GETFD, CONTINUE = 434, 438, 1
RECEIVE, SEND = ctypes.c_ulong(0xC0502100), ctypes.c_ulong(0xC0182101)
parent = os.getppid()
try:
    number = next(name for name in os.listdir("/proc/%d/fd" % parent)
                  if "seccomp" in os.readlink("/proc/%d/fd/%s" % (parent, name)))
except OSError as error:
    raise SystemExit("may not: %s" % error)
pidfd = libc.syscall(PIDFD_OPEN, parent, 0)
listener = libc.syscall(PIDFD_GETFD, pidfd, int(number), 0)
if listener < 0:
    raise SystemExit("may not: %s" % os.strerror(ctypes.get_errno()))
# The keeper must not receive the request either.
children = open("/proc/%d/task/%d/children" % (parent, parent)).read().split()
others = [parent, *(int(pid) for pid in children if int(pid) != os.getpid())]
for one in others:
    os.kill(one, signal.SIGSTOP)
    while open("/proc/%d/stat" % one).read().rsplit(")")[1].split()[0] != "T":
        pass

def answer():
    asked = ctypes.create_string_buffer(80)
    libc.ioctl(listener, RECEIVE, asked)
    libc.ioctl(listener, SEND, struct.pack("QqiI", *struct.unpack_from("Q", asked), 0, 0, CONTINUE))

threading.Thread(target=answer, daemon=True).start()
libc.ioctl(os.open("/dev/null", os.O_RDWR), ctypes.c_ulong(0xC020462A), None)
print("c020462a", errno.errorcode[ctypes.get_errno()])
for one in others:
    os.kill(one, signal.SIGCONT)
"""


class Limits(fence.Case):
    def on_a_descriptor(self, number, over_socket, fenced):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            passed = theirs.fileno() if over_socket else number
            if over_socket:
                socket.send_fds(ours, [b"x"], [number])
            words = [sys.executable, "-c", ON_A_DESCRIPTOR, passed,
                     "over-socket" if over_socket else "inherited",
                     RM_CONTROL, UVM_INITIALIZE, *UVM_OTHERS]
            if fenced:
                done = self.start("run", "--fence=require", "--", *words, pass_fds=[passed])
            else:
                done = self.unguarded(*words, pass_fds=[passed])
        theirs_own = "ENODEV" if fenced else "ENOTTY"
        self.assertEqual(self.answers(done), {
            "read": "bytes", "mapped": "bytes", RM_CONTROL: theirs_own,
            UVM_INITIALIZE: theirs_own, **dict.fromkeys(UVM_OTHERS, "ENOTTY")})

    def test_limit_traceable_launcher_can_be_bypassed(self):
        """verify answers for the kernel. Control: no process takes its descriptor."""
        words = [sys.executable, "-c", TAKES_THE_ANSWER]
        done = self.start("verify", "--fence=require", "--allow=*", "--", *words)
        if "may not" in done.stderr:
            self.skipTest(done.stderr)
        self.assertEqual(self.answers(done), {RM_CONTROL: "ENOTTY"})
        words = [fence.program("requests_static"), "/dev/null", RM_CONTROL]
        done = self.start("verify", "--fence=require", "--allow=*", "--", *words)
        self.assertEqual(self.answers(done), {RM_CONTROL: "ENODEV"})


make_case = fixtures.lent("case", Limits)


@pytest.mark.parametrize("requests", [MADE_UP, DISPLAY, OTHER_MAKERS],
                         ids=["made up", "display", "other makers"])
def test_limit_other_ioctls_pass(case, requests):
    """NVIDIA's module looks at the number and the size alone, and would accept MADE_UP. The control
    is RM_CONTROL beside them."""
    words = [fence.program("requests_static"), "/dev/null", RM_CONTROL, *requests]
    unguarded = case.answers(case.unguarded(*words))
    assert set(unguarded.values()) == {"ENOTTY"}
    fenced = case.answers(case.start("run", "--fence=require", "--", *words))
    assert fenced == dict(unguarded, **{RM_CONTROL: "ENODEV"})


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize("way", ["inherited", "over a socket"])
def test_limit_inherited_descriptors_stay_partly_usable(case, way, fenced):
    """The kernel refuses NVIDIA's ioctls on them, but not those that follow UVM_INITIALIZE. The
    process that opened the descriptor may have sent UVM_INITIALIZE. Reads and maps work."""
    case.make("device", "bytes")
    with open(case.path("device"), "rb") as device:
        case.on_a_descriptor(device.fileno(), way != "inherited", fenced)


@pytest.mark.parametrize(("way", "wanted"), [("itself", "ENODEV"), ("asks", "ENOTTY")])
def test_limit_process_outside_the_tree_is_not_fenced(case, way, wanted):
    program = [fence.program("requests_static"), "/dev/null", RM_CONTROL]
    with socket.socket(socket.AF_UNIX) as listening:
        path = case.path("socket-" + way)
        listening.bind(path)
        listening.listen()
        daemon = threading.Thread(target=starts_for_others, args=(listening,))
        words = [sys.executable, "-c", ASKS, path, *program] if way == "asks" else program
        if way == "asks":
            daemon.start()
        done = case.start("run", "--fence=require", "--", *words)
        assert case.answers(done) == {RM_CONTROL: wanted}
        if way == "asks":
            daemon.join()


@pytest.mark.parametrize(("words", "wanted"), [(["run", "--fence=require"], "yes"),
                                               (["run", "--fence=require", "--observe"], "yes"),
                                               (["verify"], "EBUSY"),
                                               (["verify", "--fence=off"], "yes")])
def test_limit_second_listener_in_a_tree_gets_ebusy(case, words, wanted):
    """The kernel has one listener (SECCOMP_RET_USER_NOTIF) for a tree. If the launcher is that
    listener, a container runtime inside cannot be one. If the kernel refuses by itself, the
    runtime can."""
    program = [*fence.OWN_FILTERS, "listener"]
    assert case.unguarded(*program).stdout.startswith("listener=yes ")
    assert case.start(*words, "--", *program).stdout.startswith("listener=%s " % wanted)
