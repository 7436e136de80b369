# SPDX-License-Identifier: Apache-2.0
"""`cudaguard system` in a small root directory: what it refuses, tries, writes and removes. Faults
are in test_system_faults.py."""

import os
import shutil
import stat

import pytest

from support import fixtures, harness, system_root
from support.system_root import FILE, GUARD

NOTHING = "nothing was changed"

make_case = fixtures.lent("case", system_root.Case)


def test_enable_guards_every_program_and_disable_ends_that(case):
    assert not case.guarded()  # the control
    printed = case.done("enable")
    assert case.text() == GUARD + "\n"
    assert os.stat(case.inside(FILE)).st_mode & 0o777 == 0o644
    for name in ("/bin/sh", "/bin/ls", "/bin/su"):
        assert "  %-23sguarded\n" % name in printed
    assert "now names it" in printed
    assert case.guarded()
    case.programs_work()
    assert "no longer names " + GUARD in case.done("disable")
    assert case.text() is None
    assert not case.guarded()
    assert os.listdir(case.inside("etc")).count("ld.so.preload") == 0
    assert "does not name " + GUARD in case.done("disable")


LABEL = "security.selinux"
CACHE = b"system_u:object_r:ld_so_cache_t:s0\0"


@pytest.mark.parametrize("label", [CACHE, None], ids=["selinux", "none"])
def test_file_has_the_selinux_label_of_ld_so_cache(case, label):
    """ld.so maps both, and a policy gives both one label. A new file in /etc gets another."""
    cache = case.inside("/etc/ld.so.cache")
    case.write("/etc/ld.so.cache", "")
    if label is not None:
        try:
            os.setxattr(cache, LABEL, label)
        except OSError as error:
            harness.skip(case, "this user or file system cannot set a label: %s" % error)
    case.write(FILE, "# one\n")
    case.done("enable")
    labels = [os.getxattr(path, LABEL) if LABEL in os.listxattr(path) else None
              for path in (cache, case.inside(FILE))]
    assert labels == [label, label]


def test_enable_twice_changes_nothing(case):
    case.done("enable")
    os.chmod(case.inside(FILE), 0o744)  # a new file would have another mode
    assert "already names it, and is unchanged" in case.done("enable")
    assert os.stat(case.inside(FILE)).st_mode & 0o777 == 0o744


@pytest.mark.parametrize(("owner", "mode", "why"), [
    (0, 0o600, "cannot be read by every user"), (0, 0o640, "cannot be read by every user"),
    (0, 0o646, "every user can write to"), (1000, 0o644, "belongs to user 1000, not to root")])
def test_enable_corrects_the_mode_and_the_owner_of_the_file(case, owner, mode, why):
    """ld.so says nothing if a user cannot read the file, and their programs run unguarded."""
    case.done("enable")
    assert os.path.exists(case.inside(FILE))
    os.chown(case.inside(FILE), owner, 0)
    os.chmod(case.inside(FILE), mode)
    done = case.system("status")
    assert done.returncode == 1, done
    assert "Use cudaguard system enable to correct %s, which %s.\n" % (FILE, why) in done.stdout
    assert "would be" in case.done("enable", "--dry-run")
    assert os.stat(case.inside(FILE)).st_mode & 0o777 == mode
    assert "(before: %s)" % why in case.done("enable")
    status = os.stat(case.inside(FILE))
    assert (status.st_mode & 0o777, status.st_uid, case.text()) == (0o644, 0, GUARD + "\n")
    case.done("status")


def test_status_knows_directories_that_not_every_user_can_enter(case):
    case.done("enable")
    case.done("status")  # the control: there is no /proc
    for name in ("/etc", "/opt/cudaguard/lib"):
        os.chmod(case.inside(name), 0o700)
        done = case.system("status")
        assert done.returncode == 1, done
        assert "is in %s, which not every user can enter" % name in done.stdout
        os.chmod(case.inside(name), 0o755)


