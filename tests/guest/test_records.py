# SPDX-License-Identifier: Apache-2.0
"""G8: many threads and processes that write at once: no torn line, every record whole JSON."""

import json
import os
import subprocess
import unittest

import guest
import harness

RECORDS = guest.binary("records")
FIELDS = {"v", "ts", "pid", "ppid", "tid", "exe", "argv", "api", "decision", "caller"}
THREADS = 12
PROCESSES = 100
KINDS = 7  # what programs/records.c touches


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
            self.assertLessEqual(set(record) - FIELDS, {"object", "cut"})
            self.assertEqual(record["v"], 1)
            self.assertEqual(record["decision"], "deny")
            self.assertIsInstance(record["ts"], float)
            records.append(record)
        return records

    def many(self, environment, stderr):
        processes = [subprocess.Popen([RECORDS, str(THREADS), "number-%d" % i], env=environment,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=stderr) for i in range(PROCESSES)]
        answers = [p.communicate(timeout=60)[0] for p in processes]
        self.assertEqual({p.returncode for p in processes}, {0})
        self.assertEqual(set(answers), {b"touches=%d\n" % (THREADS * KINDS)})
        return {p.pid: i for i, p in enumerate(processes)}

    def test_control(self):
        result = harness.run([RECORDS, "1"], guard=False)
        result.assert_reached(self)

    def test_one_file(self):
        report = self.path("report")
        pids = self.many(self.environment(CUDAGUARD_REPORT=report, CUDAGUARD_LOG="off"),
                         subprocess.DEVNULL)
        records = self.parse(report)
        self.assertEqual(len(records), PROCESSES * KINDS)
        self.assertFalse(os.path.exists(self.path("fake.log")))
        for pid, number in pids.items():
            mine = [r for r in records if r["pid"] == pid]
            self.assertEqual(sorted((r["api"], r.get("object", "")) for r in mine), [
                ("cuInit", ""), ("dlopen", "libnvidia-opencl.so"),
                ("dlopen", "libonnxruntime_providers_cuda.so"),
                ("dlopen", "libonnxruntime_providers_tensorrt.so"), ("nvmlInit", ""),
                ("nvmlInitWithFlags", ""), ("nvmlInit_v2", "")])
            for record in mine:
                self.assertEqual(record["argv"], [RECORDS, str(THREADS), "number-%d" % number])
                self.assertEqual(record["exe"], os.path.realpath(RECORDS))
                self.assertEqual(record["ppid"], os.getpid())
                self.assertRegex(record["caller"], r"/records\+0x[0-9a-f]+$")
                self.assertNotIn("cut", record)

    def test_a_file_each(self):
        self.many(self.environment(CUDAGUARD_REPORT=self.path("report.%p.jsonl"),
                                   CUDAGUARD_LOG="off"), subprocess.DEVNULL)
        names = [name for name in os.listdir(self.folder) if name.startswith("report.")]
        self.assertEqual(len(names), PROCESSES)
        for name in names:
            records = self.parse(self.path(name))
            self.assertEqual(len(records), KINDS)
            self.assertEqual({"report.%d.jsonl" % r["pid"] for r in records}, {name})

    def test_one_pipe(self):
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
        for line in lines:
            self.assertRegex(line, r"^cudaguard\[\d+\]: no (CUDA here|GPU to see) \(policy FORCE_CPU; "
                                   r"asked by records\); CUDAGUARD_POLICY=OFF lifts it$")
        self.assertEqual(len(lines), PROCESSES * KINDS)
        records = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        self.assertEqual(len(records), PROCESSES * KINDS)
        self.assertEqual({r["pid"] for r in records}, set(pids))

    def one(self, argv, **environment):
        report = self.path("report")
        done = subprocess.run(argv, env=self.environment(CUDAGUARD_REPORT=report, **environment),
                              executable=RECORDS, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=60, check=True)
        self.assertEqual(done.stdout, b"touches=%d\n" % KINDS)
        return self.parse(report)

    def test_huge_arguments(self):
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

    def test_not_utf8(self):
        for record in self.one([b"records", b"1", b"caf\xe9", b"\xff\xfe", b"\xed\xa0\x80", b"a\nb",
                                "größe\U0001f600".encode()]):
            self.assertEqual(record["argv"][2:], ["caf\ufffd", "\ufffd\ufffd", "\ufffd" * 3, "a\nb",
                                                  "größe\U0001f600"])
            self.assertNotIn("cut", record)

    def test_empty_arguments(self):
        # argv that says nothing is kept: the numbers of arguments matter.
        for record in self.one([b"", b"1", b"", b""]):
            self.assertEqual(record["argv"], ["", "1", "", ""])


if __name__ == "__main__":
    harness.main()
