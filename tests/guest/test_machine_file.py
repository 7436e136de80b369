# SPDX-License-Identifier: Apache-2.0
"""/etc/cudaguard.conf and /etc/cudaguard.conf.d, in a sandbox with an /etc of its own. Only root can
make files that root owns, so these tests need root."""

import os
import re
import shutil
import stat
import threading

import pytest

from lab import pages
from support import fixtures, guest, harness, launcher, machine, messages, policies

CONF = "/etc/cudaguard.conf"
OFF = {"CUDAGUARD_POLICY": "OFF"}
PASSWD = "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/:/bin/sh\nbob:x:1001:1001::/:/bin/sh\n"
GROUP = "root:x:0:\ngpu:x:44:alice\nalice:x:1000:\nbob:x:1001:\n"
ALICE = ["setpriv", "--reuid=1000", "--regid=1000", "--groups=44"]
BOB = ["setpriv", "--reuid=1001", "--regid=1001", "--clear-groups"]


class Case(guest.Case):
    def setUp(self):
        super().setUp()
        machine.need("root", "sandbox")
        self.need("setpriv", "unshare")
        os.mkdir(self.path("etc"))
        os.chmod(self.path("etc"), 0o755)
        self.etc("passwd", PASSWD)
        self.etc("group", GROUP)
        # Every user can read the copies.
        self.smi = shutil.copy(guest.STEPS, self.path("smi"))
        self.guard = harness.copy_install(self.path("lib"))

    def etc(self, name, text, mode=0o644):
        return self.make("etc/" + name, text, mode)

    def ask(self, *words, program=harness.public(guest.STEPS), steps=("ask",), **env):
        """Runs the program, after `words`, and returns its result."""
        return harness.run([*words, program, *steps], guard=False, preload=[self.guard],
                           env={"LD_LIBRARY_PATH": harness.public(harness.FAKE_DRIVER), **env},
                           trace=False, bwrap=["--bind", self.path("etc"), "/etc",
                                               "--dev-bind", "/dev/null", "/dev/null"])

    def allowed(self, *words, **options):
        result = self.ask(*words, **options)
        assert (result.answers.get("cuInit"), result.rc) == ("0", 0), str(result)
        assert "cuInit" in result.fake_calls, str(result)
        return result

    def refused(self, *words, cause=CONF + ":1", **options):
        """The one line names the cause."""
        result = self.ask(*words, **options)
        assert (result.answers.get("cuInit"), result.rc) == ("100", 0), str(result)
        assert result.fake_calls == [], str(result)
        assert len(messages.find(result.err, "no_cuda", cause=cause)) == 1, str(result)
        return result


make_case = fixtures.lent("case", Case)


def test_control_without_the_file_the_environment_decides(case):
    """The directory alone counts for nothing."""
    case.etc("cudaguard.conf.d/1.conf", "FORCE_CPU\n")
    case.allowed(**OFF)
    case.refused(cause="FORCE_CPU")


def test_program_is_exempted_by_its_path(case):
    case.etc("cudaguard.conf", "# Login node.\nFORCE_CPU\nVALIDATE program=%s\n" % case.smi)
    case.allowed(program=case.smi)
    result = case.refused(cause=CONF + ":2")
    # No variable lifts the rule, so the message advises none.
    assert "to allow" not in result.err, str(result)


def test_rule_needs_the_path_that_a_link_leads_to(case):
    """Debian's /usr/bin/nvidia-smi is such a link."""
    link = case.path("link")
    os.symlink(case.smi, link)
    case.etc("cudaguard.conf", "FORCE_CPU\nVALIDATE program=%s\n" % link)
    case.refused(program=link)
    case.etc("cudaguard.conf", "FORCE_CPU\nVALIDATE program=%s\n" % os.path.realpath(link))
    case.allowed(program=link)


@pytest.mark.parametrize(("rule", "who"), [
    ("user=alice", "alice"), ("user=1000", "alice"), ("group=gpu", "alice"), ("group=44", "alice"),
    ("args=*ask*", "all"), ("cgroup=*", "all"), ("program=steps", "all"), ("user=carol", "none")])
def test_keys_of_a_rule(case, rule, who):
    case.etc("cudaguard.conf", "FORCE_CPU\nVALIDATE %s\n" % rule)
    if rule == "cgroup=*" and not os.path.exists("/proc/self/cgroup"):
        harness.skip(case, "needs a kernel with cgroups")
    for name, words in (("alice", ALICE), ("bob", BOB)):
        if who in (name, "all"):
            case.allowed(*words)
        else:
            case.refused(*words)


