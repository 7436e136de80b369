# SPDX-License-Identifier: Apache-2.0
"""verify counts each program that is started, once, however it is started, and says why the guard
is not in it. An execve that fails starts none."""

import errno
import json
import os
import select
import shutil
import signal
import struct
import subprocess

import pytest

from support import fence, fixtures, harness, launcher, machine, nodes
from launcher import test_verify_tree

EXECUTES = launcher.program("executes")
STATIC = launcher.program("static_7")
DYNAMIC = launcher.program("exits_7")
WAYS = ("exec", "child", "vfork", "spawn", "thread", "changing", "fexecve", "empty_path",
        "empty_no_link", "directory", "relative", "memfd", "descriptor", "large", "fills", "search")


make_case = fixtures.lent("case", test_verify_tree.Case)


def account(case, words, options=(), code=0, **more):
    """Runs the words, first without verify. Returns (the result, guarded, unguarded, unknown)."""
    control = harness.run([str(word) for word in words], world="none", guard=False, trace=False)
    result, tree = case.tree(words, options, **more)
    assert (result.out, control.rc) == (control.out, code), "%s\n%s" % (control, result)
    return (result, tree["guarded"], [one["reason"] for one in tree["unguarded"]],
            [one["reason"] for one in tree["unknown"]])


@pytest.mark.parametrize("way", WAYS)
def test_start_counts_once(case, way):
    result, *counts = account(case, [EXECUTES, way, STATIC], code=7)
    assert counts == [1, ["static"], []], str(result)
    result, *counts = account(case, [EXECUTES, way, DYNAMIC], code=7)
    assert counts == [2, [], []], str(result)


@pytest.mark.parametrize(("way", "error"), [
    ("exec", "No such file or directory"), ("exec", "Permission denied"),
    ("exec", "Exec format error"), ("child", "Exec format error"),
    ("child", "No such file or directory"), ("too_large", "Argument list too long"),
    ("too_many", "Argument list too long"), ("written", "Text file busy"),
    ("bad_pointer", "Bad address"), ("spawn", "Not a directory"),
    ("relative", "Permission denied"), ("directory", "No such file or directory"),
    ("exec", "Too many levels of symbolic links"),
    ("no_link", "Too many levels of symbolic links"), ("wrong_flag", "Invalid argument")])
def test_failed_start_counts_as_none_and_keeps_its_error(case, way, error):
    file = {"No such file or directory": case.path("missing"),
            "Permission denied": case.make("plain", "#!/bin/sh\n", 0o644),
            "Exec format error": case.make("format", "\x7fEL"),
            "Not a directory": case.make("file", "") + "/below",
            "Too many levels of symbolic links": case.path("loop") if way == "exec" else STATIC,
            }.get(error) or case.copied("exits_7")
    os.symlink("loop", case.path("loop"))
    result, *counts = account(case, [EXECUTES, way, file], code=99)
    assert counts == [1, [], []], str(result)
    assert result.out == error + "\n", str(result)


@pytest.mark.parametrize("name", ["/dev/fd/99/x", "/proc/self/nothing/x", "/proc/self/exe/", "/dev/fd/"])
def test_name_of_no_file_counts_as_none(case, name):
    result, *counts = account(case, [EXECUTES, "exec", name], code=99)
    assert counts == [1, [], []], str(result)


@pytest.mark.needs("root", "other_users_processes")
@pytest.mark.parametrize("program", [STATIC, DYNAMIC], ids=os.path.basename)
@pytest.mark.parametrize(("place", "file", "code"), [
    (0o700, 0o755, 99), (0o755, 0o744, 99), (0o711, 0o755, 7), (0o755, None, 99)])
