# SPDX-License-Identifier: Apache-2.0
"""--fence=devices: no GPU device node can be opened, in any way. The nodes are fakes in a private
/dev. Each control runs the same program there without the fence."""

import fnmatch
import os
import shutil
import stat
import subprocess

import pytest

from support import fence, fixtures, harness, launcher, machine, nodes

FENCED = [launcher.LAUNCHER, "run", "--log=off", "--fence=devices", "--"]


class Case(fence.Case):
    def setUp(self):
        super().setUp()
        self.need("unshare", "setpriv")
        self.need_fence_of_devices()

    def private(self, *words, **more):
        done = self.unguarded(*nodes.in_private_dev(*words, **more))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def answers_of(self, *words, **more):
        """{answer: the ways that had it} of a program that prints "WAY PATH ANSWER"."""
        lines = self.private(*words, **more).stdout.splitlines()
        self.assertGreater(len(lines), 5)
        found = {}
        for line in lines:
            way, answer = line.rsplit(" ", 1)
            found.setdefault(answer, []).append(way)
        return found

    def nothing_opens(self, start, program, paths, *, user=(), **more):
        """`start` fences a command, and `program` opens these paths. `user` changes the user."""
        words = [*program, *paths]
        control = self.answers_of(*user, *words, **more)
        self.assertEqual(list(control), ["opened"], control)
        fenced = self.answers_of(*user, *start, *words, **more)
        absent = fenced.pop("ENOSYS", [])  # before Linux 6.10
        self.assertEqual({way.split()[0] for way in absent} - {"openat2"}, set())
        self.assertEqual(list(fenced), ["EACCES"], fenced.get("opened"))
        self.assertEqual(len(control["opened"]), len(fenced["EACCES"] + absent))


make_case = fixtures.lent("case", Case)


def test_fakes_have_a_node_for_each_row_of_the_table():
    missing = [row for row in nodes.rows()
               if not any(fnmatch.fnmatch(name.split("/")[0], row) for name in nodes.GPU)]
    assert len(nodes.rows()) >= 10
    assert missing == []


@pytest.mark.parametrize("program", ["opens", "opens_static", "opens_musl_static"])
def test_no_gpu_node_opens_in_any_way(case, program):
    if "musl" in program:
        case.need("musl-gcc")
    ways = case.answers_of(fence.program(program), *nodes.PATHS)["opened"]
    assert len(ways) == 13 * len(nodes.PATHS), "this machine opens none by a handle"
    case.nothing_opens(FENCED, [fence.program(program)], nodes.PATHS)


@pytest.mark.parametrize("start", [["env", "-i"], ["setsid", "-w", "sh", "-c", '"$@"', "sh"]])
def test_no_gpu_node_opens_after_execve(case, start):
    case.nothing_opens(FENCED, [*start, fence.program("opens_static")], nodes.PATHS)


def test_no_gpu_node_opens_for_an_ordinary_user(case):
    command = case.installed()
    opens = shutil.copy(fence.program("opens"), case.path("opens"))
    case.nothing_opens([command, *FENCED[1:]], [opens], nodes.PATHS, user=machine.AS_NOBODY)


def test_no_gpu_node_opens_for_a_setuid_program(case):
    """The nodes are root's alone. Without the fence, nobody's setuid program opens them. Root has
    CAP_SYS_ADMIN, so the fence sets no no_new_privs, and the program is setuid inside."""
    machine.need("setuid_programs")
    opens = shutil.copy(fence.program("opens_static"), case.path("opens"))
    os.chmod(opens, 0o4755)
    roots = "chmod 600 /dev/nvidia0\n"
    plain = shutil.copy(fence.program("opens_static"), case.path("plain"))
    assert list(case.answers_of(*machine.AS_NOBODY, plain, "/dev/nvidia0", more=roots)) == ["EACCES"]
    case.nothing_opens(FENCED, [*machine.AS_NOBODY, opens], ["/dev/nvidia0"], more=roots)