@pytest.mark.parametrize("rules", [
    "FORCE_CPU\nVALIDATE program=%s", "FORCE_CPU\nVALIDATE user=alice", "OFF\nFORCE_CPU group=gpu",
    "FORCE_CPU user=alice",
    "OFF\nFORCE_CPU user=carol", "VALIDATE\nFORCE_CPU program=%s args=*ask", "OFF program=/other",
    "FORCE_CPU\nVALIDATES", "FORCE_CPU\nVALIDATE gpus=0 user=bob # %s"])
def test_system_check_says_what_the_guard_does(case, rules):
    case.etc("cudaguard.conf", rules.replace("%s", case.smi) + "\n")
    for user, words in (("alice", ALICE), ("bob", BOB)):
        guarded = case.ask(*words, program=case.smi)
        checked = case.ask(program=launcher.LAUNCHER, steps=(
            "system", "check", "--user", user, "--program", case.smi, "--args", case.smi + " ask"))
        refused = "policy: FORCE_CPU\n" in checked.out
        assert guarded.answers["cuInit"] == ("100" if refused else "0"), str(checked)
        if refused:
            (place,) = re.findall(r"(?m)^rule: (.*conf(?::\d+)?)", checked.out)
            assert "(%s;" % place in guarded.err, str(guarded)


@pytest.mark.parametrize(("key", "file"), [("user=carol", "passwd"), ("group=staff", "group")])
def test_unknown_name_narrows_a_process_whose_own_name_is_unknown(case, key, file):
    """Only a directory service, which is away, may know both names. Everybody else has CUDA."""
    key, name = key.split("=")
    case.etc("cudaguard.conf", "OFF\nFORCE_CPU %s=%s\n" % (key, name))
    for words in ((), ALICE, BOB):
        case.allowed(*words)
    stranger = ["setpriv", "--reuid=1009", "--regid=1009", "--clear-groups"]
    result = case.refused(*stranger, cause=CONF + ":2")
    assert len(messages.find(result.err, "unknown_name", key=key, word=name,
                             file="/etc/" + file)) == 1, str(result)
    case.etc("cudaguard.conf", "OFF\nFORCE_CPU user=bob\n")
    case.refused(*BOB, cause=CONF + ":2")
    case.allowed(*ALICE)
    case.allowed(*stranger)


def test_rules_of_the_page_refuse_one_user_and_change_nothing_for_others(case):
    """docs/rules.md. The control is the second rule alone, against which the page warns."""
    page = harness.read("docs", "rules.md")
    rules = pages.block(page, having="user=ci").replace("user=ci", "user=bob")
    case.etc("cudaguard.conf", rules)
    case.refused(*BOB, cause=CONF + ":3")
    for words in ((), ALICE):
        assert case.allowed(*words).err == ""
    case.etc("cudaguard.conf", "FORCE_CPU user=bob\n")
    case.refused(*ALICE, cause="no rule of " + CONF)


@pytest.mark.parametrize(("file", "key"), [("passwd", "user"), ("group", "group")])
def test_pipe_in_the_place_of_a_file_of_names_stops_no_program(case, file, key):
    """Its writer never comes. The names are then not known."""
    case.etc("cudaguard.conf", "OFF\nFORCE_CPU %s=alice\n" % key)
    case.allowed()
    os.remove(case.path("etc", file))
    os.mkfifo(case.path("etc", file))
    case.refused("timeout", "60", cause=CONF + ":2")


def test_command_line_of_a_process_whose_first_thread_has_ended_is_not_known(case):
    """/proc shows an empty one."""
    program = shutil.copy(launcher.program("first_ends"), case.path("first_ends"))
    for rule, reached in (("FORCE_CPU args=*first_ends*", False), ("FORCE_CPU user=7", True)):
        case.etc("cudaguard.conf", "VALIDATE\n%s\n" % rule)
        result = case.ask(program=program, steps=())
        assert ("cuInit" in result.fake_calls, result.rc) == (reached, 0), str(result)


