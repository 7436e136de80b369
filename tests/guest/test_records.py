# SPDX-License-Identifier: Apache-2.0
"""Many threads and processes that write at once: no torn line, every record whole JSON."""

import fcntl
import itertools
import json
import os
import re
import subprocess
import sys

import pytest

from support import guest, harness, messages, syscalls

RECORDS = guest.binary("records")
FIELDS = {"v", "ts", "pid", "ppid", "tid", "since", "uid", "host", "exe", "argv", "cgroup", "api", "decision",
          "caller", "library", "asked"}
THREADS = 12
PROCESSES = 100
KINDS = 7  # what programs/records.c asks for
PIPE_BUF = 4096
PATIENCE = 600  # seconds, then something hangs


def environment_of(case, **more):
    return {"LD_LIBRARY_PATH": harness.FAKE_DRIVER, "LD_PRELOAD": harness.GUARD,
            "CG_FAKE_LOG": case.path("fake.log"), **more}


def parse(path):
    data = harness.bytes_of(path)
    assert data.endswith(b"\n")
    records = []
    for line in data[:-1].split(b"\n"):
        assert len(line) + 1 <= 65536
        record = json.loads(line.decode("utf-8"))  # strict: no byte that is not UTF-8
        assert FIELDS <= set(record)
        assert set(record) - FIELDS <= {"object", "cut", "passes_on", "python_missing"}
        assert record["v"] == 1
        assert record["decision"] == "deny"
        assert isinstance(record["ts"], float)
        records.append(record)
    return records


def many(environment, stderr):
    processes = [subprocess.Popen([RECORDS, str(THREADS), "number-%d" % i], env=environment,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=stderr) for i in range(PROCESSES)]
    answers = [p.communicate(timeout=PATIENCE)[0] for p in processes]
    assert {p.returncode for p in processes} == {0}
    assert set(answers) == {b"attempts=%d\n" % (THREADS * KINDS)}
    return {p.pid: i for i, p in enumerate(processes)}


def test_control_driver_is_reached_without_the_guard(case):
    result = harness.run([RECORDS, "1"], guard=False)
    result.assert_reached(case)


@pytest.mark.parametrize("name", ["report", "report.%h-%u-%p.jsonl"])
def test_many_processes_write_whole_records(case, name):
    """To one file, or each process to a file of its own."""
    pids = many(environment_of(case, CUDAGUARD_REPORT=case.path(name), CUDAGUARD_LOG="off"),
                subprocess.DEVNULL)
    assert not os.path.exists(case.path("fake.log"))
    files = {file: parse(case.path(file)) for file in os.listdir(case.directory)}
    records = [record for file in files.values() for record in file]
    assert set(files) == {name.replace("%h", r["host"]).replace("%u", str(r["uid"]))
                          .replace("%p", str(r["pid"])) for r in records}
    assert len(files) == (PROCESSES if "%" in name else 1)
    assert len(records) == PROCESSES * KINDS
    for pid, number in pids.items():
        mine = [r for r in records if r["pid"] == pid]
        # The object is the name as it was asked for.
        assert sorted((r["api"], r.get("object", ""))
                      for r in mine) == [("cuInit", ""), ("dlopen", "libnvidia-opencl.so.1"),
                                         ("dlopen", "libonnxruntime_providers_cuda.so"),
                                         ("dlopen", "libonnxruntime_providers_tensorrt.so"),
                                         ("nvmlInit", ""), ("nvmlInitWithFlags", ""),
                                         ("nvmlInit_v2", "")]
        for record in mine:
            assert record["argv"] == [RECORDS, str(THREADS), "number-%d" % number]
            assert record["exe"] == os.path.realpath(RECORDS)
            assert record["ppid"] == os.getpid()
            assert re.search(r"/records\+0x[0-9a-f]+$", record["caller"]), str(record["caller"])
            assert "cut" not in record


def test_record_has_the_start_of_its_process(case):
    """Whatever the name of the process has in it. A forked child has a start of its own."""
    text = ("import ctypes, os\n"
            "ctypes.CDLL(None).prctl(15, b') S 1 (2) ')\n"
            "child = os.fork()\n"
            "stat = open('/proc/self/stat').read().rpartition(')')[2].split()\n"
            "if child: os.waitpid(child, 0)\n"
            "ctypes.CDLL('libcuda.so.1').cuInit(0)\n"
            "print('%s=%s' % ('parent' if child else 'child', stat[19]), flush=True)\n")
    result = harness.run([sys.executable, "-c", text],
                         env=environment_of(case, CUDAGUARD_REPORT=case.path("report")))
    starts = {str(record["since"]) for record in harness.records(case.path("report"))}
    assert starts == {result.answers["parent"], result.answers["child"]}, str(result)


def test_repeated_call_reads_nothing_of_proc(case):
    """Only the first call of a place needs its stack and a record, for which the end of the list of
    mappings is read once."""
    counts = []
    for calls in (1, 20):
        env = {"LD_LIBRARY_PATH": harness.FAKE_DRIVER, "CUDAGUARD_REPORT": case.path("report")}
        done, processes = syscalls.trace([guest.STEPS, *["ask"] * calls], harness.GUARD,
                                         case.path("log"), env)
        assert done.stdout.count(b"cuInit=100") == calls, str(done)
        process, = processes.values()
        maps = [at for at, call in enumerate(process.calls)
                if call.strings[:1] == ("/proc/self/maps",)]
        counts.append(len(maps))
        for at in maps:
            names = itertools.takewhile(lambda call: call.name != "close", process.calls[at:])
            assert [call.strings for call in names].count(("",)) <= 1
    assert counts[0] > 0
    assert counts[1] == counts[0]


