# SPDX-License-Identifier: Apache-2.0
"""A setuid program, run by an ordinary user, with the guard in /etc/ld.so.preload: in a root
directory of its own, so the machine's own file is never written to. (bubblewrap cannot be used: it
forbids setuid.)"""

import os
import shlex
import shutil

import pytest

from support import fixtures, guest, harness, machine, messages, system_root

USER, NOBODY = 65533, 65534
SETUID, PLAIN, DRIVER, REPORT = "/steps-setuid", "/steps-plain", "/driver", "/open/report"
IGNORED = ("ERROR: ld.so: object 'libcudaguard.so' from LD_PRELOAD cannot be preloaded "
           "(cannot open shared object file): ignored.\n")


class Case(system_root.Case):
    guard = system_root.GUARD

    def setUp(self):
        super().setUp()
        machine.need("setuid_programs")
        self.add(shutil.which("env"), "/usr/bin/env")
        for name, mode in ((SETUID, 0o4755), (PLAIN, 0o755)):
            self.add_program(guest.STEPS, name, mode)
        (libc,) = [path for path in system_root.libraries_of(guest.STEPS) if "/libc.so" in path]
        libm = os.path.join(os.path.dirname(libc), "libm.so.6")
        self.add(libm, libm)
        shutil.copytree(harness.FAKE_DRIVER, self.inside(DRIVER), symlinks=True)
        self.cache(DRIVER)
        os.mkdir(self.inside("proc"))
        # Where an ordinary user may write, so that an absent file means something.
        os.mkdir(self.inside("open"))
        os.chmod(self.inside("open"), 0o777)

    def cache(self, *directories):
        """ld.so finds their libraries by name."""
        self.write("/etc/ld.so.conf", "\n".join(directories) + "\n")
        done = self.unguarded("/sbin/ldconfig", "-X", "-r", self.root)
        self.assertEqual(done.returncode, 0, done)

    def add_program(self, path, name, mode):
        self.add(path, name)
        os.chmod(self.inside(name), mode)


make_case = fixtures.lent("case", Case)


def run_as_user(case, program, *steps, preload=True, **env):
    """There is a /proc only if this machine lets the test mount one."""
    if preload:
        case.write(system_root.FILE, case.guard + "\n")
    elif os.path.exists(case.inside(system_root.FILE)):
        os.unlink(case.inside(system_root.FILE))
    env = {"PATH": "/usr/bin:/bin", "CG_FAKE_LOG": "/open/fake.log", **env}
    command = [shutil.which("chroot"), "--userspec=%d:%d" % (USER, USER), "--groups=", case.root,
               "/usr/bin/env", "-i", *("%s=%s" % item for item in env.items()), program, *steps]
    if not machine.missing("mounts"):
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                   'mount -t proc proc "$0/proc" && exec "$@"', case.root, *command]
    done = case.unguarded(*command)
    assert done.returncode == 0, str(done)
    return done


def caller(name):
    """Without /proc, no code has a file's name."""
    return "code outside any file" if machine.missing("mounts") else name


def fake_calls(case):
    log = case.inside("/open/fake.log")
    if not os.path.exists(log):
        return []
    calls = harness.read(log).split()
    os.unlink(log)
    return calls


def test_control_setuid_program_reaches_the_driver_without_the_file(case):
    """The setuid program does get its privilege. An ordinary program obeys OFF under the same
    file."""
    done = run_as_user(case, SETUID, "ask", "results:/made-by-root", preload=False)
    assert done.stdout == "cuInit=0\n", str(done)
    assert "cuInit" in fake_calls(case)
    assert os.stat(case.inside("/made-by-root")).st_uid == 0
    done = run_as_user(case, PLAIN, "ask", CUDAGUARD_POLICY="OFF")
    assert done.stdout == "cuInit=0\n", str(done)
    assert "cuInit" in fake_calls(case)


def test_ordinary_program_reads_its_environment(case):
    done = run_as_user(case, PLAIN, "ask", CUDAGUARD_REPORT=REPORT, CUDAGUARD_HELLO="1")
    assert done.stdout == "cuInit=100\n", str(done)
    assert fake_calls(case) == []
    assert [(record.get("event"), record["uid"])
            for record in harness.records(case.inside(REPORT))] == [("start", USER), (None, USER)]
    # Here OFF is obeyed (as the control shows), so the message may name OFF.
    assert guest.lines_of(done.stderr) == [guest.DENIED % caller("steps-plain")]