def test_other_nodes_open(case):
    """Mode 3 is refused for each file, because a seccomp filter sees no names."""
    words = [fence.program("opens_static"), *nodes.OTHERS]
    control = case.answers_of(*words)
    assert list(control) == ["opened"]
    fenced = case.answers_of(*FENCED, *words)
    ways = {answer: {line.split()[0] for line in lines} for answer, lines in fenced.items()}
    assert ways["EACCES"] <= {"open-3", "openat-3", "handle-3", "reopened-3"}
    assert ways.get("ENOSYS", {"openat2"}) == {"openat2"}  # before Linux 6.10
    assert sorted(sum(fenced.values(), [])) == sorted(control["opened"])


MOUNTED = """
mkdir /dev/shm/whole /dev/shm/dri "/dev/shm/a blank"
touch /dev/shm/one /dev/shm/nvidia7
mount --bind /dev "/dev/shm/a blank"
mount --bind /dev/dri /dev/shm/dri
mount --bind /dev/nvidia0 /dev/shm/one
mount --bind /dev/nvidiactl /dev/shm/nvidia7
mkdir -p /dev/shm/root/dev
mount -t tmpfs none /dev/shm/root
mkdir /dev/shm/root/dev
mknod -m 666 /dev/shm/root/dev/nvidia0 c 1 3
"""


@pytest.mark.parametrize(("source", "copy", "path", "options"), [
    ("/dev", "/dev/upper/copy", "/dev/upper/copy/nvidia0", "rw"),
    ("/", "/mnt", "/dev/nvidia0", "rw"), ("/", "/mnt", "/dev/dri/card0", "rw"),
    ("/dev", "/mnt", "/dev/nvidia0", "nodev")])
@pytest.mark.parametrize("start", ["/", "/dev/upper/copy/upper", "/mnt/usr"])
def test_no_gpu_node_opens_in_or_below_a_directory_that_has_another_name(
        case, start, source, copy, path, options):
    """Landlock knows directories and nodes, not their names. A copy of / is granted nowhere as a
    whole, and so is a directory above a copy of /dev that is also in that copy. A copy with nodev
    has the same nodes."""
    more = "mkdir -p /dev/upper/copy\nmount --bind %s %s\nmount -o remount,bind,%s %s\n" % (
        source, copy, options, copy)
    there = ["sh", "-c", 'cd "$0" || true; exec "$@"', start]
    case.nothing_opens([*there, *FENCED], [fence.program("opens_static")], [path], more=more)


@pytest.mark.parametrize("path", ["/dev/shm/one", "/dev/shm/nvidia7", "/dev/shm/dri/card0",
                                  "/dev/shm/a blank/nvidia0", "/dev/shm/a blank/dri/card0",
                                  "/dev/shm/a blank/nvgpu/igpu0/as",
                                  "/dev/shm/root/dev/nvidia0", "/proc/self/root/dev/nvidia0"])
def test_no_gpu_node_opens_by_a_mount(case, path):
    case.nothing_opens(FENCED, [fence.program("opens_static")], [path], more=MOUNTED)


@pytest.mark.parametrize("directory", ["/", "/dev", "/dev/dri", "/dev/shm/dri", "/dev/shm/a blank"])
def test_no_gpu_node_opens_if_the_fence_starts_in_its_directory(case, directory):
    """The current directory has a grant of its own."""
    there = ["sh", "-c", 'cd "$0" && exec "$@"', directory]
    case.nothing_opens([*there, *FENCED], [fence.program("opens_static")],
                       ["/dev/dri/card0", "/dev/nvidia0", "/dev/shm/a blank/dri/card0"], more=MOUNTED)


def test_files_beside_a_mounted_node_open_but_new_ones_do_not(case):
    more = MOUNTED + "echo text >/dev/shm/old\n"
    words = ["sh", "-c", "cat /dev/shm/old; echo >/dev/shm/new"]
    done = case.unguarded(*nodes.in_private_dev(launcher.LAUNCHER, *FENCED[1:2], *FENCED[3:], *words,
                                                more=more))
    assert done.stdout == "text\n"
    assert "/dev/shm/new: Permission denied" in done.stderr
    assert "GPU device nodes are mounted below /dev/shm" in done.stderr


