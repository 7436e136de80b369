# SPDX-License-Identifier: Apache-2.0
"""Records of a machine: a spool directory with a file for each user and day, and syslog. What other
users put there, a full disk and an absent listener lose the record and nothing else."""

import datetime
import json
import os
import re
import socket
import stat
import threading

import pytest

from support import fixtures, guest, harness, launcher, machine, messages

ROOT = []
ALICE = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"]
BOB = ["setpriv", "--reuid=1001", "--regid=1001", "--clear-groups"]
RECORDS = guest.binary("records")
KINDS = 7  # what programs/records.c asks for
MOST = 8192  # bytes of a datagram


class Case(guest.Case):
    def setUp(self):
        super().setUp()
        machine.need("other_users")
        self.need("setpriv", "unshare", "mount")
        self.guard = harness.copy_install(self.path("lib"))  # every user can read it
        self.spool = self.path("spool")
        self.new_spool()
        self.log = self.path("log")

    def new_spool(self, mode=0o1733, owner=0):
        os.mkdir(self.spool)
        os.chmod(self.spool, mode)
        os.chown(self.spool, owner, owner)

    def name(self, user):
        return "%d-%s.jsonl" % (user, datetime.datetime.now(datetime.timezone.utc).date())

    def file(self, user):
        return os.path.join(self.spool, self.name(user))

    def ask(self, *words, report=None, program=(harness.public(guest.STEPS), "ask"), guard=True, bwrap=(), **env):
        """Runs the program, which must be refused with the guard."""
        result = harness.run([*words, *program], guard=False, preload=[self.guard] if guard else [],
                             env={"CUDAGUARD_REPORT": report or self.spool + "/",
                                  "LD_LIBRARY_PATH": harness.public(harness.FAKE_DRIVER), **env},
                             trace=False, bwrap=bwrap)
        assert result.rc == 0, str(result)
        if guard:
            assert result.fake_calls == [], str(result)
        return result

    def log_to(self, path):
        """Arguments for the sandbox: the path is its /dev/log."""
        return ["--bind", path, "/dev/log"]

    def listener(self, kind=socket.SOCK_DGRAM):
        listener = socket.socket(socket.AF_UNIX, kind)
        self.addCleanup(listener.close)
        listener.bind(self.log)
        os.chmod(self.log, 0o666)
        return listener


make_case = fixtures.lent("case", Case)


def failures(result):
    return [match["error"] for match in messages.find(result.err, "report_failed")]


def test_control_driver_is_reached_without_the_guard(case):
    assert "cuInit" in case.ask(guard=False).fake_calls


def test_each_user_has_a_file_of_the_day(case):
    for _ in range(2):
        for words in (ROOT, ALICE, BOB):
            result = case.ask(*words)
            assert failures(result) == [], str(result)
    assert sorted(os.listdir(case.spool)) == sorted(case.name(user) for user in (0, 1000, 1001))
    for user in (0, 1000, 1001):
        status = os.stat(case.file(user))
        assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (user, 0o600)
        assert [record["uid"] for record in harness.records(case.file(user))] == [user] * 2


def test_users_own_spool_works(case):
    os.chmod(case.spool, 0o700)
    os.chown(case.spool, 1000, 1000)
    assert failures(case.ask(*ALICE)) == []
    assert len(harness.records(case.file(1000))) == 1


def test_file_belongs_to_the_user_of_the_thread_at_that_time(case):
    """/proc/self of such a process belongs to root."""
    code = ("import ctypes, os; os.setresgid(1000, 1000, 1000); os.setresuid(1000, 1000, 1000); "
            'ctypes.CDLL("libcuda.so.1").cuInit(0)')
    assert failures(case.ask(program=(guest.PYTHON, "-c", code))) == []
    assert os.listdir(case.spool) == [case.name(1000)]
    assert os.stat(case.file(1000)).st_uid == 1000
    assert [record["uid"] for record in harness.records(case.file(1000))] == [1000]


def empty(case, path, user=1001, mode=0o666):
    case.make(path, "", mode)
    os.chown(path, user, user)
    return path


def planted_link(case):
    os.symlink(empty(case, case.path("target"), user=0), case.file(1000))
    os.lchown(case.file(1000), 1001, 1001)