def test_start_that_the_user_may_not_make_counts_as_none(case, program, place, file, code):
    """root's verify may execute the file. None: an access control list forbids it to the user."""
    os.mkdir(case.path("place"))
    copy = shutil.copy(program, case.path("place/program"))
    if file:
        os.chmod(copy, file)
    else:
        entries = ((1, 7, -1), (2, 0, 65534), (4, 5, -1), (16, 5, -1), (32, 5, -1))
        try:
            os.setxattr(copy, "system.posix_acl_access", struct.pack("<I", 2) + b"".join(
                struct.pack("<HHi", *entry) for entry in entries))
        except OSError as error:
            pytest.skip("no access control lists here: %s" % error)
    os.chmod(case.path("place"), place)
    case.command = [launcher.public_launcher(), "verify"]
    words = [*machine.AS_NOBODY, harness.public(EXECUTES), "exec", copy]
    result, *counts = account(case, words, code=code)
    starts = code == 7
    assert counts == [2 + (starts and program == DYNAMIC),
                      ["static"] * (starts and program == STATIC), []], str(result)


@pytest.mark.needs("root", "other_users_processes")
def test_look_with_the_rights_of_a_user_keeps_the_parents_death_signal():
    """Linux forgets the signal when a process becomes another user."""
    program = [*machine.AS_NOBODY, "--pdeathsig=KILL",
               "sh", "-c", "env true; echo started; exec sleep 600"]
    script = 'setpriv --pdeathsig=KILL "$@" & echo $!; read line'
    with subprocess.Popen(["sh", "-c", script, "-", launcher.public_launcher(), "verify", "--", *program],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env=launcher.environment()) as shell:
        verify = int(shell.stdout.readline())
        assert shell.stdout.readline() == "started\n"
        end = os.pidfd_open(verify)
        shell.stdin.close()
        ended = select.select([end], [], [], 60)[0] == [end]
        os.close(end)
        if not ended:
            os.kill(verify, signal.SIGKILL)
    assert ended


@pytest.mark.needs("root", "other_users_processes")
@pytest.mark.parametrize(("mode", "closed", "wanted"), [
    (0o755, [], [3, [], []]),
    (0o700, [], [1, [], ["it sent no start beacon"] * 2]),
    (0o600, ["lib", "libcudaguard.so"], [1, [], ["it sent no start beacon"] * 2])],
    ids=["open", "closed", "unreadable"])
def test_guard_that_the_user_may_not_load_cannot_end_in_the_loader(case, mode, closed, wanted):
    """A shell ends as a program that ld.so cannot start, which does not count. The program that
    becomes the user still has root's capabilities when it starts the first one."""
    case.command = [case.installed(), "verify"]
    os.chmod(case.directory, 0o755)
    os.chmod(case.path("install", *closed), mode)
    words = [*machine.AS_NOBODY, "sh", "-c"]
    result, *counts = account(case, [*words, "sh -c 'exit 127'; exit 0"])
    assert counts == wanted, str(result)
    result, *counts = account(case, [*words, "exit 127"], code=127)
    assert counts == [wanted[0] - (mode == 0o755), [], wanted[2][1:]], str(result)


def test_end_after_a_failed_start_is_no_start(case):
    """While a process ends, the kernel shows no memory of it, as after an execve."""
    result, *counts = account(case, [EXECUTES, "slow_end", case.make("format", "\x7fEL")], code=99)
    assert counts == [11, [], []], str(result)


@pytest.mark.parametrize("program", [STATIC, DYNAMIC], ids=os.path.basename)
def test_check_of_a_program_starts_nothing(case, program):
    """AT_EXECVE_CHECK asks only whether the program may be started. An old kernel refuses it."""
    result, *counts = account(case, [EXECUTES, "check", program], code=7)
    assert counts == [1, [], []], str(result)


def test_script_by_a_descriptor_counts_as_its_interpreter(case):
    script = case.make("script.sh", "#!/bin/sh\nexit 7\n")
    result, *counts = account(case, [launcher.program("by_descriptor"), script], code=7)
    assert counts == [2, [], []], str(result)


@pytest.mark.parametrize("name", ["missing_loader", "directory_as_loader", "text_as_loader"])
def test_program_without_a_loader_is_not_started(case, name):
    result, *counts = account(case, [EXECUTES, "exec", launcher.program(name)], code=99)
    assert counts == [1, [], []], str(result)