# Runs a command while a file system in /dev has a server that never answers, as that of a dead NFS.
SILENT = """
import ctypes, os, subprocess, sys
fuse = os.open("/dev/fuse", os.O_RDWR)
options = b"fd=%d,rootmode=40000,user_id=0,group_id=0" % fuse
if ctypes.CDLL(None).mount(b"silent", b"/dev/silent", b"fuse", 0, options):
    sys.exit("no mount")
with subprocess.Popen(sys.argv[2:]) as process:
    try:
        print(process.wait(int(sys.argv[1])))
    except subprocess.TimeoutExpired:
        process.kill()
        print("waits")
"""


def test_silent_file_server_does_not_delay_the_start(case):
    with open("/proc/filesystems", encoding="ascii") as stream:
        known = stream.read().split()
    if "fuse" not in known:
        pytest.skip("this kernel has no FUSE")
    more = "mkdir silent\nmknod fuse c 10 229\n"
    silent = ["python3", "-c", SILENT]
    assert case.private(*silent, "1", "stat", "/dev/silent", more=more).stdout == "waits\n"
    assert case.private(*silent, "60", *FENCED, "true", more=more).stdout == "0\n"


AFTER = """
set -e
"$@" sh -c 'echo >"$0/started"; read line <"$0/made"; exec %s /dev/nvidia9 /dev/dri/new' %s &
read line <%s/started
mknod -m 666 /dev/nvidia9 c 1 3
mknod -m 666 /dev/dri/new c 1 3
echo >%s/made
wait $!
"""


def test_node_made_after_the_start_does_not_open(case):
    for name in ("started", "made"):
        os.mkfifo(case.path(name))
    place = case.directory
    case.make("after", "#!/bin/sh" + AFTER % (fence.program("opens_static"), place, place, place))
    assert list(case.answers_of(case.path("after"))) == ["opened"]
    fenced = case.answers_of(case.path("after"), *FENCED)
    assert "EACCES" in fenced and set(fenced) <= {"EACCES", "ENOSYS"}, fenced


MOUNTS = """
set -e
"$@" sh -c 'echo >"$0/started"; read line <"$0/made"; cat /dev/upper/deep/new; cat /dev/lower/new' %s &
read line <%s/started
mount -t tmpfs none /dev/upper/deep
echo deep >/dev/upper/deep/new
mount -t tmpfs none /dev/lower
echo direct >/dev/lower/new
echo >%s/made
wait $! || true
"""


def test_file_system_mounted_later_opens_only_below_a_granted_directory(case):
    for name in ("started", "made"):
        os.mkfifo(case.path(name))
    case.make("mounts", "#!/bin/sh" + MOUNTS % (case.directory, case.directory, case.directory))
    more = "mkdir -p upper/deep lower\n"
    assert case.private(case.path("mounts"), more=more).stdout == "deep\ndirect\n"
    done = case.private(case.path("mounts"), *FENCED, more=more)
    assert done.stdout == "deep\n"
    assert "/dev/lower/new: Permission denied" in done.stderr


@pytest.mark.parametrize("words", [
    ["mknod", "%s/node", "c", "1", "3"], ["mknod", "%s/node", "b", "1", "3"],
    ["mknod", "/dev/nvidia8", "c", "195", "8"], ["cp", "-a", "/dev/nvidia0", "%s/node"],
    ["ln", "/dev/nvidia0", "/dev/granted/node"],
    ["mv", "/dev/nvidia0", "/dev/granted/node"], ["mv", "/dev/dri", "/dev/granted/node"]])
def test_root_cannot_make_or_move_a_node(case, words):
    words = [word.replace("%s", case.directory) for word in words]
    more = "mkdir /dev/granted\nrm -f %s\n" % case.path("node")
    control = case.unguarded(*nodes.in_private_dev(*words, more=more))
    fenced = case.unguarded(*nodes.in_private_dev(*FENCED, *words, more=more))
    assert (control.returncode, fenced.returncode) == (0, 1), (control.stderr, fenced)


OPENAT2_3 = [fence.program("opens_static"), "--openat2-3", "/dev/nvidia0"]