def test_other_lines_stay(case):
    """The guard comes before other libraries, but after the comments at the start."""
    for name in ("/opt/a.so", "/opt/b.so"):
        case.add(system_root.libraries_of("/bin/sh")[0], name)
    old = "# one\n# two\n/opt/a.so /opt/b.so # three\n"
    case.write(FILE, old)
    case.done("enable")
    assert case.text() == old.replace("/opt/a.so ", GUARD + "\n/opt/a.so ")
    case.done("disable")
    assert case.text() == old


def test_programs_that_cannot_be_guarded_are_named(case):
    loader = "/lib/ld-linux.so.2"
    libc = os.path.join(os.path.dirname(os.path.realpath(loader)), "libc.so.6")
    if not os.path.exists(libc):
        harness.skip(case, "no 32-bit libc is installed")
    shutil.copy(loader, case.inside(loader))
    shutil.copy(libc, case.inside("/lib/libc.so.6"))
    os.symlink("usr/bin", case.inside("/sbin"))
    shutil.copy(case.command, case.inside("/sbin/ldconfig"))
    printed = case.done("enable")
    for name, why in (("/lib/libc.so.6", "it is a 32-bit program (i386)"),
                      ("/sbin/ldconfig", "it is a static executable")):
        assert "  %-23snot guarded: %s" % (name, why) in printed


def test_loader_without_a_32_bit_libc_is_passed_over(case):
    """What is found beside it is a libc that the guard can be loaded with."""
    libc, = (path for path in system_root.libraries_of("/bin/sh") if "/libc.so" in path)
    os.makedirs(case.inside("/lib"), exist_ok=True)
    shutil.copy(shutil.which("true"), case.inside("/lib/ld-linux.so.2"))
    shutil.copy(libc, case.inside("/lib/libc.so.6"))
    assert "libc.so.6" not in case.done("enable")


def test_dry_run_writes_nothing(case):
    assert case.done("enable", "--dry-run").endswith(FILE + " would be:\n" + GUARD + "\n")
    assert case.text() is None
    case.write(FILE, GUARD + "\nlibc.so.6\n")
    assert case.done("disable", "--dry-run") == FILE + " would be:\nlibc.so.6\n"
    assert case.text() == GUARD + "\nlibc.so.6\n"


def test_another_guard_is_replaced_by_enable_and_kept_by_disable(case):
    shutil.copytree(case.inside("/opt/cudaguard"), case.inside("/opt/other"), symlinks=True)
    other = GUARD.replace("cudaguard/", "other/")
    case.write(FILE, other + "\n")
    done = case.system("disable")
    assert done.returncode == 0
    assert "also names %s, another guard" % other in done.stderr
    assert case.text() == other + "\n"
    assert "instead of " + other in case.done("enable")
    assert case.text() == GUARD + "\n"


@pytest.mark.parametrize("entry", [
    "libcudaguard.so", "/opt/cudaguard/$LIB/libcudaguard.so", "/opt/link/lib/libcudaguard.so"])
def test_disable_removes_each_spelling(case, entry):
    os.symlink("cudaguard", case.inside("/opt/link"))
    case.write(FILE, "%s:libc.so.6\n" % entry)
    case.done("disable")
    assert case.text() == "libc.so.6\n"


def test_disable_works_after_the_guard_was_lost(case):
    case.done("enable")
    shutil.rmtree(case.inside("/opt/cudaguard/lib"))
    case.done("disable")
    assert case.text() is None
    case.programs_work()


SPOOL = "/var/log/cudaguard"


def in_root(case, script):
    done = case.unguarded("sh", "-ec", script, cwd=case.root)
    assert (done.returncode, done.stderr) == (0, ""), done


def mode_of(case, path):
    """None if there is no such directory."""
    status = os.path.isdir(case.inside(path)) and os.lstat(case.inside(path)).st_mode
    return stat.S_IMODE(status) if status and stat.S_ISDIR(status) else None


