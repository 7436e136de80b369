# SPDX-License-Identifier: Apache-2.0
"""Programs that do not use CUDA work under the fence as without it. Most of these programs sandbox
themselves, trace others or change their user."""

import os
import re
import shutil
import struct
import unittest

import pytest

from support import browser, fence, fixtures, harness, launcher, machine, sshd
from support.fence import ASK, UNGUARDED, FENCED

STATUS = "grep -E '^(NoNewPrivs|Seccomp_filters)' /proc/self/status"

# Under verify, the launcher stays and answers for the kernel.
HOW = {"run": ["run", "--fence"], "verify": ["verify", "--allow=*", "--allow-incomplete"]}


class Case(fence.Case):
    HOW = HOW["run"]

    def fenced(self, *words, **more):
        return self.start(*self.HOW, "--", *words, **more)

    def prints(self, done, text):
        self.assertEqual((done.returncode, done.stdout), (0, text), done)


make_case = fixtures.lent("case", Case)


@pytest.mark.parametrize(("what", "unguarded", "fenced"), [
    # One filter for all threads.
    ("all", "all=yes other=ENOTTY request=ENOTTY", "all=yes other=ENODEV request=ENODEV"),
    ("refuse", "refuse=yes request=EACCES", "refuse=yes request=EACCES"),
    # The kernel's answer comes before a listener's.
    ("listener", "listener=yes request=ENOSYS", "listener=yes request=ENODEV")])
def test_programs_own_filter_works_beside_the_fence(case, what, unguarded, fenced):
    words = [*fence.OWN_FILTERS, what]
    case.prints(case.unguarded(*words), unguarded + "\n")
    case.prints(case.fenced(*words), fenced + "\n")


@pytest.mark.needs("no_filter")
def test_limit_strict_mode_is_refused(case):
    """tests/lab/limits.md: the kernel refuses it under any filter."""
    words = [*fence.OWN_FILTERS, "strict"]
    case.prints(case.unguarded(*words), "strict=yes request=ENOTTY\n")
    case.prints(case.fenced(*words), "strict=EINVAL request=ENODEV\n")


@pytest.mark.parametrize("how", HOW)
def test_100_nested_fences_make_one_filter(case, how):
    # Copies, which every user can execute.
    installed, ask = case.installed(), [shutil.copy(ASK[0], case.path("ask")), *ASK[1:]]
    words = ["sh", "-c", STATUS + "; exec \"$@\"", "-", *ask]
    nested = [installed, *HOW[how], "--", *[installed, "run", "--fence", "--"] * 99, *words]
    unguarded = case.unguarded(*words)
    assert unguarded.stdout.endswith(UNGUARDED), unguarded
    filters = int(unguarded.stdout.split("Seccomp_filters:")[1].split()[0])
    for user in [[]] if machine.missing("other_users") else [[], machine.AS_NOBODY]:
        privileged = not user and not any(map(machine.missing, ("roots_filters", "new_privileges")))
        case.prints(case.unguarded(*user, *nested), "NoNewPrivs:\t%d\nSeccomp_filters:\t%d\n%s" % (
            not privileged, filters + 1, FENCED))