def test_script_counts_as_its_interpreter(case):
    static = case.copied("become")
    plain = case.make("plain.sh", "#!/bin/sh\nexit 7\n")
    nested = case.make("nested.sh", "#!%s x\n" % plain)
    by_static = case.make("by_static.sh", "#! %s %s\n" % (static, DYNAMIC))
    deepest = by_static
    for i in range(4):  # the kernel allows five scripts
        deepest = case.make("%d.sh" % i, "#!%s\n" % deepest)
    clears = case.make("clears.sh", "#!/usr/bin/env -S -i /bin/sh\nexit 7\n")
    for script, wanted in ((plain, [2, [], []]), (nested, [2, [], []]),
                           (by_static, [2, ["static"], []]), (deepest, [2, ["static"], []]),
                           (clears, [2, ["its environment has no LD_PRELOAD"], []])):
        result, *counts = account(case, [EXECUTES, "child", script], code=7)
        assert counts == wanted, "%s\n%s" % (script, result)


def test_every_short_start_is_counted(case):
    count = 300 if harness.FULL else 60
    script = ('i=0; while [ $i -lt %d ]; do "$0"; "$1"; i=$((i+1)); done; exit 0' % count)
    result, *counts = account(case, ["sh", "-c", script, STATIC, DYNAMIC])
    assert counts == [1 + count, ["static"] * count, []], str(result)


def test_forked_processes_start_nothing(case):
    result, *counts = account(case, ["sh", "-c", "(:; (:) & wait); (:)"])
    assert counts == [1, [], []], str(result)


@pytest.mark.parametrize("name", ["/link", "./link", "bin/up/link", "/../bin/../link"])
def test_start_in_another_root_directory_is_judged_there(case, name):
    """A symbolic link in it begins there."""
    machine.need("change_of_root" if os.geteuid() == 0 else "user_namespaces")
    inside = case.path("root")
    os.makedirs(os.path.join(inside, "bin"))
    shutil.copy(STATIC, os.path.join(inside, "bin", "static"))
    os.symlink("/bin/static", os.path.join(inside, "link"))
    os.symlink("../../..", os.path.join(inside, "bin", "up"))
    # Outside, a dynamic program has this name.
    words = [*(["unshare", "-r"] if os.geteuid() else []), "chroot", inside, name]
    result, *counts = account(case, words, code=7)
    assert counts == [1 if os.geteuid() == 0 else 2, ["static"], []], str(result)


@pytest.mark.parametrize(("name", "is_plain"), [
    ("/proc/self/fd/7", True), ("/dev/fd/7", True), ("/dev/stdin", False), ("/proc/$$/fd/7", False)])
def test_name_that_leads_to_the_caller_is_judged_there(case, name, is_plain):
    """/proc/self is another directory for verify itself. Other links of /proc are a doubt."""
    script = 'exec 7<"$0" 0<&7 && exec %s' % name
    for program, wanted in ((STATIC, [1, ["static"] * is_plain, [
            "verify cannot follow its name"] * (not is_plain)]), (DYNAMIC, [2, [], []])):
        result, *counts = account(case, ["sh", "-c", script, program], code=7)
        assert counts == wanted, str(result)


def in_namespace(script, *words):
    """A shell in a mount namespace, in which case.path("inside") is STATIC. Outside, it is DYNAMIC."""
    machine.need("user_namespaces")
    return ["unshare", "--map-root-user", "--mount", "sh", "-c",
            'mount --bind "$0" "$1" && { %s; }' % script, STATIC, *words]


@pytest.mark.parametrize("name", ["./inside", "./link", "below/../link", "../{0}/inside",
                                  "/proc/self/cwd/link", "/proc/self/root{1}/link"])