@pytest.fixture(name="logs")
def make_logs(case):
    os.makedirs(case.inside("/var/log"))
    return case


@pytest.mark.parametrize("before", ["none", "empty", "used"])
def test_enable_makes_a_spool_directory(logs, before):
    if before != "none":
        os.mkdir(logs.inside(SPOOL))
    if before == "used":
        os.chmod(logs.inside(SPOOL), 0o1733)
        logs.write(SPOOL + "/1000-2026-11-27.jsonl", "{}\n")
    old = os.umask(0o077)
    try:
        printed = logs.done("enable", "--spool")
    finally:
        os.umask(old)
    assert mode_of(logs, SPOOL) == 0o1733
    assert "report=" + SPOOL + "/" in printed
    assert logs.text() == GUARD + "\n"
    logs.done("enable", "--spool=" + SPOOL + "/")  # a second time
    logs.done("disable")
    assert os.path.isdir(logs.inside(SPOOL))


def test_dry_run_makes_no_spool_directory(logs):
    assert SPOOL + " would be made.\n" in logs.done("enable", "--spool", "--dry-run")
    assert os.listdir(logs.inside("/var/log")) == []


SPOOL_IS_NONE = "--spool", "is not a spool directory"


@pytest.mark.parametrize(("prepare", "option", "meaning"), [
    ("mkdir $S; chown 1000:1000 $S", *SPOOL_IS_NONE), ("mkdir $S; touch $S/syslog", *SPOOL_IS_NONE),
    ("touch $S", *SPOOL_IS_NONE), ("ln -s /tmp $S", *SPOOL_IS_NONE),
    ("chmod 750 var/log", "--spool", "not every user can enter /var/log"),
    ("", "--spool=/srv/none/x", "No such file or directory"),
    *(("", "--spool=" + path, "accepted: an absolute path") for path in ("log", "/var/a b", "/"))])
def test_unfit_spool_directory_is_refused(logs, prepare, option, meaning):
    in_root(logs, prepare.replace("$S", SPOOL[1:]))
    before = mode_of(logs, SPOOL)
    logs.refused(logs.system("enable", option), 125, "--spool", meaning)
    assert mode_of(logs, SPOOL) == before
    assert logs.text() is None


def test_spool_is_for_enable(case):
    case.refused(case.system("disable", "--spool"), 125, "--spool is for system enable")


OPT = "install -m 644 %s opt/x.so; chmod 755 opt; " % GUARD[1:]
NEEDED = os.path.dirname(GUARD) + "/cudaguard"
# What happens to the root directory, the guard that is named, and a part of the refusal.
UNFIT = [
    ("", "libcudaguard.so", "name without a directory"),
    ("", "opt/cudaguard/lib/libcudaguard.so", "relative path"),
    # The file may exist outside.
    ("", "/opt/none.so", '"/opt/none.so" (in --root) cannot be found: No such file or directory'),
    *(("mkdir -p ./%s; cp opt/x.so ./%s/guard.so" % (path, path), path + "/guard.so", "is below " + above)
      for path, above in (("/home/alice", "/home"), ("/tmp", "/tmp"), ("/var/tmp", "/var/tmp"))),
    ("ln -s /home/alice opt/alice", "/opt/alice/guard.so", "is below /home"),
    ("cp opt/x.so 'opt/a b.so'", "/opt/a b.so", "has a character"),
    *(("chmod %s %s" % (mode, name[1:]), GUARD, '"%s" (in --root) needs %s' % (GUARD, name))
      for mode, name in (("666", NEEDED + "/libcudaguard-driver.so"), ("600", NEEDED + "/libcuda.so"),
                         ("700", NEEDED))),
    ("", "/etc/passwd", "is not a library"),
    ("", system_root.libraries_of("/bin/sh")[0], "is not cudaguard's guard"),
    *((change, "/opt/x.so", meaning) for change, meaning in (
        ("chmod 666 opt/x.so", "every user can write to"),
        ("chmod 600 opt/x.so", "cannot be read by every user"),
        ("chown 1000 opt/x.so", "belongs to user 1000"),
        ("chown :50 opt/x.so; chmod 664 opt/x.so", "group 50 can write to"),
        ("chmod 777 opt", "is in /opt, which every user can write to"),
        ("chmod 700 opt", "is in /opt, which not every user can enter"),
        ("truncate -s 4096 opt/x.so", "is damaged"),
        # ELF's e_machine, RISC-V's.
        ("printf '\\363\\0' | dd status=none conv=notrunc bs=1 seek=18 of=opt/x.so",
         "is for another architecture")))]