def pipe(case, read):
    os.mkfifo(case.file(1000))
    os.chmod(case.file(1000), 0o666)
    os.chown(case.file(1000), 1001, 1001)
    if read:
        case.addCleanup(os.close, os.open(case.file(1000), os.O_RDONLY | os.O_NONBLOCK))


def another_spool(case, **how):
    os.rmdir(case.spool)
    case.new_spool(**how)


def linked_spool(case):
    os.rename(case.spool, case.path("other"))
    os.symlink(case.path("other"), case.spool)


def no_directory(case):
    os.rmdir(case.spool)
    empty(case, case.spool)


FOREIGN = "the file belongs to another user"
UNSAFE = "others could replace files in this directory"
FAULTS = {
    "link": (planted_link, FOREIGN),
    "hard link": (lambda case: os.link(empty(case, case.path("target"), user=1000), case.file(1000)),
                  "it is a hard link"),
    "another's file": (lambda case: empty(case, case.file(1000)), FOREIGN),
    "another's closed file": (lambda case: empty(case, case.file(1000), mode=0o600), FOREIGN),
    "pipe": (lambda case: pipe(case, False), FOREIGN),
    # fs.protected_fifos forbids the open; without it, the open succeeds.
    "read pipe": (lambda case: pipe(case, True), "it is not a regular file|" + FOREIGN),
    "directory": (lambda case: os.mkdir(case.file(1000)), FOREIGN),
    "another's spool": (lambda case: another_spool(case, owner=1001), UNSAFE),
    "spool without the sticky bit": (lambda case: another_spool(case, mode=0o733), UNSAFE),
    "linked spool": (linked_spool, "Not a directory"),
    "no spool": (lambda case: os.rmdir(case.spool), "No such file or directory"),
    "file": (no_directory, "Not a directory"),
    "forbidden spool": (lambda case: os.chmod(case.spool, 0o1700), "Permission denied"),
}


def found(directory):
    """{name: contents} of every regular file."""
    files = {}
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        if os.path.isfile(path):
            files[name] = harness.bytes_of(path)
    return files


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_loses_the_record_and_nothing_else(case, fault):
    prepare, error = FAULTS[fault]
    prepare(case)
    before = [found(case.directory), found(case.spool) if os.path.isdir(case.spool) else None]
    result = case.ask(*ALICE, program=(RECORDS, "1"))
    (printed,) = failures(result)  # once for seven records
    assert re.fullmatch(error, printed), str(result)
    named = case.file(1000) if FOREIGN in error or fault == "hard link" else case.spool + "/"
    assert messages.find(result.err, "report_failed", path=named), str(result)
    after = [found(case.directory), found(case.spool) if os.path.isdir(case.spool) else None]
    assert after == before


def test_root_does_not_write_to_a_planted_file(case):
    """Root may open every file."""
    empty(case, case.file(0))
    (printed,) = failures(case.ask())
    assert re.fullmatch(FOREIGN, printed)
    assert os.path.getsize(case.file(0)) == 0
    os.remove(case.file(0))  # the control
    assert failures(case.ask()) == []
    assert os.path.getsize(case.file(0)) > 0


MOUNTS = {
    "No space left on device":
        'mount -t tmpfs -o size=4k,mode=1733 none "$0" && head -c 4096 /dev/zero >"$0/filler"',
    # As in a unit with ProtectSystem=strict.
    "Read-only file system":
        'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"',
}


@pytest.mark.parametrize("error", MOUNTS)
def test_limit_disk_that_takes_nothing_loses_the_record(case, error):
    machine.need("mounts")
    result = case.ask("unshare", "--mount", "sh", "-c", MOUNTS[error] + ' && exec "$@"', case.spool,
                      *ALICE, program=(RECORDS, "1"))
    assert failures(result) == [error], str(result)


DATAGRAM = re.compile(rb"<14>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d cudaguard\[(\d+)\]: (\{.*\})")