def test_path_of_a_program_that_was_replaced_is_not_known(case):
    """An upgrade replaces the file, and /proc then shows another name."""
    start = ("import os, sys; file = os.open(sys.argv[1], os.O_RDONLY); os.remove(sys.argv[1]); "
             "os.execve(file, ['x', 'ask'], os.environ)")

    def replaced(ask, **options):
        copy = shutil.copy(case.smi, case.path("copy"))
        return ask(program=guest.PYTHON, steps=("-c", start, copy), **options)

    case.etc("cudaguard.conf", "OFF\nFORCE_CPU program=/other\n")
    case.allowed()
    replaced(case.refused, cause=CONF + ":2")
    case.etc("cudaguard.conf", "OFF\n")
    replaced(case.allowed)


@pytest.mark.parametrize("env", [OFF, {"CUDAGUARD_POLICY": "VALIDATE"},
                                 {"CUDAGUARD_VISIBLE_DEVICES": "0"}, {"CUDAGUARD_RULES": "OFF"}])
def test_environment_widens_only_where_the_file_says_so(case, env):
    case.etc("cudaguard.conf", "FORCE_CPU\n")
    assert "to allow" not in case.refused(**env).err
    case.etc("cudaguard.conf", "FORCE_CPU environment=may-widen\n")
    case.allowed(**env)
    assert messages.find(case.refused().err, "no_cuda", remedy="CUDAGUARD_POLICY=OFF")


def test_no_rule_matches(case):
    case.etc("cudaguard.conf", "OFF program=/other\n")
    case.refused(cause="no rule of " + CONF, **OFF)
    case.etc("cudaguard.conf", "")
    case.refused(cause="no rule of " + CONF, **OFF)


def test_files_of_the_directory_follow_in_the_order_of_their_names(case):
    case.etc("cudaguard.conf", "FORCE_CPU\n")
    case.etc("cudaguard.conf.d/20-b.conf", "\nFORCE_CPU\n")
    case.etc("cudaguard.conf.d/10-a.conf", "OFF\n")
    for ignored in ("30-c.conf.rpmsave", ".40.conf", "50"):
        case.etc("cudaguard.conf.d/" + ignored, "OFF\n")
    case.refused(cause=CONF + ".d/20-b.conf:2")
    case.etc("cudaguard.conf.d/3.conf", "OFF\n")
    case.allowed()


def test_report_and_log_of_a_rule(case):
    os.mkdir(case.path("spool"))
    os.chmod(case.path("spool"), 0o1733)
    case.etc("cudaguard.conf", "FORCE_CPU log=off report=%s\n" % case.path("spool", "%u"))
    result = case.ask(CUDAGUARD_REPORT=case.path("other"))
    assert result.err == "", str(result)
    assert harness.records(case.path("spool", "0"))[-1]["api"] == "cuInit"
    assert not os.path.exists(case.path("other"))
    assert len(messages.find(case.ask(CUDAGUARD_LOG="deny").err, "no_cuda")) == 1


@pytest.mark.parametrize(("rules", "env", "rule"), [
    ("FORCE_CPU", {}, CONF + ":1"), ("# x\nVALIDATE", {}, CONF + ":2"),
    ("VALIDATE", {"CUDAGUARD_POLICY": "FORCE_CPU"}, None),
    ("VALIDATE", {"CUDAGUARD_RULES": "FORCE_CPU user=0; # x"}, "FORCE_CPU user=0"),
    ("VALIDATE", {"CUDAGUARD_CHILDREN": "FORCE_CPU", "CUDAGUARD_ROOT": "1"}, None),
    ("FORCE_CPU environment=may-widen", {"CUDAGUARD_POLICY": "VALIDATE"}, None)])
def test_record_names_the_rule_that_decided(case, rules, env, rule):
    case.etc("cudaguard.conf", rules + "\n")
    case.ask(CUDAGUARD_REPORT=case.path("report"), **env)
    assert {record.get("rule") for record in harness.records(case.path("report"))} == {rule}


def test_list_of_a_rule(case):
    """The fake driver has one GPU."""
    case.etc("cudaguard.conf", "VALIDATE gpus=0\n")
    case.allowed()
    case.allowed(CUDAGUARD_VISIBLE_DEVICES="0")
    case.refused(cause=re.compile("two lists.*"), CUDAGUARD_VISIBLE_DEVICES="1")
    for where, env in (("conf", {}), ("variable", {"CUDAGUARD_RULES": "VALIDATE gpus=0,7"})):
        case.etc("cudaguard.conf", "VALIDATE%s\n" % (" gpus=0,7" if where == "conf" else ""))
        result = case.ask(**env)
        assert result.answers["cuInit"] == "100", str(result)
        place = CONF + ":1: " if where == "conf" else ""
        assert ']: %sgpus="0,7": entry 2 "7" does not exist' % place in result.err, str(result)
        assert len(messages.find(result.err, "no_cuda", cause="gpus= is not accepted")) == 1