@pytest.mark.parametrize("env", [{"CUDAGUARD_POLICY": "OFF"}, {"CUDAGUARD_LOG": "off"}, {
    "CUDAGUARD_LOG": "all"
}, {"CUDAGUARD_POLICY": "nonsense"}, {"CUDAGUARD_REPORT": "REPORT"}, {
    "CUDAGUARD_REPORT": "REPORT.%p", "CUDAGUARD_POLICY": "OFF"
}, {"CUDAGUARD_REPORT": "REPORT", "CUDAGUARD_HELLO": "1"}])
def test_setuid_program_ignores_cudaguards_variables(case, env):
    env = {key: value.replace("REPORT", REPORT) for key, value in env.items()}
    done = run_as_user(case, SETUID, "load:libm.so.6", "ask", "nvml", "ask:libcuda.so",
                         "ask:" + os.path.join(DRIVER, "libcuda.so.1"), **env)
    assert done.stdout == ("load=ok\ncuInit=100\nnvmlInit_v2=9\ncuInit=100\n"
                           "cuInit=100\n"), str(done)
    assert fake_calls(case) == []
    # FORCE_CPU with the default log: one line, no complaint.
    assert guest.lines_of(done.stderr) == [guest.PRIVILEGED % caller("steps-setuid")]
    assert done.stderr.count("\n") == 1, str(done)
    assert sorted(os.listdir(case.inside("/open"))) == []


def test_forked_child_of_a_setuid_program_reads_no_variable(case):
    done = run_as_user(case, SETUID, "ask", "fork", "setenv:CUDAGUARD_POLICY=OFF",
                         "setenv:CUDAGUARD_REPORT=" + REPORT, "ask", "end")
    assert done.stdout.count("cuInit=100") == 2, str(done)
    assert fake_calls(case) == []
    assert not os.path.exists(case.inside(REPORT))


def test_setuid_program_that_gives_up_its_rights_finds_nothing_missing(case):
    """The guard's directory is root's alone. ld.so loads the guard with the program's rights, and
    the program then becomes the user who has started it."""
    case.add_program(guest.binary("jail"), "/jail", 0o4755)
    words = ("/jail", "uid=%d" % USER, "libm.so.6")
    # What the test hides: with the file that all may read, the driver's name is found.
    done = run_as_user(case, *words, "libcuda.so.1")
    assert (done.stdout, done.stderr) == ("libm.so.6 ok\nlibcuda.so.1 ok\n", ""), str(done)
    os.mkdir(case.inside("/private"), 0o700)
    os.rename(case.inside(os.path.dirname(case.guard)), case.inside("/private/lib"))
    case.guard = "/private/lib/libcudaguard.so"
    # The programs around this one are ordinary, and cannot load the guard.
    done = run_as_user(case, *words)
    assert done.stdout == "libm.so.6 ok\n", str(done)
    assert guest.lines_of(done.stderr) == []
    done = run_as_user(case, *words, "libcuda.so.1")
    assert done.stdout == "libm.so.6 ok\nlibcuda.so.1 null\n", str(done)
    assert len(guest.lines_of(done.stderr)) == 1, str(done)
    assert len(messages.find(done.stderr, "file_unreachable")) == 1, str(done)


@pytest.mark.parametrize(("rule", "answer"), [
    ("VALIDATE program=*/steps-setuid", "0"), ("VALIDATE user=%d" % USER, "0"),
    ("VALIDATE user=root", "100"), ("VALIDATE program=*/steps-plain", "100")])
def test_setuid_program_obeys_the_machines_file(case, rule, answer):
    """The user is the one who has started the program. Its environment changes nothing."""
    if "program=" in rule:
        machine.need("mounts")  # /proc has the program's path
    case.write("/etc/cudaguard.conf", "FORCE_CPU\n" + rule + "\n")
    for policy in ("FORCE_CPU", "OFF"):
        done = run_as_user(case, SETUID, "ask", CUDAGUARD_POLICY=policy)
        assert done.stdout == "cuInit=%s\n" % answer, str(done)
        assert ("cuInit" in fake_calls(case)) == (answer == "0")
    refused = messages.find(done.stderr, "no_cuda", cause="/etc/cudaguard.conf:1")
    assert len(refused) == (answer == "100"), str(done)


@pytest.mark.parametrize(("mode", "privileged", "plain"), [(0o644, "0", "0"), (0o600, "0", "100"),
                                                           (0o666, "100", "100")])
def test_setuid_program_uses_a_file_that_only_root_can_write(case, mode, privileged, plain):
    """The privileged process can read what its user cannot."""
    case.write("/etc/cudaguard.conf", "OFF\n", mode)
    for program, answer in ((SETUID, privileged), (PLAIN, plain)):
        done = run_as_user(case, program, "ask")
        assert done.stdout == "cuInit=%s\n" % answer, str(done)
        unused = messages.find(done.stderr, "conf_not_used", file="/etc/cudaguard.conf")
        assert len(unused) == (answer == "100"), str(done)


