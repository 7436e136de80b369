# SPDX-License-Identifier: Apache-2.0
"""A setuid program, run by an ordinary user, with the guard in /etc/ld.so.preload. All in a
mount namespace with a copy of /etc: the machine's own is never written to. (bubblewrap cannot be
used: it forbids setuid.)"""

import os
import shlex
import shutil
import subprocess

import pytest

from support import guest, harness, machine, messages

NOBODY = 65534
IGNORED = ("ERROR: ld.so: object 'libcudaguard.so' from LD_PRELOAD cannot be preloaded "
           "(cannot open shared object file): ignored.\n")
IN_NAMESPACE = """set -eu
etc=$1 preload=$2 driver=$3; shift 3
for directory in {masks}; do if [ -d "$directory" ]; then mount -t tmpfs none "$directory"; fi; done
mount --bind "$etc" /etc
if [ ! -e /etc/fake.conf ]; then
  {{ echo "$driver"; cat /etc/ld.so.conf; }} > /etc/fake.conf
  /sbin/ldconfig -X -f /etc/fake.conf 2>/dev/null
fi
if [ -n "$preload" ]; then echo "$preload" > /etc/ld.so.preload; fi
exec setpriv --reuid={nobody} --regid={nobody} --clear-groups -- "$@"
""".format(masks=" ".join(map(shlex.quote, harness.REAL_DRIVER_DIRS)), nobody=NOBODY)


# What ld.so, setpriv and sudo read. All of /etc has thousands of files.
ETC = ["/etc/" + name for name in (
    "group", "gshadow", "host.conf", "hosts", "ld.so.conf", "ld.so.conf.d", "login.defs",
    "nsswitch.conf", "pam.d", "passwd", "security", "shadow", "sudo.conf", "sudoers")]


@pytest.fixture(name="case")
def make_case(case):
    case.need("unshare", "setpriv")
    machine.need("mounts", "setuid_programs")
    case.guard = harness.copy_install(case.path("lib"))
    case.setuid = case.path("steps-setuid")
    case.plain = case.path("steps-plain")
    for name, mode in ((case.setuid, 0o4755), (case.plain, 0o755)):
        shutil.copy(guest.STEPS, name)
        os.chown(name, 0, 0)
        os.chmod(name, mode)
    driver = case.path("driver")
    shutil.copytree(harness.FAKE_DRIVER, driver, symlinks=True)
    case.driver = driver
    os.mkdir(case.path("etc"))
    for name in filter(os.path.exists, ETC):
        copy = shutil.copytree if os.path.isdir(name) else shutil.copy2
        copy(name, case.path("etc", os.path.basename(name)))
    # Where an ordinary user may write, so that an absent file means something.
    os.mkdir(case.path("open"))
    os.chmod(case.path("open"), 0o777)
    case.report = case.path("open", "report")
    case.fake_log = case.path("open", "fake.log")
    return case


def run_as_nobody(case, program, *steps, preload=True, **env):
    environment = {"PATH": "/usr/bin:/bin", "CG_FAKE_LOG": case.fake_log, **env}
    command = ["unshare", "-m", "--propagation", "private", "sh", "-c", IN_NAMESPACE, "sh",
               case.path("etc"), case.guard if preload else "", case.driver,
               "env", "-i", *("%s=%s" % item for item in environment.items()), program, *steps]
    before = os.path.exists("/etc/ld.so.preload")
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=120, check=False)
    assert os.path.exists("/etc/ld.so.preload") == before, "the machine was changed"
    assert done.returncode == 0, str(done)
    return done


def fake_calls(case):
    if not os.path.exists(case.fake_log):
        return []
    with open(case.fake_log, encoding="utf-8") as stream:
        calls = stream.read().split()
    os.unlink(case.fake_log)
    return calls


def test_control_setuid_program_reaches_the_driver_without_the_file(case):
    """The setuid program does get its privilege. An ordinary program obeys OFF under the same
    file."""
    done = run_as_nobody(case, case.setuid, "ask", "results:" + case.path("made-by-root"),
                         preload=False)
    assert done.stdout == "cuInit=0\n", str(done)
    assert "cuInit" in fake_calls(case)
    assert os.stat(case.path("made-by-root")).st_uid == 0
    done = run_as_nobody(case, case.plain, "ask", CUDAGUARD_POLICY="OFF")
    assert done.stdout == "cuInit=0\n", str(done)
    assert "cuInit" in fake_calls(case)


