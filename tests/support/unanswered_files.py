# SPDX-License-Identifier: Apache-2.0
"""Runs a command beside a FUSE file system whose files never answer.

    python3 unanswered_files.py DIRECTORY OPERATION NAME COMMAND...

The file system is mounted on DIRECTORY, in a mount namespace of this process. It has one file,
NAME. OPERATION is "open" or "read": who calls it on the file sleeps in the kernel and survives
SIGKILL (state D), until this process ends. Needs root and /dev/fuse. The structures below are those
of <linux/fuse.h>.
"""

import ctypes
import os
import stat
import struct
import subprocess
import sys
import threading

LOOKUP, FORGET, GETATTR, OPEN, READ, INIT, INTERRUPT, BATCH_FORGET = 1, 2, 3, 14, 15, 26, 36, 42
REQUEST = struct.Struct("=IIQQIIII")  # len, opcode, unique, nodeid, uid, gid, pid, padding
ANSWER = struct.Struct("=IiQ")  # len, error, unique
ROOT, FILE = 1, 2
ENOENT, ENOSYS = 2, 38


def attributes(node):
    mode = stat.S_IFDIR | 0o755 if node == ROOT else stat.S_IFREG | 0o755
    size, blocks, times, links, block = 1 << 20, 1 << 11, (0,) * 6, 1, 4096
    return struct.pack("=QQQ QQQIII IIIIIII", node, size, blocks, *times, mode, links, 0, 0, 0,
                       block, 0)


def answer(opcode, node, text, operation, name):
    """(error, bytes), or None if the caller gets no answer."""
    if opcode == INIT:
        return 0, struct.pack("=IIII HHII HH8I", 7, 31, 0, 0, 0, 0, 1 << 16, 1, *(0,) * 10)
    if opcode == LOOKUP:
        if node != ROOT or text.rstrip(b"\0") != name.encode():
            return ENOENT, b""
        return 0, struct.pack("=QQQQII", FILE, 0, 60, 60, 0, 0) + attributes(FILE)
    if opcode == GETATTR:
        return 0, struct.pack("=QII", 60, 0, 0) + attributes(node)
    if opcode == OPEN and operation == "read":
        return 0, struct.pack("=QII", 1, 0, 0)
    if opcode in (FORGET, BATCH_FORGET, INTERRUPT, OPEN, READ):
        return None
    return ENOSYS, b""


def serve(connection, operation, name):
    while True:
        request = os.read(connection, 1 << 17)
        _, opcode, unique, node, *_ = REQUEST.unpack_from(request)
        found = answer(opcode, node, request[REQUEST.size:], operation, name)
        if found is not None:
            error, body = found
            os.write(connection, ANSWER.pack(ANSWER.size + len(body), -error, unique) + body)


def main(directory, operation, name, *command):
    connection = os.open("/dev/fuse", os.O_RDWR)
    options = "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % connection
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"lab", directory.encode(), b"fuse", 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "mount " + directory)
    threading.Thread(target=serve, args=(connection, operation, name), daemon=True).start()
    return subprocess.call(command)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