@pytest.mark.parametrize("way", ["exec", "directory"])
def test_start_in_another_mount_namespace_is_judged_there(case, way, name):
    """An absolute link begins in its root directory, also after the directory of execveat."""
    inside = case.copied("exits_7", "inside")
    os.symlink(inside, case.path("link"))
    os.mkdir(case.path("below"))
    name = name.format(os.path.basename(case.directory), case.directory)
    script = 'cd "${1%%/*}" && exec "$2" %s "$3"' % way
    words = in_namespace(script, inside, EXECUTES, name)
    result, *counts = account(case, words, code=7)
    assert counts == [4, ["static"], []], str(result)


def test_start_counts_while_files_are_renamed(case):
    """Then the kernel cannot tell whether ".." leads out of a directory, and asks for another try."""
    inside = case.copied("exits_7", "inside")
    os.mkdir(case.path("below"))
    script = ('cd "${1%/*}"; python3 -c "$2" & i=0; '
              'while [ $i -lt 300 ]; do below/../inside; i=$((i + 1)); done; kill $!')
    renames = ("import os\nopen('a', 'w').close()\nshell = os.getppid()\n"
               "while os.getppid() == shell:\n    os.rename('a', 'b')\n    os.rename('b', 'a')\n")
    result, tree = case.tree(in_namespace(script, inside, renames))
    assert len(tree["unguarded"]) == 300 and tree["unknown"] == [], str(result)


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EPERM], ids=errno.errorcode.get)
def test_start_without_openat2_is_judged_where_names_mean_the_same(case, error):
    """Before Linux 5.6 and in an older container. In a namespace, its beacon alone tells."""
    case.command = [fence.program("without"), "openat2=%d" % error, "--", *case.command]
    for program, wanted in ((STATIC, [1, ["static"], []]), (DYNAMIC, [2, [], []])):
        result, *counts = account(case, [EXECUTES, "child", program], code=7)
        assert counts == wanted, str(result)
    words = in_namespace("exec %s", case.copied("exits_7", "inside"))
    for program, wanted in ((STATIC, [0, [], 1]), (DYNAMIC, [1, [], 0])):
        words[5] = 'mount --bind "$0" "$1" && exec %s' % program
        result, guarded, unguarded, unknown = account(case, words, code=7)
        assert [guarded - 3, unguarded, len(unknown)] == wanted, str(result)


@pytest.mark.parametrize("change", ["rmdir ../d", "mount -t tmpfs none ../.."])
def test_start_above_a_lost_directory_in_a_namespace_is_a_doubt(case, change):
    """The name of the working directory leads nowhere, or to another one."""
    inside = case.copied("exits_7", "inside")
    script = 'cd "${1%%/*}"; mkdir -p d; cd d; %s; exec ../inside' % change
    result, guarded, *rest = account(case, in_namespace(script, inside), code=7)
    assert rest == [[], ["verify cannot follow its name"]], str(result)


@pytest.mark.needs("other_users", "user_namespaces")
def test_start_by_a_capability_in_a_user_namespace_is_a_doubt(case):
    """verify has the user's rights, and the program all of them."""
    os.chmod(case.directory, 0o777)
    static = shutil.copy(STATIC, case.path("static"))
    case.command = [*machine.AS_NOBODY, launcher.public_launcher(), "verify"]
    script = ('mkdir "$1/own"; cp "$0" "$1/own/program"; chmod 600 "$1/own"; '
              'unshare --map-root-user "$1/own/program"; code=$?; rm -r "$1/own"; exit $code')
    result, tree = case.tree(["sh", "-c", script, static, case.directory])
    assert [one["reason"] for one in tree["unknown"]] == ["verify cannot follow its name"], str(result)


@pytest.mark.needs("root", "other_users_processes")
@pytest.mark.parametrize(("capability", "place", "name", "code"), [
    ("net_raw", "above", "link", 7), ("dac_override", "other", "{0}/other/program", 7),
    ("net_raw", "other", "{0}/other/program", 99)])