def test_limit_mode_3_of_openat2_opens_but_takes_no_ioctl(case):
    """A seccomp filter cannot read its flags. Before Linux 6.10, there is no openat2 inside."""
    assert case.private(*OPENAT2_3).stdout == "ioctl ENOTTY\nopenat2-3 /dev/nvidia0 opened\n"
    assert case.private(*FENCED, *OPENAT2_3).stdout in (
        "ioctl EACCES\nopenat2-3 /dev/nvidia0 opened\n", "openat2-3 /dev/nvidia0 ENOSYS\n")


def test_openat2_is_absent_if_landlock_cannot_refuse_its_ioctls(case):
    """Before Linux 6.10, Landlock answers EINVAL if it is asked for this right."""
    case.need("strace")
    older = ["strace", "-o", case.path("log"), "-e",
             "inject=landlock_create_ruleset:error=EINVAL:when=1", *FENCED]
    assert case.private(*older, *OPENAT2_3).stdout == "openat2-3 /dev/nvidia0 ENOSYS\n"
    lines = case.private(*older, fence.program("opens_static"), "/dev/nvidia0").stdout
    assert "\nopenat2 /dev/nvidia0 ENOSYS\n" in lines
    assert " opened\n" not in lines


URING = fence.program("uring")


@pytest.mark.parametrize("before, after, fenced", [
    ([], ["--open"], "setup ENOSYS\n"),
    # A process outside has made this ring, which has its rights.
    ([URING, "--leave"], ["--inherited"],
     "uring-2 /dev/nvidia0 ENOSYS\nuring-3 /dev/nvidia0 ENOSYS\n")], ids=["new", "inherited"])
def test_no_gpu_node_opens_by_io_uring(case, before, after, fenced):
    words = [URING, *after, "/dev/nvidia0"]
    control = case.private(*before, *words).stdout
    if control.startswith("setup "):
        pytest.skip("no io_uring here: " + control)
    assert control == "uring-2 /dev/nvidia0 opened\nuring-3 /dev/nvidia0 opened\n"
    assert case.private(*before, *FENCED, *words).stdout == fenced


def broken(case, *words):
    """What these words print on stderr under the fence. The control: without it they succeed."""
    case.private(*words)
    done = case.unguarded(*nodes.in_private_dev(*FENCED, *words))
    assert done.returncode != 0, done
    return done.stderr


# What docs/fence.md says that fails, and what it prints.
FAILS = {
    "mount": (["mount", "-t", "tmpfs", "none", "/dev/shm"], "permission denied"),
    "umount": (["umount", "/dev/shm"], "must be superuser to unmount"),
    "unshare": (["unshare", "--mount", "true"], "Operation not permitted"),
    "bwrap": (["bwrap", "--dev-bind", "/", "/", "true"],
              "bwrap: Failed to make / slave: Operation not permitted"),
    "a new node": (["sh", "-c", "echo >/dev/new"], "/dev/new: Permission denied"),
    "mknod": (["mknod", "/dev/shm/node", "c", "1", "3"], "Permission denied"),
}


@pytest.mark.parametrize("name", FAILS)
def test_documented_program_fails(case, name):
    words, message = FAILS[name]
    assert message in broken(case, *words)


def test_process_outside_cannot_be_looked_at(case):
    words = ["readlink", "-v", "/proc/%d/exe" % os.getpid()]
    assert case.unguarded(*words).returncode == 0
    assert "Permission denied" in case.unguarded(*FENCED, *words).stderr


@pytest.mark.all
def test_debugger_of_a_process_outside_fails(case):
    case.need("gdb")
    ask = ["gdb", "-nx", "-batch", "-ex", "print 40 + 2", "-p"]
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as outside:
        try:
            assert "= 42" in case.unguarded(*ask, outside.pid).stdout
            done = case.unguarded(*FENCED, *ask, outside.pid)
            assert "ptrace: Operation not permitted." in done.stdout + done.stderr
        finally:
            outside.communicate()