def test_ordinary_program_reads_its_environment(case):
    done = run_as_nobody(case, case.plain, "ask", CUDAGUARD_REPORT=case.report, CUDAGUARD_HELLO="1")
    assert done.stdout == "cuInit=100\n", str(done)
    assert fake_calls(case) == []
    assert [(record.get("event"), record["uid"])
            for record in harness.records(case.report)] == [("start", NOBODY), (None, NOBODY)]
    # Here OFF is obeyed (as the control shows), so the message may name OFF.
    assert guest.lines_of(done.stderr) == [guest.DENIED % "steps-plain"]


@pytest.mark.parametrize("env", [{"CUDAGUARD_POLICY": "OFF"}, {"CUDAGUARD_LOG": "off"}, {
    "CUDAGUARD_LOG": "all"
}, {"CUDAGUARD_POLICY": "nonsense"}, {"CUDAGUARD_REPORT": "REPORT"}, {
    "CUDAGUARD_REPORT": "REPORT.%p", "CUDAGUARD_POLICY": "OFF"
}, {"CUDAGUARD_REPORT": "REPORT", "CUDAGUARD_HELLO": "1"}])
def test_setuid_program_ignores_cudaguards_variables(case, env):
    env = {key: value.replace("REPORT", case.report) for key, value in env.items()}
    done = run_as_nobody(case, case.setuid, "load:libm.so.6", "ask", "nvml", "ask:libcuda.so",
                         "ask:" + os.path.join(case.driver, "libcuda.so.1"), **env)
    assert done.stdout == ("load=ok\ncuInit=100\nnvmlInit_v2=9\ncuInit=100\n"
                           "cuInit=100\n"), str(done)
    assert fake_calls(case) == []
    # FORCE_CPU with the default log: one line, no complaint.
    assert guest.lines_of(done.stderr) == [guest.PRIVILEGED % "steps-setuid"]
    assert done.stderr.count("\n") == 1, str(done)
    assert sorted(os.listdir(case.path("open"))) == []


def test_forked_child_of_a_setuid_program_reads_no_variable(case):
    done = run_as_nobody(case, case.setuid, "ask", "fork", "setenv:CUDAGUARD_POLICY=OFF",
                         "setenv:CUDAGUARD_REPORT=" + case.report, "ask", "end")
    assert done.stdout.count("cuInit=100") == 2, str(done)
    assert fake_calls(case) == []
    assert not os.path.exists(case.report)


def test_setuid_program_that_gives_up_its_rights_finds_nothing_missing(case):
    """The guard's directory is root's alone. ld.so loads the guard with the program's rights, and
    the program then becomes the user who has started it."""
    program = shutil.copy(guest.binary("jail"), case.directory)
    os.chmod(program, 0o4755)
    words = (program, "uid=%d" % NOBODY, "libm.so.6")
    # What the test hides: with the file that all may read, the driver's name is found.
    done = run_as_nobody(case, *words, "libcuda.so.1")
    assert (done.stdout, done.stderr) == ("libm.so.6 ok\nlibcuda.so.1 ok\n", ""), str(done)
    os.mkdir(case.path("private"))
    os.rename(case.path("lib"), case.path("private", "lib"))
    os.chmod(case.path("private"), 0o700)
    case.guard = case.path("private", "lib", "libcudaguard.so")
    # The programs around this one are ordinary, and cannot load the guard.
    done = run_as_nobody(case, *words)
    assert done.stdout == "libm.so.6 ok\n", str(done)
    assert guest.lines_of(done.stderr) == []
    done = run_as_nobody(case, *words, "libcuda.so.1")
    assert done.stdout == "libm.so.6 ok\nlibcuda.so.1 null\n", str(done)
    assert len(guest.lines_of(done.stderr)) == 1, str(done)
    assert len(messages.find(done.stderr, "file_unreachable")) == 1, str(done)


def write_etc(case, name, text, mode=0o644):
    path = case.path("etc", name)
    if os.path.exists(path):
        os.remove(path)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)
    os.chmod(path, mode)


