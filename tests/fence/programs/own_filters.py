# SPDX-License-Identifier: Apache-2.0
"""A program that uses seccomp for itself. Prints the result of its call, and then the answer to one of
NVIDIA's requests.

  all        a filter for all of its threads (SECCOMP_FILTER_FLAG_TSYNC)
  refuse     one that answers EACCES to every ioctl
  listener   one with SECCOMP_RET_USER_NOTIF
  strict     SECCOMP_MODE_STRICT
"""

import ctypes
import errno
import fcntl
import os
import struct
import sys
import threading

SET_SECCOMP, SET_NO_NEW_PRIVS = 22, 38  # of prctl
SECCOMP, IOCTL = (317, 16) if os.uname().machine == "x86_64" else (277, 29)
ALLOW, REFUSE, NOTIFY = 0x7FFF0000, 0x50000 | errno.EACCES, 0x7FC00000
libc = ctypes.CDLL(None, use_errno=True)


def ask():
    try:
        return fcntl.ioctl(os.open("/dev/null", os.O_RDWR), 0xC04846D2)
    except OSError as error:
        return errno.errorcode[error.errno]


def put_up(answer, flags):
    """A filter that gives `answer` to every ioctl."""
    code = b"".join(struct.pack("HBBI", *one) for one in (
        (0x20, 0, 0, 0), (0x15, 0, 1, IOCTL), (6, 0, 0, answer), (6, 0, 0, ALLOW)))
    room = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(room))
    return libc.syscall(SECCOMP, 1, flags, program)


def strict():
    """In a child, which may do no more than write. Returns the error."""
    read, write = os.pipe()
    if os.fork() == 0:
        result = libc.prctl(SET_SECCOMP, 1, 0, 0, 0)
        os.write(write, bytes([result and ctypes.get_errno()]))
        os._exit(0)
    return os.read(read, 1)[0]


what = sys.argv[1]
libc.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0)
go, answers = threading.Event(), []
other = threading.Thread(target=lambda: (go.wait(), answers.append(ask())))
other.start()
if what == "strict":
    error = strict()
else:
    result = put_up(*{"all": (ALLOW, 1), "refuse": (REFUSE, 0), "listener": (NOTIFY, 8)}[what])
    error = ctypes.get_errno() if result < 0 else 0
    if what == "listener" and result >= 0:
        os.close(result)  # No process reads from it, so the kernel answers ENOSYS.
go.set()
other.join()
print("%s=%s " % (what, errno.errorcode[error] if error else "yes"), end="")
print("other=%s " % answers[0] if what == "all" else "", "request=%s" % ask(), sep="")