def test_start_in_a_closed_directory_counts(case, capability, place, name, code):
    """A process needs no right to search what is above its working directory, or has a capability."""
    rights = ["--inh-caps=+" + capability, "--ambient-caps=+" + capability]
    os.makedirs(case.path(place, "below"))
    program = shutil.copy(STATIC, case.path(place, "program"))
    public = case.copied("static_7")
    os.symlink(public, case.path(place, "below", "link"))
    os.chmod(case.directory, 0o755)
    os.chmod(case.path(place), 0o700)
    assert os.path.exists(program)
    words = [*machine.AS_NOBODY, *rights,
             harness.public(EXECUTES), "exec", name.format(case.directory)]
    case.command = [launcher.public_launcher(), "verify"]
    result, *counts = account(case, ["env", "-C", case.path(place, "below"), *words], code=code)
    assert counts == [3, ["static"] * (code == 7), []], str(result)


def test_loader_that_ignores_the_guard_is_no_guarded_start(case):
    """The control: with the guard's path, ld.so loads it. If ld.so only lists, nothing starts."""
    loader = harness.loader_of(harness.program("entry_point"))
    exits = launcher.program("exits_0")
    for words, counts in (([loader, exits], [2, [], []]), ([loader, "--list", exits], [1, [], []]),
                          (["env", "LD_PRELOAD=libcudaguard.so", loader, "--argv0", "x", exits, "--list"],
                           [2, [], ["it sent no start beacon"]]),
                          (["env", "LD_PRELOAD=libcudaguard.so", loader, exits],
                           [2, [], ["it sent no start beacon"]])):
        script = ['"$@"; exit 0', "-", *words]
        result, tree = case.tree(["sh", "-c", *script])
        assert [tree["guarded"], [one["reason"] for one in tree["unguarded"]],
                [one["reason"] for one in tree["unknown"]]] == counts, str(result)


def test_names_of_nvidia_are_found_in_an_unguarded_file(case):
    for name, names in (("static_7", False), ("hello_driver", True)):
        _, tree = case.tree([EXECUTES, "child", launcher.program(name)])
        assert [one["names_nvidia"] for one in tree["unguarded"]] == [names], str(tree)
    # Our own launcher has all these names.
    _, tree = case.tree([EXECUTES, "child", launcher.LAUNCHER, "--version"])
    assert (tree["unguarded"], tree["unknown"]) == ([], []), str(tree)


@pytest.mark.parametrize(("number", "code"), [("1 3", 0), ("4000 255", 3)])
def test_node_without_a_driver_tells_of_no_ioctl(case, number, code):
    """Only an ioctl would show that an unguarded program that names NVIDIA asked for CUDA."""
    words = [launcher.LAUNCHER, "verify", "--", EXECUTES, "child", launcher.program("hello_driver")]
    done = case.unguarded(*nodes.in_private_dev(
        *words, fakes="mknod -m 666 /dev/nvidiactl c %s\n" % number))
    assert done.returncode == code, done.stderr


@pytest.mark.parametrize(("text", "names"), [("/dev/nvidiactl", True), ("nothing", False)])
def test_names_of_nvidia_are_found_in_what_really_runs(case, text, names):
    """In the text of a script, and in the program that ld.so got."""
    script = case.make("script", "#!/bin/sh\n: %s\nexit 7\n" % text)
    nested = case.make("nested", "#!%s\n" % script)
    program = case.copied("exits_7")
    with open(program, "ab") as stream:
        stream.write(text.encode())
    loader = harness.loader_of(program)
    for words in ([script], [nested], [loader, "--argv0", "x", program]):
        _, tree = case.tree(["env", "-i", *words])
        assert [one["names_nvidia"] for one in tree["unguarded"]] == [names], (words, tree)
        _, tree = case.tree(["env", "CUDAGUARD_POLICY=OFF", *words])
        assert [one["names_nvidia"] for one in tree["unguarded"]] == [names], (words, tree)


@pytest.mark.parametrize("variables", [(), ("CUDAGUARD_POLICY=OFF",)], ids=lambda some: str(len(some)))
def test_guard_that_announces_nothing_is_a_doubt(case, variables):
    words = ["env", "-u", "CUDAGUARD_HELLO", *variables, launcher.program("exits_0")]
    result, *counts = account(case, words)
    assert counts == [1, [], ["its environment has no CUDAGUARD_HELLO=1"]], str(result)
    assert result.rc == 3, str(result)