def test_program_cannot_name_another_report_than_the_rule(case):
    """A forked child cannot, either."""
    steps = ("ask", "watch:" + case.path("other"), "watch", "ask", "fork",
             "watch:" + case.path("other"), "ask", "end")
    case.etc("cudaguard.conf", "FORCE_CPU report=%s\n" % case.path("rules"))
    result = case.ask(steps=steps)
    assert re.findall(r"watch=(-?\d+)", result.out) == ["-1", "1", "-1"], str(result)
    assert len(harness.records(case.path("rules"))) == 3
    assert not os.path.exists(case.path("other"))
    # Control: a rule without report=.
    case.etc("cudaguard.conf", "FORCE_CPU\n")
    assert case.ask(steps=steps).rc == 0
    assert len(harness.records(case.path("other"))) == 2


def test_pytest_plug_in_needs_the_records(case):
    test = case.make("test_none.py", "def test_none(): pass\n")
    options = ("-m", "pytest", "-q", "-p", "cudaguard.pytest_plugin", "--cudaguard", test)
    env = {"PYTHONPATH": os.path.join(harness.SOURCE, "shim", "python")}
    case.etc("cudaguard.conf", "FORCE_CPU report=%s\n" % case.path("rules"))
    result = case.ask(program=guest.PYTHON, steps=options, **env)
    assert (result.rc, "has report=" in result.err) == (4, True), str(result)
    assert "start the tests" not in result.err, "the same command would fail again\n%s" % result
    case.etc("cudaguard.conf", "FORCE_CPU\n")
    assert case.ask(program=guest.PYTHON, steps=options, **env).rc == 0


def refused_with(case, file, reason, *words, **options):
    """Even under OFF. The message about the file is printed once."""
    result = case.refused(*words, cause=file, **OFF, **options)
    assert len(messages.find(result.err, "conf_not_used", file=file, reason=reason)) == 1, str(result)


OTHERS = "others than root can write it"
UNSAFE = {
    "another owner": (lambda path: os.chown(path, 1000, 0), "root does not own it"),
    "group may write": (lambda path: os.chmod(path, 0o775), OTHERS),
    "others may write": (lambda path: os.chmod(path, 0o757), OTHERS)}
KINDS = {
    "link": (lambda path: os.symlink("/etc/other", path), "it is a symbolic link"),
    "dangling": (lambda path: os.symlink("/nothing", path), "it is a symbolic link"),
    "FIFO": (os.mkfifo, "it is not a regular file"),
    "directory": (os.mkdir, "it is not a regular file"),
    "socket": (lambda path: os.mknod(path, 0o644 | stat.S_IFSOCK), "it cannot be read")}


@pytest.mark.parametrize("name", ["cudaguard.conf", "cudaguard.conf.d/1.conf"])
@pytest.mark.parametrize("kind", [*UNSAFE, *KINDS])
def test_unsafe_file_is_not_used(case, kind, name):
    for file in ("other", "cudaguard.conf", "cudaguard.conf.d/0.conf", name):
        path = case.etc(file, "OFF\n")
    case.allowed()
    change, reason = {**UNSAFE, **KINDS}[kind]
    if kind in KINDS:
        os.remove(path)
    change(path)
    refused_with(case, "/etc/" + name, reason)


@pytest.mark.parametrize("name", ["cudaguard.conf", "cudaguard.conf.d/1.conf"])
def test_file_that_a_user_cannot_read_is_not_used(case, name):
    for file in ("cudaguard.conf", name):
        os.chmod(case.etc(file, "OFF\n"), 0o600 if file == name else 0o644)
    case.allowed()
    refused_with(case, "/etc/" + name, "it cannot be read", *BOB)


@pytest.mark.parametrize("kind", UNSAFE)
def test_unsafe_directory_is_not_used(case, kind):
    change, reason = UNSAFE[kind]
    case.etc("cudaguard.conf", "OFF\n")
    os.mkdir(case.path("etc", "cudaguard.conf.d"))
    case.allowed()
    change(case.path("etc", "cudaguard.conf.d"))
    refused_with(case, CONF + ".d", reason)
    os.rmdir(case.path("etc", "cudaguard.conf.d"))
    change(case.path("etc"))
    refused_with(case, CONF, reason.replace(" it", " its directory"))