def test_many_processes_write_whole_lines_to_one_pipe(case):
    read_end, write_end = os.pipe()
    # Room for all lines, because the guard loses a line rather than wait for a reader.
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 1 << 20)
    with open(case.path("read"), "wb") as target:
        reader = subprocess.Popen(["cat"], stdin=read_end, stdout=target)
    os.close(read_end)
    pids = many(environment_of(case, CUDAGUARD_LOG="all", CUDAGUARD_REPORT="/dev/stderr"),
                write_end)
    os.close(write_end)
    assert reader.wait(timeout=PATIENCE) == 0
    text = harness.read(case.path("read"))
    lines = [line for line in text.splitlines() if not line.startswith("{")]
    # CUDAGUARD_LOG=all names the call.
    calls = [(found["name"], found["call"]) for found in messages.find(
        "\n".join(lines), *messages.DENIED, cause="FORCE_CPU", asked_by="records",
        remedy=guest.OFF)]
    assert len(calls) == len(lines), str(text[:2000])
    assert len(lines) == PROCESSES * KINDS
    for call, count in ((("no_cuda", "cuInit"), 1), (("no_cuda", "dlopen"), 2),
                        (("no_opencl", "dlopen"), 1),
                        (("no_nvml", "nvmlInit"), 1), (("no_nvml", "nvmlInit_v2"), 1),
                        (("no_nvml", "nvmlInitWithFlags"), 1)):
        assert calls.count(call) == PROCESSES * count, str(call)
    records = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert len(records) == PROCESSES * KINDS
    assert {r["pid"] for r in records} == set(pids)


def to_a_fifo(case, count, room=None):
    """`count` programs with long arguments whose report is a FIFO with a reader that reads when
    all are done. Returns what it reads and what they printed."""
    path = case.path("fifo")
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if room is not None:
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, room)
    processes = [
        subprocess.Popen([RECORDS, "2", "number-%d" % i, "x" * 14000], stdin=subprocess.DEVNULL,
                         env=environment_of(case, CUDAGUARD_REPORT=path), stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE) for i in range(count)
    ]
    outputs = [p.communicate(timeout=PATIENCE) for p in processes]
    assert {p.returncode for p in processes} == {0}
    assert {out for out, _ in outputs} == {b"attempts=%d\n" % (2 * KINDS)}
    data = b""
    while chunk := os.read(reader, 1 << 20):  # to its end: no process has it open for writing
        data += chunk
    os.close(reader)
    os.unlink(path)
    # One thread may ask NVML or OpenCL between another's CUDA attempt and its message.
    others = (guest.NO_GPU % "records", guest.NO_OPENCL % "records")
    return data, [[line for line in guest.lines_of(err.decode()) if line not in others]
                  for _, err in outputs]


def parse_fifo(data):
    """Whole lines of JSON, each short enough to stay in one piece among other writers."""
    assert data == b"" or data.endswith(b"\n")
    records = []
    for line in data.split(b"\n")[:-1]:
        assert len(line) + 1 <= PIPE_BUF
        record = json.loads(line.decode("utf-8"))
        assert record["argv"][:2] == [RECORDS, "2"]
        assert record["cut"] == ["argv"]
        records.append(record)
    return records


def test_many_processes_write_whole_records_to_a_fifo(case):
    data, outputs = to_a_fifo(case, 8, room=1 << 20)
    records = parse_fifo(data)
    assert len(records) == 8 * KINDS
    assert len({r["pid"] for r in records}) == 8
    for lines in outputs:
        assert lines == [guest.DENIED % "records"]


def test_full_fifo_is_reported_once(case):
    data, outputs = to_a_fifo(case, 8, room=PIPE_BUF)
    assert len(parse_fifo(data)) < 8 * KINDS
    for lines in outputs:
        assert lines.count(guest.DENIED % "records") == 1, str(lines)
        full = [line for line in lines if "the pipe is full" in line]
        assert len(full) <= 1, str(lines)
        assert len(lines) == 1 + len(full), str(lines)
    assert any("the pipe is full" in line for lines in outputs for line in lines), str(outputs)


def one(case, argv, **environment):
    report = case.path("report")
    done = subprocess.run(argv, env=environment_of(case, CUDAGUARD_REPORT=report, **environment),
                          executable=RECORDS, stdin=subprocess.DEVNULL, capture_output=True,
                          cwd=case.directory, timeout=PATIENCE, check=True)
    assert done.stdout == b"attempts=%d\n" % KINDS
    return parse(report)


@pytest.mark.parametrize("argv", [["x" * 100000] * 10, ["y"] * 100000, ['"\\' * 40000]])
def test_huge_arguments_are_cut(case, argv):
    records = one(case, ["records", "1", *argv])
    assert len(records) == KINDS
    for record in records:
        assert "argv" in record["cut"]
        assert record["argv"][:2] == ["records", "1"]
        assert record["api"] in ("cuInit", "dlopen") or record["api"].startswith("nvmlInit")
        assert re.search(r"\+0x[0-9a-f]+$", record["caller"]), str(record["caller"])


@pytest.mark.parametrize(("argv", "recorded"), [
    (["x" * 14000], ["x" * 14000]),  # the control of those that are cut in a FIFO
    ([b"caf\xe9", b"\xff\xfe", b"\xed\xa0\x80", b"a\nb", "größe\U0001f600".encode()],
     ["caf\ufffd", "\ufffd\ufffd", "\ufffd" * 3, "a\nb", "größe\U0001f600"]),
    (["", ""], ["", ""])], ids=["long", "bytes", "empty"])
def test_other_arguments_are_kept(case, argv, recorded):
    """What is not UTF-8 is replaced. Empty ones are kept, because the numbers of arguments matter.
    """
    for record in one(case, ["", "1", *argv]):
        assert record["argv"] == ["", "1", *recorded]
        assert "cut" not in record
