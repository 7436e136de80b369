# SPDX-License-Identifier: Apache-2.0
"""Programs that do not use CUDA work under the fence as without it. Most of these programs sandbox
themselves, trace others or change their user."""

import glob
import os
import re
import shutil
import struct
import sys
import unittest

import pytest

from support import browser, fence, harness, launcher, machine, sshd
from support.fence import ASK, UNGUARDED, FENCED

NOBODY = 65534
AS_NOBODY = ["setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups"]
HELPER = fence.program("helper")
STATUS = "grep -E '^(NoNewPrivs|Seccomp_filters)' /proc/self/status"


class Case(fence.Case):
    HOW = ["run", "--fence"]

    def fenced(self, *words, **more):
        return self.start(*self.HOW, "--", *words, **more)

    def prints(self, done, text):
        self.assertEqual((done.returncode, done.stdout), (0, text), done)

    def same(self, *words, **more):
        """Fenced and unguarded it ends the same and prints the same."""
        unguarded, done = self.unguarded(*words, **more), self.fenced(*words, **more)
        self.assertEqual((done.returncode, done.stdout), (unguarded.returncode, unguarded.stdout),
                         done)
        self.assertEqual(done.returncode, 0, done)
        return done


class OwnFilters(Case):
    PROGRAM = fence.program("own_filters")

    def differ(self, *words, unguarded, fenced):
        self.prints(self.unguarded(self.PROGRAM, *words), unguarded + "\n")
        self.prints(self.fenced(self.PROGRAM, *words), fenced + "\n")

    def test_program_can_install_20_filters_of_its_own(self):
        self.differ("many", 20, unguarded="many=yes request=ENOTTY",
                    fenced="many=yes request=ENODEV")

    def test_filter_for_all_threads_can_be_installed(self):
        self.differ("all", unguarded="all=yes other=ENOTTY request=ENOTTY",
                    fenced="all=yes other=ENODEV request=ENODEV")

    def test_error_of_the_programs_own_filter_comes_first(self):
        self.differ("refuse", unguarded="refuse=yes request=EACCES",
                    fenced="refuse=yes request=EACCES")

    def test_fence_answers_before_the_programs_listener(self):
        """The kernel's answer comes before a listener's."""
        self.differ("listener", unguarded="listener=yes request=ENOSYS",
                    fenced="listener=yes request=ENODEV")

    @pytest.mark.needs("no_filter")
    def test_limit_strict_mode_is_refused(self):
        """tests/lab/limits.md: the kernel refuses it under any filter."""
        self.differ("strict", unguarded="strict=yes request=ENOTTY",
                    fenced="strict=EINVAL request=ENODEV")


class Inheritance(Case):
    def test_fence_holds_in_50_threads(self):
        words = [fence.program("threads"), 50]
        self.prints(self.unguarded(*words), "ENOTTY 52\n")
        self.prints(self.fenced(*words), "ENODEV 52\n")

    def test_100_nested_fences_make_one_filter(self):
        # Copies, which every user can execute.
        installed, ask = self.installed(), [shutil.copy(ASK[0], self.path("ask")), *ASK[1:]]
        nested = [installed, *self.HOW, "--"]
        nested += [installed, "run", "--fence", "--"] * 99
        unguarded = self.unguarded("sh", "-c", STATUS + "; exec \"$@\"", "-", *ask)
        self.assertTrue(unguarded.stdout.endswith(UNGUARDED), unguarded)
        filters = int(unguarded.stdout.split("Seccomp_filters:")[1].split()[0])
        users = [[]] if machine.missing("other_users") else [[], AS_NOBODY]
        for user in users:
            done = self.unguarded(*user, *nested, "sh", "-c", STATUS + "; exec \"$@\"", "-", *ask)
            privileged = "0"
            if user or any(map(machine.missing, ("roots_filters", "new_privileges"))):
                privileged = "1"
            self.prints(done, "NoNewPrivs:\t%s\nSeccomp_filters:\t%d\n%s" %
                        (privileged, filters + 1, FENCED))


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

    def test_program_under_setpriv_is_fenced(self):
        self.sandboxed("setpriv", "--no-new-privs", "--inh-caps=-all")

    @pytest.mark.full
    @unittest.skipUnless(browser.PROGRAM, "no Chromium (Debian: chromium-headless-shell)")
    def test_sandbox_of_chromium_works_under_the_fence(self):
        """Its sandbox is on, so not as root: its renderers have filters of their own, and a page is
        shown."""
        installed = self.installed()
        page = self.make("page.html", "<p>page</p>", 0o644)
        options = [one for one in browser.OPTIONS if one != "--no-sandbox"]
        as_user = AS_NOBODY if os.geteuid() == 0 else []
        seen = {}
        for how in ("off", "fenced"):
            profile = self.path("profile-" + how)
            os.mkdir(profile)
            os.chmod(profile, 0o777)
            before = [*as_user, installed, *(["run"] if how == "off" else self.HOW), "--"]
            try:
                chromium = browser.Browser(profile, before, options)
            except EOFError:
                if how == "off":
                    self.skipTest("Chromium's sandbox does not work here")
                raise
            try:
                chromium.open(page)
                self.assertEqual(chromium.value("document.body.innerText"), "page")
                self.assertEqual(chromium.complaints(), ([], []))
                seen[how] = filters_of_renderers(chromium.process.pid)
            finally:
                chromium.close()
        self.assertGreater(min(seen["off"]), 0)
        self.assertEqual(min(seen["fenced"]), min(seen["off"]) + 1)

    def test_sshd_sandboxes_and_its_commands_are_fenced(self):
        """sshd sandboxes the process that speaks before the login, and clears the environment of
        what follows."""
        server = sshd.Server(self)
        log = self.path("log")
        strace = ["strace", "-f", "-qq", "-o", log, "-e", "trace=prctl,seccomp"]
        for before, expected in (([], UNGUARDED), ([launcher.LAUNCHER, *self.HOW, "--"], FENCED)):
            self.prints(server.connect(" ".join(ASK), before=[*before, *strace]), expected)
            with open(log, encoding="utf-8") as lines:
                self.assertRegex(lines.read(), r"SECCOMP_MODE_FILTER.* = 0\n")