def test_garbage_is_not_used(case):
    """A mebibyte that begins with a good rule."""
    case.etc("cudaguard.conf", b"OFF\n" + bytes(range(256)) * 4096)
    refused_with(case, CONF, "all files are longer than 64 KiB")
    case.etc("cudaguard.conf", b"OFF\n" + bytes(range(256)) * 200)
    result = case.ask(**OFF)
    assert result.answers["cuInit"] == "100", str(result)
    assert len(messages.find(result.err, "rule_wrong")) == 1, str(result)
    # As many rules as fit.
    rules = "FORCE_CPU\n" * 6553 + "OFF\n"
    case.etc("cudaguard.conf", "#\n" + rules)
    case.allowed()
    case.etc("cudaguard.conf.d/1.conf", "")
    case.allowed()
    case.etc("cudaguard.conf.d/1.conf", "\n")
    refused_with(case, CONF + ".d/1.conf", "all files are longer than 64 KiB")


def test_line_with_a_mistake_is_force_cpu_and_is_named(case):
    case.etc("cudaguard.conf", "OFF\nVALIDATES program=x\n")
    result = case.refused(cause=CONF + ":2", **OFF)
    wrong = messages.text(
        "rule_wrong", place=CONF + ":2",
        mistake='"VALIDATES" is not accepted (accepted: %s)' % policies.ACCEPTED)
    assert wrong in guest.lines_of(result.err), str(result)
    case.etc("cudaguard.conf", "VALIDATES program=x\nOFF\n")
    case.allowed()


def test_process_without_descriptors_knows_whether_there_is_a_file(case):
    steps = ("ask", "fork", "nofile:0", "ask", "nofile:max", "end")
    case.etc("cudaguard.conf", "OFF\n")
    result = case.ask(steps=("nofile:0", "ask", "nofile:max", "ask"), **OFF)
    assert "cuInit=0" not in result.out, str(result)
    assert case.ask(steps=steps, **OFF).rc == 0


def test_file_in_a_user_namespace_is_not_used(case):
    """Its owner is another user there. A sandbox of a user therefore never gets more."""
    case.etc("cudaguard.conf", "OFF\n")
    case.allowed("unshare", "--mount")
    for option in "--user", "--map-root-user":
        refused_with(case, CONF, "root does not own it", *BOB, "unshare", option)