@pytest.mark.needs("root", "other_users_processes")
@pytest.mark.parametrize(("call", "control"), [
    ("setresgid(-1, 65534, -1)", "setresgid(65534, 65534, -1)"),
    ("setresuid(-1, 65534, -1)", "setresuid(-1, -1, 65534)")])
@pytest.mark.parametrize("code", [0, 7])
def test_program_with_another_effective_user_is_unguarded(case, call, control, code):
    """Its ld.so ignores LD_PRELOAD. The control changes the real group, too, or the saved user,
    because another real user may not reach the guard."""
    program = case.copied("exits_%d" % code)
    for changed, wanted in ((call, [1, ["its effective user or group is not the real one"], []]),
                            (control, [2, [], []])):
        text = "import os\nos.%s\nos.execv(%r, [%r])\n" % (changed, program, program)
        result, *counts = account(case, case.python(text), code=code)
        assert counts == wanted, (changed, str(result))


@pytest.mark.needs("root", "setuid_programs")
@pytest.mark.parametrize(("before", "counts"), [
    ((), True), (("setpriv", "--no-new-privs"), False), (("unshare", "-r"), False)],
    ids=["plain", "no_new_privs", "user_namespace"])
def test_setuid_program_is_unguarded_only_if_its_rights_count(case, before, counts):
    """In a user namespace that lacks its owner they do not, and the start beacon shows it. Without
    CAP_SYS_ADMIN, as in a container, verify's own filter takes them (no_new_privs)."""
    if "unshare" in before:
        machine.need("user_namespaces")
    counts = counts and not machine.missing("roots_filters")
    program = case.copied("exits_0")
    os.chown(program, 65534, 65534)
    os.chmod(program, 0o4755)
    done = case.unguarded(launcher.LAUNCHER, "verify", "--", "env", *before, program)
    assert done.returncode == 0, done.stderr
    assert ("exits_0 (setuid)" in done.stderr) == counts, done.stderr
    assert ("unguarded" in done.stderr) == counts, done.stderr


@pytest.mark.needs("root", "other_users_processes")
@pytest.mark.parametrize("before", [(), ("--no-new-privs",)], ids=["plain", "no_new_privs"])
@pytest.mark.parametrize(("rights", "wanted"), [
    ("ep", "2 programs started: 1 guarded, 1 unguarded: PROGRAM (file capabilities)"),
    ("i", "2 programs started: 2 guarded")])
def test_program_with_capabilities_is_unguarded(case, rights, wanted, before):
    """Also under no_new_privs, which the filter of an ordinary user's verify needs. The control
    could only inherit them."""
    machine.need("file_capabilities")
    program = case.copied("exits_0")
    machine.give_capability(program, rights)
    words = [*machine.AS_NOBODY, *before, program]
    done = case.unguarded(launcher.public_launcher(), "verify", "--", *words)
    assert (" ".join(done.stderr.split()), done.returncode) == (
        "cudaguard: PASS: no CUDA use (1 process checked) " + wanted.replace("PROGRAM", program),
        0), done.stderr


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="its 32-bit programs are x86's")
def test_32_bit_loader_that_lists_starts_nothing(case):
    """ldd calls each ld.so of the system, and the program itself."""
    static = launcher.program("i386_static")
    loader = shutil.copy(static, case.path("ld-linux.so.2"))
    dynamic = launcher.program("i386_dynamic")
    for words, wanted in (([loader, "--verify", dynamic], []), ([loader, dynamic], ["32-bit"]),
                          ([loader], []), ([static, "--verify"], ["32-bit"]),
                          (["env", "LD_TRACE_LOADED_OBJECTS=1", dynamic], []),
                          (["env", "LD_TRACE_LOADED_OBJECTS=1", static], ["32-bit"])):
        result, tree = case.tree(["sh", "-c", '"$@"; exit 0', "-", *words])
        assert [one["reason"] for one in tree["unguarded"]] == wanted, (words, str(result))
        assert tree["unknown"] == [], (words, str(result))


