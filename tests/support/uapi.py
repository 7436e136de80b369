# SPDX-License-Identifier: Apache-2.0
"""Reads the ioctl requests of the kernel's user-space headers by name."""

import concurrent.futures
import glob
import os
import re
import subprocess

DIRECTORIES = ("linux", "asm", "asm-generic", "sound", "drm", "libdrm", "rdma", "mtd", "misc", "scsi",
           "video", "xen")
# Matches #define NAME _IOWR('x', 1, int) in any spelling, or a number of four digits. Older
# requests are such numbers; the other matches do no harm.
DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(?=.*(?:\w*_IO[WRC]*(?:_BAD)?\s*\(|"
                     r"\bDRM_IO[WR]*\(|0x[0-9a-fA-F]{4}\b))", re.MULTILINE)
BEFORE = """#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <sys/types.h>
#include <sys/socket.h>
#include <sys/ioctl.h>
#include <linux/types.h>
"""
VALUE = re.compile(r"^v_(\w+):\n\t\.(?:quad|xword|dword)\t(-?\d+)$", re.MULTILINE)


def headers():
    for directory in DIRECTORIES:
        for top in ("/usr/include", "/usr/include/%s-linux-gnu" % os.uname().machine):
            yield from sorted(glob.glob(os.path.join(top, directory, "**", "*.h"), recursive=True))


def values(header):
    """Returns {name: number} of a header. Lines that do not compile are left out one by one."""
    with open(header, encoding="utf-8", errors="replace") as stream:
        names = list(dict.fromkeys(DEFINED.findall(stream.read().replace("\\\n", " "))))
    while names:
        head = BEFORE + '#include "%s"\n' % header
        lines = ["unsigned long long v_%s = %s;" % (name, name) for name in names]
        done = subprocess.run(["gcc", "-S", "-w", "-xc", "-", "-o", "-"], input=head +
                              "\n".join(lines), capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return {name: int(number) & 0xffffffff for name, number in VALUE.findall(done.stdout)}
        before = head.count("\n")
        bad = {int(line) - before - 1 for line in re.findall(r"^<stdin>:(\d+):", done.stderr, re.M)}
        left = [name for i, name in enumerate(names) if i not in bad]
        # Otherwise, the header itself does not compile.
        names = left if len(left) < len(names) else []
    return {}


def requests():
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = {}
        for one in pool.map(values, headers()):
            found.update(one)
    return found


if __name__ == "__main__":
    for name, number in sorted(requests().items(), key=lambda one: one[1]):
        print("%08x %s" % (number, name))