def received(listener):
    """The records that have arrived."""
    listener.setblocking(False)
    records = []
    while True:
        try:
            datagram = listener.recv(1 << 20)
        except BlockingIOError:
            return records
        assert len(datagram) <= MOST
        number, text = DATAGRAM.fullmatch(datagram).groups()
        records.append(json.loads(text.decode("utf-8")))
        assert records[-1]["pid"] == int(number)


@pytest.mark.parametrize("words", [ROOT, ALICE], ids=["root", "alice"])
def test_syslog_gets_one_datagram_for_each_record(case, words):
    listener = case.listener()
    result = case.ask(*words, report="syslog:", program=(RECORDS, "1"), bwrap=case.log_to(case.log))
    assert failures(result) == []
    records = received(listener)
    assert len(records) == KINDS
    assert {record["decision"] for record in records} == {"deny"}


def test_record_is_cut_to_what_a_datagram_takes(case):
    listener = case.listener()
    case.ask(report="syslog:", program=(RECORDS, "1", "x" * 14000), bwrap=case.log_to(case.log))
    records = received(listener)
    assert len(records) == KINDS
    assert all(record["cut"] == ["argv"] and len(record["argv"][-1]) > 1000 for record in records)


NO_SYSLOG = {"absent": "No such file or directory", "no reader": "Connection refused",
             "stream": "Protocol wrong type for socket"}


def bad_log(case, how):
    """Arguments for the sandbox: /dev/log takes nothing."""
    if how == "absent":
        return ()
    listener = case.listener(socket.SOCK_STREAM if how == "stream" else socket.SOCK_DGRAM)
    if how == "no reader":
        listener.close()
    return case.log_to(case.log)


@pytest.mark.parametrize(("how", "error"), [*NO_SYSLOG.items(), ("full", "the socket is full")])
def test_syslog_that_takes_no_record_loses_it(case, how, error):
    bwrap = bad_log(case, how)
    if how == "full":
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            with pytest.raises(BlockingIOError):
                while True:
                    sender.sendto(b"x", case.log)
    result = case.ask(report="syslog:", program=(RECORDS, "1"), bwrap=bwrap)
    assert failures(result) == [error], str(result)


def strict_run(bwrap, *words):
    return harness.run([*words, guest.PYTHON, "-c", "print('started')"], guard=False, trace=False,
                       bwrap=bwrap)


@pytest.mark.parametrize("how", NO_SYSLOG)
def test_strict_run_refuses_a_syslog_that_takes_nothing(case, how):
    bwrap = bad_log(case, how)
    run = [launcher.LAUNCHER, "run"]
    strict = [*run, "--strict"]
    for name, words in (("--report ", [*strict, "--report=syslog:"]),
                        ("report=", [*strict, "--rule", "FORCE_CPU report=syslog:"]),
                        ("CUDAGUARD_REPORT=", ["env", "CUDAGUARD_REPORT=syslog:", *strict])):
        done = strict_run(bwrap, *words)
        assert (done.rc, done.out, done.err) == (
            125, "", 'cudaguard: %s"syslog:": /dev/log: %s; start rsyslog or systemd-journald\n' %
            (name, NO_SYSLOG[how])), str(done)
    assert strict_run(bwrap, *run, "--report=syslog:").out == "started\n"


def test_strict_run_starts_with_a_syslog_that_listens(case):
    listener = case.listener()
    done = strict_run(case.log_to(case.log), launcher.LAUNCHER, "run", "--strict", "--report=syslog:")
    assert (done.rc, done.out, done.err) == (0, "started\n", "")
    assert received(listener) == []


GUEST = """import ctypes, os, signal
library = ctypes.CDLL("libcuda.so.1", use_errno=True)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
before = os.listdir("/proc/self/fd")
ctypes.set_errno(77)
library.cuInit(0)
print(ctypes.get_errno(), os.listdir("/proc/self/fd") == before)"""


@pytest.mark.parametrize("report", ["spool", "no spool", "syslog:", "no listener"])
def test_record_changes_neither_errno_nor_descriptors(case, report):
    listener = case.listener()
    if report == "no listener":
        listener.close()
    if report == "no spool":
        os.rmdir(case.spool)
    where = {} if "spool" in report else {"report": "syslog:", "bwrap": case.log_to(case.log)}
    result = case.ask(*ALICE, program=(guest.PYTHON, "-c", GUEST), **where)
    assert result.out == "77 True\n", str(result)
    assert bool(failures(result)) == report.startswith("no ")