def test_start_without_a_beacon_is_unknown(case):
    """The library has the guard's name only. The guard itself is the control."""
    other = harness.program("idle-guard/libcudaguard.so")
    for guard, wanted in ((other, ["it sent no start beacon"]), (harness.GUARD, [])):
        result, tree = case.tree(["env", "LD_PRELOAD=" + guard, DYNAMIC])
        assert [one["reason"] for one in tree["unknown"]] == wanted, str(result)


def test_environment_that_changes_meanwhile_is_unknown(case):
    """Another thread changes LD_PRELOAD after verify has read it, or before: the file that it names
    then is not there. The counts agree with what the program has got."""
    count = 200 if harness.FULL else 30
    script = 'i=0; while [ $i -lt %d ]; do "$0" changes_preload "$1"; i=$((i+1)); done' % count
    result, tree = case.tree(["sh", "-c", script + "; exit 0", EXECUTES, launcher.program("exits_0")])
    rest = [one["reason"] for one in tree["unguarded"] + tree["unknown"]]
    assert tree["guarded"] == tree["start_records"] == tree["started"] - len(rest), str(result)
    # One that was seen in ld.so at the last look is not counted (tests/lab/limits.md).
    assert 1 + count <= tree["started"] <= 1 + 2 * count, str(result)
    assert result.rc == (3 if tree["unknown"] else 0), str(result)


def test_forged_beacons_change_no_count(case):
    send = "libc.syscall(39, ctypes.c_ulong(0x6375646167756172), 1, 1, 0)\n"
    text = ("import ctypes, os\nlibc = ctypes.CDLL(None)\n"
            "for _ in range(100): %sif os.fork() == 0:\n    %s    os._exit(0)\nos.wait()\n"
            % (send, send))
    result, *counts = account(case, case.python(text))
    assert counts == [1, [], []], str(result)


@pytest.mark.needs("other_users")
def test_start_that_cannot_be_read_is_unknown_unless_its_beacon_comes(case):
    """As root in a container without the right to trace: only another user's memory is closed."""
    command = case.installed()
    path = case.path("verify.json")
    nobody = [*machine.AS_NOBODY, "--"]
    reason = "started by user 65534, whose memory cannot be read"
    for name, wanted, code in (("static_0", [1, [reason]], 3), ("exits_0", [2, []], 0)):
        done = case.unguarded("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-all", "--",
                              command, "verify", "--json", path, "--", *nobody, case.copied(name))
        with open(path, encoding="utf-8") as stream:
            tree = json.load(stream)["tree"]
        assert [tree["guarded"], [one["reason"] for one in tree["unknown"]]] == wanted, str(done)
        assert (tree["unguarded"], done.returncode) == ([], code), str(done)


@pytest.mark.needs("ordinary_user")
def test_start_by_a_process_that_is_not_dumpable_is_unknown_unless_its_beacon_comes(case):
    """The kernel shows only root the memory of such a process."""
    path = case.path("verify.json")
    os.chmod(case.directory, 0o777)
    command = [*case.ordinary_user(), "verify", "--json", path, "--", "python3", "-c",
               "import ctypes, os, sys\nctypes.CDLL(None).prctl(4, 0)\n"
               "os.execv(sys.argv[1], sys.argv[1:])"]
    reason = "started by a process that does not let others look at its memory"
    for name, wanted, code in (("static_0", [1, [], [reason]], 3), ("exits_0", [2, [], []], 0)):
        done = case.unguarded(*command, case.copied(name), env=launcher.environment(TMPDIR="/tmp"))
        tree = json.loads(harness.read(path))["tree"]
        counts = [tree["guarded"], *([one["reason"] for one in tree[kind]]
                                     for kind in ("unguarded", "unknown"))]
        assert (counts, done.returncode) == (wanted, code), str(done)
        os.unlink(path)