def test_message_of_run_names_what_fails_once(case):
    done = case.start("run", "--fence=devices", "true")
    assert (done.returncode, done.stderr) == (
        0, "cudaguard: --fence=devices: mount, bwrap, rootless Podman, io_uring, and gdb -p on "
        "outside processes also fail\n")
    for level in ("off", "error"):
        assert case.start("run", "--log", level, "--fence=devices", "true").stderr == ""


@pytest.mark.parametrize("how", ["--fence", "--fence=devices"])
def test_program_that_only_the_fence_keeps_off_cuda_is_no_error(case, how):
    words = [how, "--", fence.program("opens_static"), "/dev/null"]
    assert '" is not guarded (' in case.start("run", *words).stderr
    for level in ("off", "error"):
        assert case.start("run", "--log", level, *words).stderr == ""


def test_documentation_has_each_row_of_the_table():
    text = harness.read("docs", "fence.md")
    for row in nodes.rows():
        assert "`%s`" % row in text or "`%s/`" % row in text, row


def test_files_can_be_moved_and_linked_between_directories(case):
    """Without LANDLOCK_ACCESS_FS_REFER, the kernel answers EXDEV, and ln fails."""
    case.need("strace")
    script = """
        set -e
        cd "$1" && mkdir one two && echo text >one/file
        mv one/file two/file && ln two/file one/again && mv one two/ && cat two/one/again
        cp -a two three && rm -r two three"""
    done = case.start("run", "--log=off", "--fence=devices", "strace", "-f", "-e", "trace=/rename|link",
                      "sh", "-c", script, "sh", case.directory)
    assert (done.returncode, done.stdout) == (0, "text\n"), done.stderr
    assert "rename" in done.stderr
    assert "EXDEV" not in done.stderr


def test_entry_that_selinux_hides_gets_no_grant(case):
    """As for an SELinux user such as user_u, for whom statx() of /root ends with EACCES."""
    case.need("strace")
    hidden = case.path("hidden")
    os.mkdir(hidden)
    log = case.path("log")
    done = case.unguarded("strace", "-f", "-o", log, "-P", hidden, "-e",
                          "inject=statx:error=EACCES", launcher.LAUNCHER, "run",
                          "--fence=devices", "--", "ls", "/", cwd=hidden)
    assert "usr" in done.stdout.split(), done
    assert done.returncode == 0, done
    assert "EACCES (Permission denied) (INJECTED)" in harness.read(log)


def test_limit_node_elsewhere_than_in_dev_opens(case):
    machine.need("device_nodes")
    node = case.path("nvidia0")
    os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    words = [fence.program("opens_static"), node]
    opened = "\nopenat %s opened\n" % node
    assert opened in case.unguarded(*words).stdout
    assert opened in case.unguarded(*FENCED, *words).stdout
    linked = case.private(*FENCED, *words[:1], "/dev/linked", more="ln nvidia0 linked\n")
    assert "\nopenat /dev/linked opened\n" in linked.stdout


NOTE = ("no GPU device node could be opened (--fence=devices); processes that tried are not known")


def test_verify_says_what_it_cannot_see(case):
    """A static program that opens a node is not in the result."""
    words = [fence.program("opens_static"), "/dev/nvidia0", "/dev/dri/card0"]
    for how, opened in (("--fence=devices", False), ("--fence=require", True)):
        done = case.unguarded(*nodes.in_private_dev(launcher.LAUNCHER, "verify", how, "--", *words))
        text = " ".join(done.stderr.split())
        if not opened:  # otherwise verify may have seen the open node
            assert done.returncode == 0, done.stderr
            assert "PASS: no CUDA use (1 process checked)" in text
        assert (NOTE in text) != opened
        assert (" opened\n" in done.stdout) == opened


def test_verify_still_lists_ioctls(case):
    """On /dev/null, which can be opened."""
    words = [fence.program("requests_static"), "/dev/null", fence.NVIDIA[0]]
    done = case.start("verify", "--fence=devices", "--", *words)
    assert done.returncode == 1, done.stderr
    assert "ioctl 0xc020462a RM_CONTROL to NVIDIA's driver" in done.stderr
    assert NOTE in " ".join(done.stderr.split())