class Sandboxes(Case):
    """The ioctl is made inside each sandbox."""

    def sandboxed(self, *words, **more):
        self.prints(self.unguarded(*words, *ASK, **more), UNGUARDED)
        self.prints(self.fenced(*words, *ASK, **more), FENCED)

    @pytest.mark.needs("sandbox", "user_namespaces")
    def test_program_in_bubblewrap_is_fenced(self):
        self.sandboxed("bwrap", "--dev-bind", "/", "/", "--unshare-all", "--cap-drop", "ALL", "--")

    @pytest.mark.needs("sandbox")
    def test_filter_of_bubblewrap_works_under_the_fence(self):
        """Of one more: TCGETS answers EPERM."""
        steps = [(0x20, 0, 0, 24),  # the request
                 (0x15, 0, 1, 0x5401), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
        path = self.make("filter", b"".join(struct.pack("=HBBI", *step) for step in steps), 0o644)
        words = ["sh", "-c", 'exec bwrap --dev-bind / / --seccomp 3 -- "$@" 3< ' + path, "-", *ASK]
        self.prints(self.unguarded(*words), UNGUARDED.replace("5401 ENOTTY", "5401 EPERM"))
        self.prints(self.fenced(*words), FENCED.replace("5401 ENOTTY", "5401 EPERM"))

    @pytest.mark.needs("user_namespaces")
    def test_program_under_unshare_is_fenced(self):
        self.sandboxed("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork")

    @pytest.mark.full
    @unittest.skipUnless(browser.PROGRAM, "no Chromium (Debian: chromium-headless-shell)")
    def test_sandbox_of_chromium_works_under_the_fence(self):
        """Its sandbox is on, so not as root, and a page is shown."""
        page = self.make("page.html", "<p>page</p>", 0o644)
        options = [one for one in browser.OPTIONS if one != "--no-sandbox"]
        launch = self.ordinary_user()
        for how in (["run"], self.HOW):
            profile = self.path("profile-" + how[-1])
            os.mkdir(profile)
            os.chmod(profile, 0o777)
            try:
                chromium = browser.Browser(profile, [*launch, *how, "--"], options)
            except EOFError:
                if how == ["run"]:
                    self.skipTest("Chromium's sandbox does not work here")
                raise
            try:
                chromium.open(page)
                self.assertEqual(chromium.value("document.body.innerText"), "page")
                self.assertEqual(chromium.complaints(), ([], []))
            finally:
                chromium.close()

    def test_sshd_sandboxes_and_its_commands_are_fenced(self):
        """sshd sandboxes the process that speaks before the login, and clears the environment of
        what follows."""
        server = sshd.Server(self)
        log = self.path("log")
        strace = ["strace", "-f", "-qq", "-o", log, "-e", "trace=prctl,seccomp"]
        for before, expected in (([], UNGUARDED), ([launcher.LAUNCHER, *self.HOW, "--"], FENCED)):
            self.prints(server.connect(" ".join(ASK), before=[*before, *strace]), expected)
            self.assertRegex(harness.read(log), r"SECCOMP_MODE_FILTER.* = 0\n")


@pytest.mark.all
class Debuggers(Case):
    # What strace --seccomp-bpf shows of ASK under the fence.
    FILTERED = [("5401", "ENOTTY")]

    def test_gdb_stops_at_an_ioctl(self):
        self.need("gdb")
        words = ["gdb", "-nx", "-batch"]
        for command in ("break ioctl", "run", "stepi", "finish", "delete", "continue"):
            words += ["-ex", command]
        for how, expected in (self.unguarded, UNGUARDED), (self.fenced, FENCED):
            done = how(*words, "--args", *ASK)
            self.assertEqual(done.returncode, 0, done)
            self.assertRegex(done.stdout, r"\nBreakpoint 1, .*ioctl")
            self.assertRegex(done.stdout, r"exited normally\]")
            self.assertIn(expected, done.stdout)

    def strace(self, how, *options):
        """The requests that it shows, with their answers."""
        done = how("strace", "-f", *options, "-e", "trace=ioctl", "-e", "raw=ioctl", *ASK)
        self.assertEqual(done.returncode, 0, done)
        return re.findall(r"0x(\w+), 0\) += -1 (\w+)", done.stderr)

    def test_strace_shows_the_refusal(self):
        self.assertEqual(self.strace(self.unguarded), [("c020462a", "ENOTTY"), ("5401", "ENOTTY")])
        self.assertEqual(self.strace(self.fenced), [("c020462a", "ENODEV"), ("5401", "ENOTTY")])

    def test_limit_strace_with_a_filter_shows_no_refused_ioctl(self):
        """Documented: the kernel's refusal comes before that filter's stop, so it is not shown."""
        option = "--seccomp-bpf"
        self.assertEqual(self.strace(self.unguarded, option), self.strace(self.unguarded))
        self.assertEqual(self.strace(self.fenced, option), self.FILTERED)


def test_sudo_works_only_under_roots_fence(case):
    """Root's fence does not set no_new_privs. An ordinary user's fence sets it, and sudo, as su,
    reports an error."""
    case.need("unshare", "setpriv", "sudo")
    for need in ("roots_filters", "setuid_programs", "mounts"):
        machine.need(need)
    sudoers = case.make("sudoers", "nobody ALL=(ALL) NOPASSWD: ALL\n", 0o440)
    in_namespace = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                    'mount --bind "$0" /etc/sudoers; exec "$@"', sudoers]
    run = [case.installed(), "run", "--fence", "--"]
    requests = shutil.copy(ASK[0], case.path("requests"))
    words = ["sudo", "-n", requests, "--euid", *ASK[1:]]
    case.prints(case.unguarded(*in_namespace, *machine.AS_NOBODY, *words), "euid 0\n" + UNGUARDED)
    case.prints(case.unguarded(*in_namespace, *run, *machine.AS_NOBODY, *words), "euid 0\n" + FENCED)
    done = case.unguarded(*in_namespace, *machine.AS_NOBODY, *run, *words)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert "no new privileges" in done.stderr


class VerifiedSandboxes(Sandboxes):
    HOW = HOW["verify"]


@pytest.mark.all
class VerifiedDebuggers(Debuggers):
    HOW = HOW["verify"]
    # strace's filter begins with execve, of which the kernel tells the launcher alone.
    FILTERED = []