@pytest.mark.parametrize(("rule", "answer"), [
    ("VALIDATE program=*/steps-setuid", "0"), ("VALIDATE user=%d" % NOBODY, "0"),
    ("VALIDATE user=root", "100"), ("VALIDATE program=*/steps-plain", "100")])
def test_setuid_program_obeys_the_machines_file(case, rule, answer):
    """The user is the one who has started the program. Its environment changes nothing."""
    write_etc(case, "cudaguard.conf", "FORCE_CPU\n" + rule + "\n")
    for policy in ("FORCE_CPU", "OFF"):
        done = run_as_nobody(case, case.setuid, "ask", CUDAGUARD_POLICY=policy)
        assert done.stdout == "cuInit=%s\n" % answer, str(done)
        assert ("cuInit" in fake_calls(case)) == (answer == "0")
    refused = messages.find(done.stderr, "no_cuda", cause="/etc/cudaguard.conf:1")
    assert len(refused) == (answer == "100"), str(done)


@pytest.mark.parametrize(("mode", "privileged", "plain"), [(0o644, "0", "0"), (0o600, "0", "100"),
                                                           (0o666, "100", "100")])
def test_setuid_program_uses_a_file_that_only_root_can_write(case, mode, privileged, plain):
    """The privileged process can read what its user cannot."""
    write_etc(case, "cudaguard.conf", "OFF\n", mode)
    for program, answer in ((case.setuid, privileged), (case.plain, plain)):
        done = run_as_nobody(case, program, "ask")
        assert done.stdout == "cuInit=%s\n" % answer, str(done)
        unused = messages.find(done.stderr, "conf_not_used", file="/etc/cudaguard.conf")
        assert len(unused) == (answer == "100"), str(done)


@pytest.mark.all
def test_sudo_with_its_module_and_command_is_guarded(case):
    """sudo is setuid. Its PAM module is linked to the driver and asks, and so does the command
    that sudo starts as root with an environment of its own."""
    case.need("sudo")
    module = shutil.copy(os.path.join(harness.BUILD, "tests", "hosts", "pam_asks.so"),
                         case.directory)
    write_etc(case, "pam.d/sudo", "account required %s\nsession required pam_permit.so\n" % module)
    write_etc(case, "sudoers", 'ALL ALL=(ALL) NOPASSWD: ALL\nDefaults env_keep += "CG_FAKE_LOG"\n',
              0o440)
    command = (shutil.which("sudo"), "-n", case.plain, "ask")
    done = run_as_nobody(case, *command, preload=False)
    assert done.stdout == "cuInit=0\ncuInit=0\n", str(done)
    assert fake_calls(case).count("cuInit") == 2
    done = run_as_nobody(case, *command)
    assert done.stdout == "cuInit=100\ncuInit=100\n", str(done)
    assert fake_calls(case) == []
    assert guest.lines_of(
        done.stderr) == [guest.PRIVILEGED % "pam_asks.so", guest.DENIED % "steps-plain"]


def test_limit_ld_preload_does_not_guard_setuid_programs(case):
    """Documented: LD_PRELOAD is not for privileged programs; ld.so drops a path without a
    word."""
    done = run_as_nobody(case, case.setuid, "ask", preload=False, LD_PRELOAD=case.guard)
    assert (done.stdout, done.stderr) == ("cuInit=0\n", ""), str(done)
    assert "cuInit" in fake_calls(case)
    done = run_as_nobody(case, case.plain, "ask", preload=False, LD_PRELOAD=case.guard)
    assert done.stdout == "cuInit=100\n", str(done)


def test_limit_ld_so_ignores_a_file_name_for_setuid_programs(case):
    """Documented: at each start, ld.so prints that it ignores the file name."""
    os.symlink(case.guard, os.path.join(case.driver, "libcudaguard.so"))
    done = run_as_nobody(case, case.setuid, "ask", preload=False, LD_PRELOAD="libcudaguard.so")
    assert (done.stdout, done.stderr) == ("cuInit=0\n", IGNORED), str(done)
    assert "cuInit" in fake_calls(case)
    # Where the same name is found, for an ordinary program.
    done = run_as_nobody(case, case.plain, "ask", preload=False, LD_PRELOAD="libcudaguard.so")
    assert done.stdout == "cuInit=100\n", str(done)
    assert IGNORED not in done.stderr