# Runs a command as a user of group 1000 and one more group, in a user namespace that maps root, group
# 1000 and one user, as systemd's PrivateUsers= does.
PRIVATE_USERS = """import ctypes, os, sys
user, group, mapped = map(int, sys.argv[1:4])
asked, written = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    os.setgroups([group])
    os.setgid(1000)
    os.setuid(user)
    assert ctypes.CDLL(None).unshare(0x10000000) == 0
    os.write(asked[1], b"x")
    os.read(written[0], 1)
    os.execv(sys.argv[4], sys.argv[4:])
os.read(asked[0], 1)
for name, number in (("uid_map", mapped), ("gid_map", 1000)):
    with open(f"/proc/{child}/{name}", "w") as stream:
        stream.write(f"0 0 1\\n{number} {number} 1\\n")
os.write(written[1], b"x")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_user_or_group_that_a_namespace_does_not_map_is_not_known(case):
    """The file counts, because root is mapped. But the kernel shows every user and group that is not
    mapped as 65534, so alice and her group cannot be told from others."""
    for rule, other, unmapped in (("group=gpu", ("1000", "1000", "1000"), ("1000", "44", "1000")),
                                  ("user=alice", ("1001", "1000", "1001"), ("1000", "1000", "1001"))):
        case.etc("cudaguard.conf", "OFF\nFORCE_CPU %s\n" % rule)
        case.allowed(guest.PYTHON, "-c", PRIVATE_USERS, *other)
        case.refused(guest.PYTHON, "-c", PRIVATE_USERS, *unmapped, cause=CONF + ":2")
    # In the machine's own namespace, 65534 is a user and a group like others.
    case.allowed(*machine.AS_NOBODY)


def test_chroot_of_a_child_changes_nothing(case):
    """The file is read once, so the child needs none."""
    case.etc("cudaguard.conf", "FORCE_CPU\n")
    child = ("import ctypes, os, sys; ask = lambda: ctypes.CDLL('libcuda.so.1').cuInit(0); "
             "print('cuInit=%d' % ask(), flush=True); pid = os.fork(); "
             "(pid or (os.chroot(sys.argv[1]), print('child=%d' % ask(), flush=True), os._exit(0))); "
             "os.waitpid(pid, 0)")
    os.mkdir(case.path("empty"))
    result = case.ask(program=guest.PYTHON, steps=("-c", child, case.path("empty")), **OFF)
    assert result.answers == {"cuInit": "100", "child": "100"}, str(result)


def test_limit_process_that_changes_its_user_keeps_its_rule(case):
    """So does its forked child. After exec, the new user counts."""
    case.etc("cudaguard.conf", "FORCE_CPU\nVALIDATE user=root\n")
    script = ("import ctypes, os, sys; ctypes.CDLL('libm.so.6'); os.setuid(1000); pid = os.fork(); "
              "os.write(1, b'%s=%d\\n' % (b'later' if pid else b'child',"
              " ctypes.CDLL('libcuda.so.1').cuInit(0))); "
              "pid or os._exit(0); os.waitpid(pid, 0); os.execv(sys.argv[1], ['smi', 'ask'])")
    result = case.ask(program=guest.PYTHON, steps=("-c", script, case.smi))
    assert result.answers == {"later": "0", "child": "0", "cuInit": "100"}, str(result)


def test_program_in_a_chroot_obeys_the_file_there(case):
    start = 'mount --rbind / "$1" && mount --bind "$2" "$1/etc" && shift 2 && exec chroot "$0" "$@"'
    os.mkdir(case.path("root"))
    other = shutil.copytree(case.path("etc"), case.path("other-etc"))
    words = ["unshare", "--mount", "sh", "-c", start, case.path("root"), case.path("root"), other]
    case.etc("cudaguard.conf", "FORCE_CPU\n")
    case.allowed(*words, **OFF)
    case.etc("cudaguard.conf", "OFF\n")
    conf = case.etc("../other-etc/cudaguard.conf", "# the other\nFORCE_CPU\n")
    case.refused(*words, cause=CONF + ":2")
    os.chown(conf, 1000, 0)
    refused_with(case, CONF, "root does not own it", *words)


def test_file_that_is_replaced_while_programs_start_never_allows_more(case):
    """Both files refuse this program, each by another line."""
    texts = {"2": "OFF\nFORCE_CPU program=steps\n",
             "8002": "# x\n" * 8000 + "OFF\nFORCE_CPU program=/*/steps\n"}
    path = case.etc("cudaguard.conf", texts["2"])
    done = threading.Event()

    def change():
        while not done.is_set():
            for text in texts.values():
                os.rename(case.etc("new", text), path)

    count = 2000 if harness.FULL else 100
    many = 'for i in $(seq %d); do "$@" || exit; done' % count
    seen = set()
    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(100):  # until each of the files has decided
            result = case.ask("sh", "-c", many, "sh", **OFF)
            assert (result.rc, result.fake_calls) == (0, []), str(result)
            assert result.out == "cuInit=100\n" * count, str(result)
            seen.update(message["cause"] for message in messages.find(result.err, "no_cuda"))
            if len(seen) == len(texts):
                break
    finally:
        done.set()
        thread.join()
    assert seen == {CONF + ":" + line for line in texts}


def test_launcher_narrows_what_the_file_allows(case):
    case.etc("cudaguard.conf", "VALIDATE\n")
    run = [launcher.LAUNCHER, "run"]
    case.allowed(*run, "--policy", "OFF", "--")
    case.refused(*run, "--", cause="FORCE_CPU")
    case.etc("cudaguard.conf", "FORCE_CPU\n")
    case.refused(*run, "--policy", "OFF", "--")
    case.refused(*run, "--rule", "OFF", "--")


@pytest.mark.parametrize(("rule", "child"), [
    ("VALIDATE", "0"), ("FORCE_CPU", "100"), ("VALIDATE user=bob", "100")])
def test_children_gpu_narrows_what_the_file_allows(case, rule, child):
    """The program gets nothing, and its forked and started children get what the file allows."""
    case.etc("cudaguard.conf", rule + "\n")
    run = [launcher.LAUNCHER, "run", "--children=gpu", "--"]
    result = case.ask(*run, steps=("ask", "fork", "ask", "end"))
    assert result.out.split()[:2] == ["cuInit=100", "cuInit=" + child], str(result)
    assert result.fake_calls.count("cuInit") == (child == "0"), str(result)
    result = case.ask(*run, "sh", "-c", '"$@"; exit $?', "sh")
    assert result.answers == {"cuInit": child}, str(result)