def test_unfit_guard_is_refused(case):
    for prepare, path, meaning in UNFIT:
        in_root(case, OPT + prepare)
        case.refused(case.system("enable", path), 125, meaning)
        assert case.text() is None, prepare
    in_root(case, OPT)  # the control
    case.done("enable", "/opt/x.so")


# A library with the guard's note that ends every program.
ENDS = r"""#include <unistd.h>
__asm__(".pushsection .note.cudaguard,\"a\"\n.long 10,16,1\n.asciz \"cudaguard\"\n.balign 4\n"
        ".asciz \"cudaguard 9.9.9\"\n.popsection");
__attribute__((constructor)) static void end(void) { _exit(3); }
"""


def test_guard_that_changes_a_program_is_refused(case):
    source = case.make("ends.c", ENDS, 0o644)
    shutil.copy(case.compile("ends.so", source, "-shared", "-fPIC"), case.inside("/opt/ends.so"))
    case.refused(case.system("enable", "/opt/ends.so"), 125, "/bin/sh -c : ends with exit code 3 "
                 "with the guard, and without it, it ends with exit code 0; " + NOTHING)
    assert case.text() is None
    case.programs_work()


def test_root_without_programs_is_refused(case):
    os.remove(case.inside("/bin"))
    case.refused(case.system("enable"), 125, "no program could be guarded", NOTHING)


@pytest.mark.parametrize(("make", "meaning"), [
    *((make, "it is not a regular file") for make in ("ln -s /opt/x $F", "mkfifo $F", "mkdir $F")),
    ("printf 'a\\0b' >$F", "it is not a text file")])
def test_file_that_is_no_plain_text_is_refused(case, make, meaning):
    in_root(case, make.replace("$F", FILE[1:]))
    for action in ("enable", "disable"):
        case.refused(case.system(action), 125, "cannot be read: " + meaning)


def test_comment_that_ld_so_would_take_for_libraries_is_refused(case):
    """ld.so finds the second comment only where it is now (tests/unit/preload_file_test.cpp)."""
    old = "/opt/a.so # 1\n/opt/b.so # 2\n/opt/c.so /opt/d.so\n"
    case.write(FILE, old)
    case.refused(case.system("enable"), 125, "words of a comment")
    assert case.text() == old


@pytest.mark.needs("setuid_programs")
def test_another_user_can_only_try(case):
    os.chmod(case.inside("/usr/bin/su"), 0o4755)  # ld.so ignores LD_PRELOAD in it
    command = [shutil.which("chroot"), "--userspec=1000:1000", case.root,
               "/opt/cudaguard/bin/cudaguard", "system", "enable"]
    done = case.unguarded(*command, "--dry-run")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert "/bin/ls" in done.stdout
    assert "/bin/su" not in done.stdout
    done = case.unguarded(*command)
    assert done.returncode == 125
    assert done.stderr == "cudaguard: %s cannot be changed: Permission denied\n" % FILE
    assert case.text() is None


def test_action_is_required(case):
    case.refused(case.start("system", "--dry-run", "enable"), 125,
                 'no action after "system"; see cudaguard system --help')
    case.refused(case.start("system", "on"), 125, 'unknown action "on"')
    case.refused(case.start("system", "enable", "/a", "/b"), 125, "takes one library")
