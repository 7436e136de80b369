# SPDX-License-Identifier: Apache-2.0
"""The schema of records: real ones of every kind are what it says, and what no guard writes is not."""

import os

from support import guest, harness, recorded

SCHEMA = ("guard", "record", "record.schema.json")
DRIVER = os.path.join(harness.FAKES, "lazy")  # eight GPUs (tests/devices)
OPEN = os.path.join(harness.BUILD, "tests", "devices", "programs", "open")
FRAME = {"file": "a.py", "line": 1, "function": "f"}
WRONG = {
    "v": [2, "1"], "ts": ["now", -1], "pid": [-1, 1 << 32, "7"], "uid": [1.5], "host": [7],
    "exe": [None], "argv": ["a b", [1]], "cgroup": ["x.service"], "slurm": [""], "api": ["", "a b"],
    "event": ["end"], "decision": ["denied"], "policy": ["ON"], "caller": ["", "/x+31", ["?"]],
    "device": [-1, "0"], "result": [-1], "library": [""], "rule": [""], "code": [""],
    "object": [""], "cut": [[], ["ts"]], "python": [[], [{**FRAME, "line": "1"}]],
    "python_missing": [""], "native": [[], ["/x.so"]], "native_missing": [""], "reason": ["sick"],
    "seconds": [1], "more": [1]}


class RecordSchema(guest.Case):
    def setUp(self):
        super().setUp()
        if harness.jsonschema is None:
            harness.skip(self, "python3-jsonschema is not installed")
        validator = harness.jsonschema.Draft202012Validator
        validator.check_schema(recorded.schema(*SCHEMA))
        self.validator = validator(recorded.schema(*SCHEMA))

    def reported(self, argv, world="fake", **env):
        report = self.path("report")
        result = harness.run(argv, world=world, trace=False, env={"CUDAGUARD_REPORT": report, **env})
        self.assertEqual(result.rc, 0, result)
        records = harness.records(report)
        if os.path.exists(report):
            os.unlink(report)
        for record in records:
            self.validates(record, *SCHEMA)
        return records

    def denied(self):
        return self.reported([guest.STEPS, "ask", "nvml", "load:libnvidia-opencl.so.1",
                              "load:/x/libnvidia-opencl.so\n+0x"], CUDAGUARD_HELLO="1",
                             SLURM_JOB_ID="7")

    def allowed(self):
        steps = ["nv.init", "rt12.set=1", "cu.context=v4,0", "cu.load=library"]
        return self.reported([OPEN, *steps], world="none", CUDAGUARD_VISIBLE_DEVICES="5,2",
                             LD_LIBRARY_PATH=DRIVER)

    def test_start_and_denied_records_follow_the_schema(self):
        records = self.denied()
        self.assertEqual([(record.get("event"), record.get("api")) for record in records],
                         [("start", None), (None, "cuInit"), (None, "nvmlInit_v2"),
                          (None, "dlopen")])
        self.assertEqual({record["slurm"] for record in records}, {"7"})
        self.assertEqual([record.get("library") for record in records], [None] + ["steps"] * 3)

    def test_records_of_allowed_attempts_follow_the_schema(self):
        events = {record["event"] for record in self.allowed()}
        self.assertEqual(events, {"init", "nvml", "select", "context", "work"})

    def test_record_of_python_has_its_frames(self):
        call = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"
        record = self.reported([guest.PYTHON, "-c", call])[0]
        self.assertEqual(record["python"], [{"file": "<string>", "line": 1, "function": "<module>"}])
        self.assertEqual((record["library"], record["code"]), ("ctypes/cffi", "<string>:1"))

    def test_record_names_the_fields_that_were_cut(self):
        for words in (["print:" + "x" * 100000], ["print:" + "\x01" * 20000] * 3):
            records = self.reported([guest.STEPS, *words, "ask"], CUDAGUARD_HELLO="1")
            self.assertEqual([record["cut"] for record in records], [["argv"]] * 2)

    def test_records_without_proc_follow_the_schema(self):
        """An empty directory replaces /proc."""
        report = self.path("report")
        harness.run([guest.STEPS, "ask"], trace=False, bwrap=["--tmpfs", "/proc"],
                    env={"CUDAGUARD_REPORT": report, "CUDAGUARD_HELLO": "1"})
        records = harness.records(report)
        # A process's first moment has its arguments without it.
        self.assertEqual([record["argv"] for record in records], [[guest.STEPS, "ask"], []])
        for record in records:
            self.assertEqual([record[key] for key in ("uid", "host", "exe", "cgroup")],
                             [os.geteuid(), "", "", ""])
            self.validates(record, *SCHEMA)

    def test_forged_records_do_not_follow_the_schema(self):
        """The test changes one thing about each real record."""
        started, init = self.denied()[:2]
        allowed = {record["event"]: record for record in self.allowed()}
        native = {"v": 1, "ts": 1.5, "pid": 7, "event": "native", "native": ["/x.so+0x3"]}
        for record in (started, init, native, *allowed.values()):
            self.assertTrue(self.validator.is_valid(record), record)
            for key, values in WRONG.items():
                for value in values:
                    self.assertFalse(self.validator.is_valid({**record, key: value}), (key, value))
            for key in {"v", "ts", "pid", "ppid", "tid", "uid", "host", "argv"} & {*record}:
                forged = {name: value for name, value in record.items() if name != key}
                self.assertFalse(self.validator.is_valid(forged), key)
        # What one kind of record has and another has not.
        for record, more in ((started, {"api": "cuInit"}), (started, {"native": ["/x.so+0x3"]}),
                             (init, {"event": "start"}), (init, {"policy": "OFF"}),
                             (init, {"device": 0}), (init, {"event": "health"}),
                             (init, {"python": [FRAME], "python_missing": "x"}),
                             (native, {"ppid": 1}), (native, {"api": "cuInit"}),
                             (native, {"native_missing": "x"}), (allowed["init"], {"device": 0}),
                             (allowed["work"], {"result": 0})):
            self.assertFalse(self.validator.is_valid({**record, **more}), more)
        for record, key in ((started, "policy"), (init, "api"), (init, "decision"),
                            (init, "caller"), (allowed["init"], "result"),
                            (allowed["work"], "event")):
            forged = {name: value for name, value in record.items() if name != key}
            self.assertFalse(self.validator.is_valid(forged), key)
