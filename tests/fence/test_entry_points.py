# SPDX-License-Identifier: Apache-2.0
"""Every way to the kernel that bypasses the guard, with every ioctl that NVIDIA's driver knows.
/dev/null stands for NVIDIA's device. It knows no ioctl, so it answers ENOTTY, and under the fence
ENODEV."""

import errno
import os
import shutil

import pytest

from support import fence, fixtures, harness, launcher, machine

REQUESTS, STATIC, MUSL, I386 = map(
    fence.program, ("requests", "requests_static", "requests_musl", "freestanding"))
FENCED = [launcher.LAUNCHER, "run", "--fence", "--"]
x86_64 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="x86-64 only")


class Case(fence.Case):
    def setUp(self):
        super().setUp()
        self.requests = self.answers(self.unguarded(fence.program("model"), "list"))
        self.assertGreater(len(self.requests), 40)

    def refused(self, *words, unguarded="ENOTTY", requests=None):
        """Each request is answered `unguarded`, and ENODEV by the fence; a terminal's passes it."""
        words = [*words, "/dev/null", *(requests or self.requests), "5401"]
        alone = self.answers(self.unguarded(*words))
        fenced = self.answers(self.unguarded(*FENCED, *words))
        own = alone.pop("5401"), fenced.pop("5401")
        self.assertEqual(set(alone.values()), {unguarded}, alone)
        self.assertEqual(set(fenced.values()), {"ENODEV"}, fenced)
        self.assertEqual(own, (unguarded, unguarded))

    def sweep(self, *words, launch=()):
        """A byte for each of the requests that the model program knows to send."""
        path = self.path("answers")
        done = self.unguarded(*launch, fence.program("model"), words[0], path, *words[1:])
        self.assertEqual(done.returncode, 0, done.stderr)
        return harness.bytes_of(path)


make_case = fixtures.lent("case", Case)


@pytest.mark.parametrize("words", [
    [REQUESTS], [STATIC], [MUSL], ["env", "-i", REQUESTS], ["env", "LD_PRELOAD=", REQUESTS],
    ["sh", "-c", 'env -i "$@"; exit', "sh", STATIC]])
def test_program_is_refused(case, words):
    """musl passes the ioctl's number with its sign."""
    if words == [MUSL]:
        case.need("musl-gcc")
    case.refused(*words)


def test_raw_system_call_is_refused(case):
    case.refused(REQUESTS, "--by=syscall")


@pytest.mark.parametrize("upper", ["1", "ffffffff"])
def test_upper_half_of_the_request_does_not_matter(case, upper):
    """The kernel reads 32 bits of it."""
    case.refused(REQUESTS, "--by=syscall", requests=[upper + request for request in case.requests])


@x86_64
@pytest.mark.parametrize("words", [[I386], [REQUESTS, "--by=int80"]])
def test_i386_system_call_is_refused(case, words):
    """Of a program of i386, and of x86-64."""
    if case.unguarded(I386, "/dev/null").returncode != 0:
        pytest.skip("this kernel has no i386 system calls")
    case.refused(*words)


@x86_64
@pytest.mark.needs("no_filter")
@pytest.mark.parametrize("way", ["x32", "x32_native", "x32_unguarded"])
def test_x32_system_calls_are_refused(case, way):
    """Most kernels have no x32 system calls. The filter runs before such a kernel answers
    ENOSYS."""
    words = [REQUESTS, "--by=" + way, "/dev/null"]
    unguarded = case.answers(case.unguarded(*words, "c020462a"))["c020462a"]
    assert unguarded in ("ENOTTY", "ENOSYS")
    case.refused(*words[:-1], unguarded=unguarded)


@pytest.mark.all
@pytest.mark.parametrize("file", ["-1", "/dev/null"])
def test_every_other_ioctl_of_the_whole_range_passes(case, file):
    """Every type and number, in all four directions, with some sizes, to the real kernel."""
    ours = case.sweep("expected")
    assert len(ours) == 6 * 4 * 65536
    assert ours.count(1) == 6 * 19 + 3 * 57
    unguarded = case.sweep("sweep", file)
    assert errno.ENODEV not in unguarded
    wanted = bytes(errno.ENODEV if own else other for own, other in zip(ours, unguarded))
    assert case.sweep("sweep", file, launch=FENCED) == wanted


class SetUser(Case):
    """Another user starts a setuid program, into which ld.so preloads nothing."""

    def setUp(self):
        super().setUp()
        machine.need("setuid_programs")
        self.need("setpriv")
        self.launch = [self.installed(), "run"]
        program = shutil.copy(REQUESTS, self.path("requests"))
        os.chmod(program, 0o4755)
        self.words = [program, "--euid", "/dev/null", *self.requests]

    def check(self, *words, euid, answer):
        got = self.answers(self.unguarded(*words))
        self.assertEqual(got.pop("euid"), euid)
        self.assertEqual(set(got.values()), {answer}, got)

    def test_setuid_program_under_roots_fence_becomes_root_and_is_refused(self):
        """Root's launcher needs no no_new_privs, so setuid still works."""
        machine.need("roots_filters")
        self.check(*machine.AS_NOBODY, *self.words, euid="0", answer="ENOTTY")
        self.check(*self.launch, "--", *machine.AS_NOBODY, *self.words, euid="0", answer="ENOTTY")
        self.check(*self.launch, "--fence", "--", *machine.AS_NOBODY, *self.words, euid="0",
                   answer="ENODEV")

    def test_setuid_program_under_a_users_fence_stays_the_user(self):
        """The launcher sets no_new_privs, so the program keeps the user's rights."""
        fenced = [*machine.AS_NOBODY, *self.launch, "--fence", "--"]
        self.check(*fenced, *self.words, euid="65534", answer="ENODEV")
        self.check(*fenced, "env", "-i", *self.words, euid="65534", answer="ENODEV")
