# SPDX-License-Identifier: Apache-2.0
"""Many threads and processes that write at once: no torn line, every record whole JSON."""

import fcntl
import json
import os
import subprocess

from support import guest, harness, messages

RECORDS = guest.binary("records")
FIELDS = {"v", "ts", "pid", "ppid", "tid", "uid", "host", "exe", "argv", "cgroup", "api", "decision",
          "caller", "library", "asked"}
THREADS = 12
PROCESSES = 100
KINDS = 7  # what programs/records.c touches
PIPE_BUF = 4096


class Records(guest.Case):
    def environment(self, **more):
        return {"LD_LIBRARY_PATH": harness.FAKE_DRIVER, "LD_PRELOAD": harness.GUARD,
                "CG_FAKE_LOG": self.path("fake.log"), **more}

    def parse(self, path):
        with open(path, "rb") as stream:
            data = stream.read()
        self.assertTrue(data.endswith(b"\n"))
        records = []
        for line in data[:-1].split(b"\n"):
            self.assertLessEqual(len(line) + 1, 65536)
            record = json.loads(line.decode("utf-8"))  # strict: no byte that is not UTF-8
            self.assertLessEqual(FIELDS, set(record))
            self.assertLessEqual(set(record) - FIELDS,
                                 {"object", "cut", "passes_on", "python_missing"})
            self.assertEqual(record["v"], 1)
            self.assertEqual(record["decision"], "deny")
            self.assertIsInstance(record["ts"], float)
            records.append(record)
        return records

    def test_record_has_no_characters_that_a_terminal_obeys(self):
        """Names in a record: escape sequences by C1, and letters that turn the line's direction."""
        odd = "x\x9b31m\u202ey\u2066z\x1b[0m"
        result = self.steps("ask", "print:" + odd, env={"CUDAGUARD_REPORT": "/dev/stderr"})
        record = json.loads(result.err.splitlines()[-1])
        self.assertEqual(record["argv"][-1], "print:" + odd, result)
        self.assertEqual(sorted(set(odd) & set(result.err)), sorted(set("x31my[z0")), result)
        # The control: so it is in the program's own output.
        self.assertIn("\u202e", result.out)

    def many(self, environment, stderr):
        processes = [subprocess.Popen([RECORDS, str(THREADS), "number-%d" % i], env=environment,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=stderr) for i in range(PROCESSES)]
        answers = [p.communicate(timeout=60)[0] for p in processes]
        self.assertEqual({p.returncode for p in processes}, {0})
        self.assertEqual(set(answers), {b"touches=%d\n" % (THREADS * KINDS)})
        return {p.pid: i for i, p in enumerate(processes)}

    def test_control_driver_is_reached_without_the_guard(self):
        result = harness.run([RECORDS, "1"], guard=False)
        result.assert_reached(self)

    def test_many_processes_write_whole_records_to_one_file(self):
        report = self.path("report")
        pids = self.many(self.environment(CUDAGUARD_REPORT=report, CUDAGUARD_LOG="off"),
                         subprocess.DEVNULL)
        records = self.parse(report)
        self.assertEqual(len(records), PROCESSES * KINDS)
        self.assertFalse(os.path.exists(self.path("fake.log")))
        for pid, number in pids.items():
            mine = [r for r in records if r["pid"] == pid]
            # The object is the name as it was asked for.
            self.assertEqual(sorted((r["api"], r.get("object", "")) for r in mine), [
                ("cuInit", ""), ("dlopen", "libnvidia-opencl.so.1"),
                ("dlopen", "libonnxruntime_providers_cuda.so"),
                ("dlopen", "libonnxruntime_providers_tensorrt.so"), ("nvmlInit", ""),
                ("nvmlInitWithFlags", ""), ("nvmlInit_v2", "")])
            for record in mine:
                self.assertEqual(record["argv"], [RECORDS, str(THREADS), "number-%d" % number])
                self.assertEqual(record["exe"], os.path.realpath(RECORDS))
                self.assertEqual(record["ppid"], os.getpid())
                self.assertRegex(record["caller"], r"/records\+0x[0-9a-f]+$")
                self.assertNotIn("cut", record)

    def test_each_process_can_have_a_file_of_its_own(self):
        self.many(self.environment(CUDAGUARD_REPORT=self.path("report.%h-%u-%p.jsonl"),
                                   CUDAGUARD_LOG="off"), subprocess.DEVNULL)
        names = [name for name in os.listdir(self.directory) if name.startswith("report.")]
        self.assertEqual(len(names), PROCESSES)
        for name in names:
            records = self.parse(self.path(name))
            self.assertEqual(len(records), KINDS)
            self.assertEqual({"report.%s-%d-%d.jsonl" % (r["host"], r["uid"], r["pid"])
                              for r in records}, {name})

    def test_many_processes_write_whole_lines_to_one_pipe(self):
        read_end, write_end = os.pipe()
        with open(self.path("read"), "wb") as target:
            reader = subprocess.Popen(["cat"], stdin=read_end, stdout=target)
        os.close(read_end)
        pids = self.many(self.environment(CUDAGUARD_LOG="all", CUDAGUARD_REPORT="/dev/stderr"),
                         write_end)
        os.close(write_end)
        self.assertEqual(reader.wait(timeout=60), 0)
        with open(self.path("read"), encoding="utf-8") as stream:
            text = stream.read()
        lines = [line for line in text.splitlines() if not line.startswith("{")]
        # CUDAGUARD_LOG=all names the call.
        calls = [(found["name"], found["call"]) for found in messages.find(
            "\n".join(lines), *messages.DENIED, cause="FORCE_CPU", asked_by="records",
            remedy=guest.OFF)]
        self.assertEqual(len(calls), len(lines), text[:2000])
        self.assertEqual(len(lines), PROCESSES * KINDS)
        for call, count in ((("no_cuda", "cuInit"), 1), (("no_cuda", "dlopen"), 2),
                            (("no_opencl", "dlopen"), 1),
                            (("no_nvml", "nvmlInit"), 1), (("no_nvml", "nvmlInit_v2"), 1),
                            (("no_nvml", "nvmlInitWithFlags"), 1)):
            self.assertEqual(calls.count(call), PROCESSES * count, call)
        records = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        self.assertEqual(len(records), PROCESSES * KINDS)
        self.assertEqual({r["pid"] for r in records}, set(pids))

    def to_a_fifo(self, count, room=None):
        """`count` programs with long arguments whose report is a FIFO with a reader that reads when
        all are done. Returns what it reads and what they printed."""
        path = self.path("fifo")
        os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        if room is not None:
            fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, room)
        processes = [subprocess.Popen(
            [RECORDS, "2", "number-%d" % i, "x" * 14000], stdin=subprocess.DEVNULL,
            env=self.environment(CUDAGUARD_REPORT=path), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE) for i in range(count)]
        outputs = [p.communicate(timeout=60) for p in processes]
        self.assertEqual({p.returncode for p in processes}, {0})
        self.assertEqual({out for out, _ in outputs}, {b"touches=%d\n" % (2 * KINDS)})
        data = b""
        while chunk := os.read(reader, 1 << 20):  # to its end: no process has it open for writing
            data += chunk
        os.close(reader)
        os.unlink(path)
        # One thread may ask NVML or OpenCL between another's CUDA attempt and its message.
        others = (guest.NO_GPU % "records", guest.NO_OPENCL % "records")
        return data, [[line for line in guest.lines_of(err.decode()) if line not in others]
                      for _, err in outputs]

    def parse_fifo(self, data):
        """Whole lines of JSON, each short enough to stay in one piece among other writers."""
        self.assertTrue(data == b"" or data.endswith(b"\n"))
        records = []
        for line in data.split(b"\n")[:-1]:
            self.assertLessEqual(len(line) + 1, PIPE_BUF)
            record = json.loads(line.decode("utf-8"))
            self.assertEqual(record["argv"][:2], [RECORDS, "2"])
            self.assertEqual(record["cut"], ["argv"])
            records.append(record)
        return records

    def test_many_processes_write_whole_records_to_a_fifo(self):
        data, outputs = self.to_a_fifo(8, room=1 << 20)
        records = self.parse_fifo(data)
        self.assertEqual(len(records), 8 * KINDS)
        self.assertEqual(len({r["pid"] for r in records}), 8)
        for lines in outputs:
            self.assertEqual(lines, [guest.DENIED % "records"])

    def test_full_fifo_is_reported_once(self):
        data, outputs = self.to_a_fifo(8, room=PIPE_BUF)
        self.assertLess(len(self.parse_fifo(data)), 8 * KINDS)
        for lines in outputs:
            self.assertEqual(lines.count(guest.DENIED % "records"), 1, lines)
            full = [line for line in lines if "the pipe is full" in line]
            self.assertLessEqual(len(full), 1, lines)
            self.assertEqual(len(lines), 1 + len(full), lines)
        self.assertTrue(any("the pipe is full" in line for lines in outputs for line in lines),
                        outputs)

    def test_control_file_keeps_long_records(self):
        """Control: the same arguments, in a file, are not cut."""
        for record in self.one(["records", "1", "x" * 14000]):
            self.assertEqual(record["argv"], ["records", "1", "x" * 14000])
            self.assertNotIn("cut", record)

    def test_record_has_the_requested_object(self):
        report = self.path("report")
        names = ["/opt/vendor/libnvidia-opencl.so.535.1", "./libonnxruntime_providers_cuda.so",
                 "/opt//ort/libonnxruntime_providers_tensorrt.so.1"]
        self.steps(*("load:" + name for name in names), env={"CUDAGUARD_REPORT": report})
        records = self.parse(report)
        self.assertEqual([(r["api"], r["object"]) for r in records], [("dlopen", n) for n in names])

    def one(self, argv, **environment):
        report = self.path("report")
        done = subprocess.run(argv, env=self.environment(CUDAGUARD_REPORT=report, **environment),
                              executable=RECORDS, stdin=subprocess.DEVNULL, capture_output=True,
                              cwd=self.directory, timeout=60, check=True)
        self.assertEqual(done.stdout, b"touches=%d\n" % KINDS)
        return self.parse(report)

    def test_huge_arguments_are_cut(self):
        for argv in (["records", "1"] + ["x" * 100000] * 10, ["records", "1"] + ["y"] * 100000,
                     ["records", "1"] + ["\x01\x02"] * 40000, ["records", "1", '"\\' * 40000]):
            with self.subTest(len(argv)):
                records = self.one(argv)
                self.assertEqual(len(records), KINDS)
                for record in records:
                    self.assertIn("argv", record["cut"])
                    self.assertEqual(record["argv"][:2], ["records", "1"])
                    self.assertEqual(record["api"] in ("cuInit", "dlopen") or
                                     record["api"].startswith("nvmlInit"), True)
                    self.assertRegex(record["caller"], r"\+0x[0-9a-f]+$")
                os.unlink(self.path("report"))

    def test_bytes_that_are_not_utf8_are_replaced(self):
        for record in self.one([b"records", b"1", b"caf\xe9", b"\xff\xfe", b"\xed\xa0\x80", b"a\nb",
                                "größe\U0001f600".encode()]):
            self.assertEqual(record["argv"][2:], ["caf\ufffd", "\ufffd\ufffd", "\ufffd" * 3, "a\nb",
                                                  "größe\U0001f600"])
            self.assertNotIn("cut", record)

    def test_empty_arguments_are_kept(self):
        # argv that says nothing is kept: the numbers of arguments matter.
        for record in self.one([b"", b"1", b"", b""]):
            self.assertEqual(record["argv"], ["", "1", "", ""])