# sudo needs the machine's own files. All of /etc has thousands.
ETC = ["/etc/" + name for name in (
    "group", "gshadow", "host.conf", "hosts", "ld.so.conf", "ld.so.conf.d", "login.defs",
    "nsswitch.conf", "pam.d", "passwd", "security", "shadow", "sudo.conf", "sudoers")]
WITH_ETC = """set -eu
for directory in {masks}; do if [ -d "$directory" ]; then mount -t tmpfs none "$directory"; fi; done
mount --bind "$1" /etc
/sbin/ldconfig -X 2>/dev/null
shift
exec setpriv --reuid={user} --regid={user} --clear-groups -- "$@"
""".format(masks=" ".join(map(shlex.quote, harness.REAL_DRIVER_DIRS)), user=NOBODY)


@pytest.mark.all
@pytest.mark.needs("mounts")
def test_sudo_with_its_module_and_command_is_guarded(case):
    """sudo is setuid. Its PAM module is linked to the driver and asks, and so does the command
    that sudo starts as root with an environment of its own."""
    case.need("sudo", "setpriv")
    module = shutil.copy(os.path.join(harness.BUILD, "tests", "hosts", "pam_asks.so"),
                         case.directory)
    program = shutil.copy(guest.STEPS, case.path("steps-plain"))
    guard = harness.copy_install(case.path("lib"))
    os.mkdir(case.path("etc"))
    for name in filter(os.path.exists, ETC):
        copy = shutil.copytree if os.path.isdir(name) else shutil.copy2
        copy(name, case.path("etc", os.path.basename(name)))
    for name, text, mode in (
            ("pam.d/sudo", "account required %s\nsession required pam_permit.so\n" % module, 0o644),
            ("sudoers", 'ALL ALL=(ALL) NOPASSWD: ALL\nDefaults env_keep += "CG_FAKE_LOG"\n',
             0o440)):
        os.unlink(case.path("etc", name))
        case.make(os.path.join("etc", name), text, mode)
    with open(case.path("etc", "ld.so.conf"), "r+", encoding="utf-8") as stream:
        old = stream.read()
        stream.seek(0)
        stream.write(harness.public(harness.FAKE_DRIVER) + "\n" + old)

    def sudo():
        done = case.unguarded(
            "unshare", "--mount", "--propagation", "private", "sh", "-c", WITH_ETC, "sh",
            case.path("etc"), "env", "-i", "PATH=/usr/bin:/bin",
            "CG_FAKE_LOG=" + case.inside("/open/fake.log"), shutil.which("sudo"), "-n", program,
            "ask")
        assert done.returncode == 0, str(done)
        return done

    assert sudo().stdout == "cuInit=0\ncuInit=0\n"
    assert fake_calls(case).count("cuInit") == 2
    case.make("etc/ld.so.preload", guard + "\n", 0o644)
    done = sudo()
    assert done.stdout == "cuInit=100\ncuInit=100\n", str(done)
    assert fake_calls(case) == []
    assert guest.lines_of(
        done.stderr) == [guest.PRIVILEGED % "pam_asks.so", guest.DENIED % "steps-plain"]


def test_limit_ld_preload_does_not_guard_setuid_programs(case):
    """Documented: LD_PRELOAD is not for privileged programs; ld.so drops a path without a
    word."""
    done = run_as_user(case, SETUID, "ask", preload=False, LD_PRELOAD=case.guard)
    assert (done.stdout, done.stderr) == ("cuInit=0\n", ""), str(done)
    assert "cuInit" in fake_calls(case)
    done = run_as_user(case, PLAIN, "ask", preload=False, LD_PRELOAD=case.guard)
    assert done.stdout == "cuInit=100\n", str(done)


def test_limit_ld_so_ignores_a_file_name_for_setuid_programs(case):
    """Documented: at each start, ld.so prints that it ignores the file name."""
    case.cache(DRIVER, os.path.dirname(case.guard))
    done = run_as_user(case, SETUID, "ask", preload=False, LD_PRELOAD="libcudaguard.so")
    assert (done.stdout, done.stderr) == ("cuInit=0\n", IGNORED), str(done)
    assert "cuInit" in fake_calls(case)
    # Where the same name is found, for an ordinary program.
    done = run_as_user(case, PLAIN, "ask", preload=False, LD_PRELOAD="libcudaguard.so")
    assert done.stdout == "cuInit=100\n", str(done)
    assert IGNORED not in done.stderr