@pytest.mark.needs("sandbox")  # before the thread starts
def test_forked_children_and_a_signal_handler_use_syslog(case):
    listener = case.listener()
    arrived = []
    reader = threading.Thread(target=lambda: read_until(listener, arrived), daemon=True)
    reader.start()
    # So few that all records fit into the socket's queue (net.unix.max_dgram_qlen is 10): the guard
    # does not wait for a reader.
    forks = case.ask(report="syslog:", program=(guest.binary("forks"), "3", "100", "ready"),
                     bwrap=case.log_to(case.log), CUDAGUARD_LOG="off")
    assert forks.answers["right"] == "3", str(forks)
    handler = case.ask(report="syslog:", bwrap=case.log_to(case.log), program=(
        harness.program("entry_point"), "lib=libcuda.so.1", "when=signal"))
    assert failures(handler) == [], str(handler)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"end", case.log)
    reader.join(timeout=60)
    records = [json.loads(DATAGRAM.fullmatch(one)[2]) for one in arrived]
    asked = [record for record in records if record["api"] == "cuInit"]
    assert len({record["pid"] for record in asked if record["argv"][0].endswith("forks")}) == 4
    assert "cuInit" in [record["api"] for record in records
                        if record["argv"][0].endswith("entry_point")]


def read_until(listener, arrived):
    while (datagram := listener.recv(1 << 16)) != b"end":
        arrived.append(datagram)


def test_limit_user_changes_own_file(case):
    case.ask(*ALICE)
    forged = json.dumps({**harness.records(case.file(1000))[0], "uid": 1001})
    case.ask(*ALICE, guard=False, program=("sh", "-c", 'echo "$1" >>"$0"', case.file(1000), forged))
    assert [record["uid"] for record in harness.records(case.file(1000))] == [1000, 1001]


@pytest.mark.needs("user_namespaces")
def test_limit_user_namespace_has_no_spool(case):
    result = case.ask(*ALICE, "unshare", "--map-root-user")
    assert failures(result) == [UNSAFE]
    assert os.listdir(case.spool) == []  # and no file 0-..., which would be in root's way


# if (number == socket) kill the process
KILLS = """import ctypes, struct, sys
code = b"".join(struct.pack("HBBI", *one) for one in (
    (0x20, 0, 0, 0), (0x15, 0, 1, int(sys.argv[1])), (6, 0, 0, 0x80000000), (6, 0, 0, 0x7fff0000)))
libc, room = ctypes.CDLL(None), ctypes.create_string_buffer(code)
program = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(room))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
print(ctypes.CDLL("libcuda.so.1").cuInit(0))"""


@pytest.mark.parametrize(("report", "rc"), [("spool", 0), ("syslog:", 128 + 31)])
def test_limit_filter_that_kills_at_socket_ends_the_program(case, report, rc):
    number = "41" if os.uname().machine == "x86_64" else "198"
    result = harness.run([guest.PYTHON, "-c", KILLS, number], trace=False, env={
        "CUDAGUARD_REPORT": case.spool + "/" if report == "spool" else report})
    assert result.rc == rc, str(result)


@pytest.mark.parametrize("report", ["spool", "syslog:"])
def test_rule_of_the_machine_names_it(case, report):
    """The variables of the process change nothing."""
    listener = case.listener()
    value = case.spool + "/" if report == "spool" else report
    os.mkdir(case.path("etc"))
    for name, text in (("passwd", ""), ("group", ""),
                       ("cudaguard.conf", "FORCE_CPU report=%s\n" % value)):
        case.make(os.path.join("etc", name), text, 0o644)
    os.chmod(case.path("etc"), 0o755)
    bwrap = [*case.log_to(case.log), "--bind", case.path("etc"), "/etc"]
    assert failures(case.ask(*ALICE, report=case.path("none"), bwrap=bwrap)) == []
    records = received(listener) if report == "syslog:" else harness.records(case.file(1000))
    assert [record["api"] for record in records] == ["cuInit"]
    assert not os.path.exists(case.path("none"))
