# SPDX-License-Identifier: Apache-2.0
"""What tests need of the machine that they run on. Each need is found by trying it, once a process,
because a container, a user or a kernel can lack any of them. A skip names the need and why it is
missing.

A test states its needs by `@pytest.mark.needs("mounts")`, a module by `pytestmark`, and a fixture or
a case by `machine.need("mounts")`.
"""

import ctypes
import functools
import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import unittest

from support import settings

LANDLOCK_CREATE_RULESET = 444  # the same number for every architecture
NOBODY = 65534
AS_NOBODY = ("setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups")
AS_ROOT = ("unshare", "--map-root-user")
PRIVATE_MOUNTS = ("unshare", "--mount", "--propagation", "private")
# runsc makes /run/netns a shared mount and mounts below it. If it did so on this machine, each of its
# ends would stop a bubblewrap that is just starting.
GVISOR = (*PRIVATE_MOUNTS, "runsc", "--platform=ptrace", "--network=host", "--ignore-cgroups", "do")


def tried(*words):
    """Runs a command that needs the thing. Returns what it said if it failed, otherwise ''."""
    if not shutil.which(words[0]):
        return "not installed: " + words[0]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False, timeout=60)
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or ["exit code %d" % done.returncode])[-1]


def root():
    return "" if os.geteuid() == 0 else "not root"


def ordinary_user():
    return tried(*AS_NOBODY, "true") if os.geteuid() == 0 else ""


def status_has(row, why):
    return "" if row in settings.read("/proc/self/status") else why


def device_nodes():
    with tempfile.TemporaryDirectory(prefix="cg-") as directory:
        node = os.path.join(directory, "null")
        try:
            os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
            os.close(os.open(node, os.O_RDWR))
        except OSError as error:
            return "mknod: " + os.strerror(error.errno)
    return ""


def setuid_programs():
    """Another user starts a setuid file and becomes root by it."""
    if why := root() or tried(*AS_NOBODY, "true"):
        return why
    with tempfile.TemporaryDirectory(prefix="cg-") as directory:
        os.chmod(directory, 0o755)
        program = shutil.copy(shutil.which("id"), directory)
        os.chmod(program, 0o4755)
        done = subprocess.run([*AS_NOBODY, program, "-u"], capture_output=True, text=True,
                              check=False)
    return "" if done.stdout == "0\n" else "a setuid program gains nothing (nosuid, no_new_privs)"


def give_capability(path, rights="ep"):
    """As setcap cap_net_raw+RIGHTS does: a struct vfs_cap_data of <linux/capability.h>."""
    net_raw, none, effective = 1 << 13, 0, 1
    values = (0x02000000 | effective, net_raw, none) if rights == "ep" else (
        0x02000000, none, net_raw)
    os.setxattr(path, "security.capability", struct.pack("<5I", *values, 0, 0))


def file_capabilities():
    """Those of a file in the temporary directory, which a mount with nosuid takes away."""
    with tempfile.TemporaryDirectory(prefix="cg-") as directory:
        os.chmod(directory, 0o755)
        program = shutil.copy(shutil.which("grep"), directory)
        try:
            give_capability(program)
        except OSError as error:
            return "setxattr: " + os.strerror(error.errno)
        # A container may lack the capability (Podman's do).
        done = subprocess.run([*AS_NOBODY, program, "^CapPrm:.*2000$", "/proc/self/status"],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return done.stderr or "cap_net_raw of a file in %s has no effect" % tempfile.gettempdir()
    return ""


def other_users_processes():
    """/proc shows another user's process, which takes the right to trace it."""
    if why := tried(*AS_NOBODY, "true"):
        return why
    words = [*AS_NOBODY, "cat"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(b"started\n")
        process.stdin.flush()
        process.stdout.readline()
        try:
            os.readlink("/proc/%d/exe" % process.pid)
            return ""
        except OSError as error:
            return "/proc/PID/exe: " + os.strerror(error.errno)
        finally:
            process.stdin.close()


def roots_filters():
    """A seccomp filter without no_new_privs."""
    allow = "ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))"
    return tried(sys.executable, "-c",
                 "import ctypes, os, struct\nrow = %s\nprogram = struct.pack('HxxxxxxP', 1, "
                 "ctypes.addressof(row))\nlibc = ctypes.CDLL(None, use_errno=True)\n"
                 "libc.prctl(22, 2, program) and exit(os.strerror(ctypes.get_errno()))" % allow)


def landlock():
    libc = ctypes.CDLL(None, use_errno=True)
    works = libc.syscall(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), 1) >= 0
    return "" if works else os.strerror(ctypes.get_errno())


# need -> (what it is, in the skip's reason; how it is tried: a command or a function)
NEEDS = {
    "sandbox": ("a mount namespace made by bubblewrap", (
        "bwrap", "--dev-bind", "/", "/", "--dev", "/dev", "--tmpfs", "/dev/shm", "true")),
    "mounts": ("a mount namespace", (*PRIVATE_MOUNTS, "mount", "-t", "tmpfs", "none", "/mnt")),
    # There, root may not enter another user's closed directory, such as that of this checkout.
    "user_namespaces": ("a user namespace", (*AS_ROOT, "ls", __file__)),
    "process_namespaces": ("a PID namespace", (*AS_ROOT, "--pid", "--fork", "ls", __file__)),
    "root": ("root", root),
    "other_users": ("root that may become another user", (*AS_NOBODY, "true")),
    "ordinary_user": ("an ordinary user, or root that may become one", ordinary_user),
    "new_privileges": ("programs that may gain privileges", lambda: status_has(
        "NoNewPrivs:\t0\n", "no_new_privs is set")),
    "change_of_root": ("root that may change the root directory", ("chroot", "/", "true")),
    "device_nodes": ("device nodes that root makes", device_nodes),
    "setuid_programs": ("setuid programs", setuid_programs),
    "file_capabilities": ("capabilities of files", file_capabilities),
    "other_users_processes": ("the right to trace other users' processes", other_users_processes),
    "roots_filters": ("root's right to set a seccomp filter", roots_filters),
    "no_filter": ("no seccomp filter around the tests", lambda: status_has(
        "Seccomp:\t0\n", "a seccomp filter is in force already")),
    "fixed_addresses": ("a personality without random addresses", ("setarch", "-R", "true")),
    "gvisor": ("gVisor, by runsc", (*GVISOR, "true")),
    "tracing": ("ptrace, by strace", ("strace", "-f", "-o", "/dev/null", "true")),
    "landlock": ("Landlock", landlock),
}


@functools.lru_cache(None)
def missing(need):
    """Why this machine lacks the need, as the reason of a skip; '' if it is there."""
    what, how = NEEDS[need]
    why = how() if callable(how) else tried(*how)
    return "needs %s: %s" % (what, why) if why else ""


def is_need(reason):
    """True if the reason is that the machine lacks a need."""
    return any("needs %s: " % what in reason for what, _ in NEEDS.values())


def may_skip(reason):
    """False under --must-run, unless --without names the need that is this reason."""
    return not settings.MUST_RUN or any("needs %s: " % NEEDS[name][0] in reason
                                        for name in settings.WITHOUT if name in NEEDS)


def need(*needs):
    """Skips the test if this machine lacks one of the needs. Under --must-run it fails instead."""
    for name in needs:
        if why := missing(name):
            if not may_skip(why):
                raise AssertionError("may not be skipped (--must-run): " + why)
            raise unittest.SkipTest(why)