def filters_of_renderers(browser):
    """How many filters each renderer below this process has."""
    parents, filters = {}, {}
    for path in glob.glob("/proc/[0-9]*"):
        try:
            with open(path + "/status", encoding="utf-8", errors="replace") as lines:
                status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
            with open(path + "/cmdline", "rb") as words:
                is_renderer = b"--type=renderer" in words.read()
        except OSError:
            continue
        pid = int(status["Pid"])
        parents[pid] = int(status["PPid"])
        if is_renderer:
            filters[pid] = int(status["Seccomp_filters"])

    def is_below(pid):
        while pid and pid != browser:
            pid = parents.get(pid, 0)
        return pid == browser

    return [count for pid, count in filters.items() if is_below(pid)]


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


class Identities(Case):
    """su and sudo work under root's fence, which does not set no_new_privs. An ordinary user's
    fence sets it, and they report an error."""

    IN_NAMESPACE = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                    'mount --bind "$1" "$2"; shift 2; exec "$@"', "sh"]

    def setUp(self):
        super().setUp()
        self.need("unshare", "setpriv")
        machine.need("roots_filters", "setuid_programs")
        self.run_fenced = [self.installed(), "run", "--fence", "--"]
        self.helper = shutil.copy(HELPER, self.path("helper"))

    def becomes_root(self, mine, system, command, complaint):
        machine.need("mounts")

        def in_namespace(*words):
            return self.unguarded(*self.IN_NAMESPACE, mine, system, *words)

        root = "uid=0 euid=0 no_new_privs=0 request=%s\n"
        self.prints(in_namespace(*AS_NOBODY, *command), root % "ENOTTY")
        self.prints(in_namespace(*self.run_fenced, *AS_NOBODY, *command), root % "ENODEV")
        done = in_namespace(*AS_NOBODY, *self.run_fenced, *command)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done)
        self.assertIn(complaint, done.stderr)

    def test_su_works_only_under_roots_fence(self):
        yes = self.make("pam", "".join("%s sufficient pam_permit.so\n" % kind
                                       for kind in ("auth", "account", "session")), 0o644)
        self.becomes_root(yes, "/etc/pam.d/su", ["su", "root", "-c", self.helper],
                          "Operation not permitted")

    def test_sudo_works_only_under_roots_fence(self):
        self.need("sudo")
        yes = self.make("sudoers", "nobody ALL=(ALL) NOPASSWD: ALL\n", 0o440)
        self.becomes_root(yes, "/etc/sudoers", ["sudo", "-n", self.helper], "no new privileges")

    def test_root_can_become_another_user(self):
        words = ["su", "-s", "/bin/sh", "nobody", "-c", self.helper]
        printed = "uid=65534 euid=65534 no_new_privs=0 request=%s\n"
        self.prints(self.unguarded(*words), printed % "ENOTTY")
        self.prints(self.unguarded(*self.run_fenced, *words), printed % "ENODEV")


class VerifiedInheritance(Inheritance):
    """The launcher stays and answers for the kernel."""
    HOW = ["verify", "--allow=*", "--allow-incomplete"]


@pytest.fixture(name="case", params=[Inheritance, VerifiedInheritance])
def make_case(request):
    yield from harness.lent(request.param())


def test_children_of_python_are_fenced(case):
    script = case.make("many.py", """import errno, fcntl, multiprocessing
def ask(number):
    try:
        fcntl.ioctl(open("/dev/null"), 0xC04846D2)
    except OSError as error:
        return errno.errorcode[error.errno]
if __name__ == "__main__":
    for method in "fork", "spawn", "forkserver":
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, sorted(set(pool.map(ask, range(8)))))
""")
    for start, error in ((case.unguarded, "ENOTTY"), (case.fenced, "ENODEV")):
        case.prints(start(sys.executable, script),
                    "fork ['%s']\nspawn ['%s']\nforkserver ['%s']\n" % ((error,) * 3))


class VerifiedSandboxes(Sandboxes):
    HOW = ["verify", "--allow=*", "--allow-incomplete"]


@pytest.mark.all
class VerifiedDebuggers(Debuggers):
    HOW = ["verify", "--allow=*", "--allow-incomplete"]
    # strace's filter begins with execve, of which the kernel tells the launcher alone.
    FILTERED = []
