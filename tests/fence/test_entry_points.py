# SPDX-License-Identifier: Apache-2.0
"""Every way to the kernel that bypasses the guard, with every ioctl that NVIDIA's driver knows.
/dev/null stands for NVIDIA's device. It knows no ioctl, so it answers ENOTTY, and under the fence
ENODEV."""

import os
import shutil

import pytest

from support import fence, fixtures, harness, machine

X86 = os.uname().machine == "x86_64"
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def has_admin():
    """CAP_SYS_ADMIN, which is capability 21."""
    with open("/proc/self/status", encoding="ascii") as stream:
        effective = next(line for line in stream if line.startswith("CapEff:"))
    return int(effective.split()[1], 16) >> 21 & 1 == 1


class EntryPointCase(fence.Case):
    def setUp(self):
        super().setUp()
        self.requests = self.answers(self.unguarded(fence.program("model"), "list"))
        self.assertGreater(len(self.requests), 40)

    def refused(self, *words, unguarded="ENOTTY", requests=None):
        """Each request is answered `unguarded`, and ENODEV by the fence; a terminal's passes it."""
        words = [*words, "/dev/null", *(requests or self.requests), "5401"]
        alone = self.answers(self.unguarded(*words))
        fenced = self.answers(self.start("run", "--fence", "--", *words))
        own = alone.pop("5401"), fenced.pop("5401")
        self.assertEqual(set(alone.values()), {unguarded}, alone)
        self.assertEqual(set(fenced.values()), {"ENODEV"}, fenced)
        self.assertEqual(own, (unguarded, unguarded))


class EntryPoints(EntryPointCase):
    def test_raw_system_call_is_refused(self):
        self.refused(fence.program("requests"), "--by=syscall")

    def test_driver_that_libcs_own_dlopen_loads_is_refused(self):
        """The guard does not see libc's own dlopen of a path."""
        words = [fence.program("libc_dlopen"), fence.program("driver/libcuda.so.1")]
        self.assertEqual(self.answers(self.unguarded(*words)), {"cuInit": "ENOTTY"})
        self.assertEqual(self.answers(self.start("run", "--", *words)), {"cuInit": "ENOTTY"})
        self.assertEqual(self.answers(self.start("run", "--fence", "--", *words)),
                         {"cuInit": "ENODEV"})

    def test_io_uring_makes_no_ioctl(self):
        """io_uring has no operation that is an ioctl. The nearest operation needs uring_cmd, which
        /dev/zero and NVIDIA's modules do not have, so there is nothing to refuse."""
        words = [fence.program("uring"), "/dev/zero", *self.requests]
        alone = self.answers(self.unguarded(*words))
        self.assertEqual(self.answers(self.start("run", "--fence", "--", *words)), alone)
        # EINVAL: older than Linux 5.19. Or there is no io_uring here.
        if "setup" not in alone:
            self.assertIn(set(alone.values()), ({"EOPNOTSUPP"}, {"EINVAL"}))
            self.assertEqual(len(alone), len(self.requests))


make_entry_points = fixtures.lent("entry_points", EntryPoints)


@pytest.mark.parametrize(("before", "name", "after"), [
    ([], "requests", []), ([], "requests_static", []),
    (["env", "-i"], "requests", []), (["env", "-u", "LD_PRELOAD"], "requests", []),
    (["env", "LD_PRELOAD="], "requests", []),
    (["sh", "-c", 'env -i "$@"; exit', "sh"], "requests_static", []),
    ([], "requests_musl", []), ([], "requests_musl_static", []), ([], "requests_go", [])])
def test_program_is_refused(entry_points, before, name, after):
    if not os.path.exists(fence.program(name)):
        harness.skip(entry_points, "not built: no musl-gcc (musl-tools) or go (golang-go)")
    entry_points.refused(*before, fence.program(name), *after)


@pytest.mark.parametrize("upper", ["1", "ffffffff"])
def test_upper_half_of_the_request_does_not_matter(entry_points, upper):
    """The kernel reads 32 bits of it."""
    entry_points.refused(fence.program("requests"), "--by=syscall",
                         requests=[upper + request for request in entry_points.requests])


class OlderArchitectures(EntryPointCase):
    """An x86-64 kernel also runs programs of these architectures."""

    def setUp(self):
        super().setUp()
        if not X86:
            self.skipTest("x86-64 only")

    def emulated(self):
        """Has this kernel i386's system calls?"""
        return self.unguarded(fence.program("freestanding"), "/dev/null").returncode == 0

    def test_i386_program_is_refused(self):
        if not self.emulated():
            self.skipTest("this kernel runs no i386 programs")
        self.refused(fence.program("freestanding"))

    def test_i386_system_call_of_an_x86_64_program_is_refused(self):
        if not self.emulated():
            self.skipTest("this kernel has no i386 system calls")
        self.refused(fence.program("requests"), "--by=int80")


make_older_architectures = fixtures.lent("older_architectures", OlderArchitectures)


@pytest.mark.needs("no_filter")
@pytest.mark.parametrize("way", ["x32", "x32_native", "x32_unguarded"])
def test_x32_system_calls_are_refused(older_architectures, way):
    """Most kernels have no x32 system calls. The filter runs before such a kernel answers
    ENOSYS."""
    words = [fence.program("requests"), "--by=" + way, "/dev/null"]
    unguarded = older_architectures.answers(older_architectures.unguarded(*words,
                                                                          "c020462a"))["c020462a"]
    assert unguarded in ("ENOTTY", "ENOSYS")
    older_architectures.refused(*words[:-1], unguarded=unguarded)


class SetUser(EntryPointCase):
    """Another user starts a setuid program, into which ld.so preloads nothing."""

    def setUp(self):
        super().setUp()
        machine.need("setuid_programs")
        if os.statvfs(self.directory).f_flag & os.ST_NOSUID:
            harness.skip(self, "the directory for temporary files is mounted nosuid")
        self.need("setpriv")
        self.command = self.installed()
        self.program = shutil.copy(fence.program("requests"), self.path("requests"))
        os.chmod(self.program, 0o4755)
        self.words = [self.program, "--euid", "/dev/null", *self.requests]

    def check(self, *words, euid, answer):
        got = self.answers(self.unguarded(*words))
        self.assertEqual(got.pop("euid"), euid)
        self.assertEqual(set(got.values()), {answer}, got)

    def test_setuid_program_under_roots_fence_becomes_root_and_is_refused(self):
        """Root's launcher needs no no_new_privs, so setuid still works."""
        if not has_admin():
            self.skipTest("root without CAP_SYS_ADMIN")
        self.check(*NOBODY, *self.words, euid="0", answer="ENOTTY")
        self.check(self.command, "run", "--", *NOBODY, *self.words, euid="0", answer="ENOTTY")
        self.check(self.command, "run", "--fence", "--", *NOBODY, *self.words, euid="0",
                   answer="ENODEV")

    def test_setuid_program_under_a_users_fence_stays_the_user(self):
        """The launcher sets no_new_privs, so the program keeps the user's rights."""
        self.check(*NOBODY, self.command, "run", "--fence", "--", *self.words, euid="65534",
                   answer="ENODEV")
        self.check(*NOBODY, self.command, "run", "--fence", "--", "env", "-i", *self.words,
                   euid="65534", answer="ENODEV")
