# SPDX-License-Identifier: Apache-2.0
"""With CUDAGUARD_HELLO=1, every guarded process makes one start record before its main. Nothing
else is different."""

import os
import re
import subprocess

import pytest

from support import guest, harness, machine


def shell(case, script, guard=True, **env):
    """The records of a shell script, by a report of its own."""
    report = case.path("report.%d" % len(os.listdir(case.directory)))
    result = harness.run(["/bin/sh", "-c", script, "sh", guest.STEPS], guard=guard,
                         env={"CUDAGUARD_REPORT": report, "CUDAGUARD_HELLO": "1", **env})
    return result, harness.records(report)


def test_each_exec_makes_one_start_record(case):
    result, records = shell(case, '/bin/true; (/bin/true); "$1" fork print:x end; exec /bin/echo')
    assert result.rc == 0, str(result)
    assert [record["event"] for record in records] == ["start"] * 5
    # A fork gives none, an exec does, in the same process too.
    assert [os.path.basename(record["argv"][0])
            for record in records] == ["sh", "true", "true", "steps", "echo"]
    assert records[0]["pid"] == records[-1]["pid"]
    assert {record["ppid"] for record in records[1:3]} - {records[0]["pid"]} == set()
    for record in records:
        assert record["policy"] == "FORCE_CPU"
        assert record["pid"] == record["tid"]
        assert "api" not in record


def test_records_have_the_user_the_job_and_the_host(case):
    host = harness.read("/proc/sys/kernel/hostname")[:-1]
    groups = [line.split(":", 2)[2] for line in harness.read("/proc/self/cgroup").splitlines()]
    for job in ("1234", None):
        _, records = shell(case, '"$1" ask', SLURM_JOB_ID=job)
        assert [record.get("event") for record in records] == ["start", "start", None]
        for record in records:
            assert record["uid"] == os.geteuid()
            assert record.get("slurm") == job
        # To find these out would take as long as all else at a start.
        for record in records[:2]:
            assert (record["host"], record["cgroup"]) == ("", "")
        for record in records[2:]:
            assert record["host"] == host
            assert record["cgroup"] in groups
            assert len(record["cgroup"]) == max(map(len, groups))


def test_guard_that_is_loaded_late_records_the_arguments(case):
    """The arguments still lie where the kernel put them; the variables may not."""
    report = case.path("report")
    program = "import ctypes, os; os.environ['FIRST'] = '2'; ctypes.CDLL(%r)" % harness.GUARD
    words = [guest.PYTHON, "-c", program]
    env = {"FIRST": "1", "CUDAGUARD_REPORT": report, "CUDAGUARD_HELLO": "1"}
    assert subprocess.run(words, env=env, check=False).returncode == 0
    record, = harness.records(report)
    assert record["argv"] == words


@pytest.mark.parametrize("env", [{"CUDAGUARD_HELLO": None}, {"CUDAGUARD_HELLO": ""},
                                 {"CUDAGUARD_HELLO": "0"}, {"CUDAGUARD_HELLO": "11"},
                                 {"CUDAGUARD_REPORT": None}, {"guard": False}])
def test_start_record_needs_its_variable_and_the_guard(case, env):
    assert len(shell(case, "/bin/true")[1]) == 2  # the control
    result, records = shell(case, "/bin/true", **env)
    assert (result.rc, result.err, records) == (0, "", [])


@pytest.mark.parametrize(
    ("policy", "env"),
    [("OFF", {"CUDAGUARD_POLICY": "OFF"}), ("CLAMP", {"CUDAGUARD_POLICY": "clamp"}),
     ("VALIDATE", {"CUDAGUARD_VISIBLE_DEVICES": "0"}),
     ("FORCE_CPU", {"CUDAGUARD_POLICY": "nonsense"}),
     ("FORCE_CPU",
      {"CUDAGUARD_POLICY": "VALIDATE", "CUDAGUARD_CHILDREN": "FORCE_CPU", "CUDAGUARD_ROOT": "1"})])
def test_start_record_has_the_policy(case, policy, env):
    result, records = shell(case, "/bin/true", **env)
    assert [record["policy"] for record in records] == [policy] * 2
    # A value that is wrong is complained about where it would be without.
    assert (result.rc, result.err) == (0, "")


@pytest.mark.parametrize(("policy", "steps", "reached"),
                         [("OFF", ["ask"], True),
                          (None, ["setenv:CUDAGUARD_POLICY=OFF", "fork", "ask", "end", "ask"],
                           False)])
def test_start_record_changes_no_answer(case, policy, steps, reached):
    outcomes = []
    for hello in (None, "1"):
        report = case.path("report.%s" % hello)
        result = case.steps(*steps, env={"CUDAGUARD_HELLO": hello, "CUDAGUARD_POLICY": policy,
                                         "CUDAGUARD_REPORT": report})
        # The kernel's numbers differ; lines, order and answers do not.
        records = [{key: record.get(key) for key in ("event", "api", "decision")}
                   for record in harness.records(report)]
        if hello:
            assert records.pop(0)["event"] == "start"
        out = re.sub(r"child=\d+", "child=", result.out)
        outcomes.append((result.rc, out, guest.lines_of(result.err), records,
                         result.init_calls()))
    assert outcomes[0] == outcomes[1]
    assert bool(outcomes[1][-1]) == reached, str(outcomes[1])


def test_failing_report_is_named_at_the_first_attempt(case):
    """The guard prints the one message at the first attempt, also without CUDAGUARD_HELLO."""
    env = {"CUDAGUARD_REPORT": "/no/such/directory/report", "CUDAGUARD_HELLO": "1"}
    assert case.steps("print:x", env=env).err == ""
    messages = guest.lines_of(case.steps("ask", env=env).err)
    assert len(messages) == 2, str(messages)
    assert "No such file or directory" in messages[1]


def test_start_record_adds_only_documented_system_calls(case):
    """Without the variable the guard makes no system call. With the variable it makes those
    that tests/lab/limits.md lists for a report."""
    def calls(**env):
        machine.need("tracing")
        log = case.path("strace")
        words = ["%s=%s" % item for item in env.items()]
        subprocess.run(["strace", "-qq", "-o", log, "--", "env", "-i", *words, "/bin/true"],
                       check=True)
        text = harness.read(log)
        return [line.split("(")[0] for line in text.splitlines()]

    report = case.path("traced")
    plain = calls(LD_PRELOAD=harness.GUARD)  # nothing beyond its mapping: test_silent.py
    assert calls(LD_PRELOAD=harness.GUARD, CUDAGUARD_REPORT=report) == plain
    assert not os.path.exists(report)
    hello = calls(LD_PRELOAD=harness.GUARD, CUDAGUARD_REPORT=report, CUDAGUARD_HELLO="1")
    assert len(harness.records(report)) == 1
    listed = {"openat", "newfstatat", "read", "close", "mmap", "mprotect", "write", "getpid",
              "fstat", "fcntl", "munmap", "getppid", "gettid", "clock_gettime", "readlinkat",
              "rt_sigprocmask", "rt_sigtimedwait"}
    assert len(hello) > len(plain)
    assert set(hello) - set(plain) <= listed
