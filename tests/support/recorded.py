# SPDX-License-Identifier: Apache-2.0
"""Builds records of jobs that never ran, for tests of `report`."""

import json

from support import settings

PACKAGES = "/opt/venv/lib/python3.11/site-packages/"
TIME = 1795256748
NATIVE = [PACKAGES + "torch/lib/libcudart.so.12+0x34b5a",
          PACKAGES + "torch/lib/libc10_cuda.so+0x1a2b"]


def with_line_frame(record):
    """Adds the index of the first frame that has the line in `code`, as the guard does."""
    for number, frame in enumerate(record.get("python") or []):
        if ("/%s:%s" % (frame["file"], frame["line"])).endswith("/%s" % record.get("code")):
            return {**record, "line_frame": number}
    return record


def with_native(record):
    """The record as one line. If it has a native stack, this becomes a record in the line before,
    as the launcher writes it."""
    names = ("native", "native_missing")
    native = {name: record.pop(name) for name in names if name in record}
    if native:
        native = {"v": 1, "ts": record["ts"], "pid": record["pid"], "event": "native", **native}
    return "\n".join(json.dumps(one, separators=(",", ":")) for one in (native, record) if one)


def line(pid=7, script="ppo.py", api="cuInit", decision="deny", at=0, **more):
    """Builds a record as the guard writes it, with the process's own facts first. None leaves a
    field out. Unless given, other frames have no code."""
    record = {"v": 1, "ts": TIME + at, "pid": pid, "ppid": 2, "tid": pid, "uid": 1000,
              "host": "node7", "exe": "/usr/bin/python3.11", "argv": ["/usr/bin/python3", script],
              "cgroup": "/system.slice/x.service", "slurm": None, "api": api, "object": None,
              "asked": "nvml" if (api or "").startswith("nvml") else "cuda",
              "event": None, "decision": decision, "device": None, "result": None,
              "caller": PACKAGES + "torch/lib/libcudart.so.12+0x34b5a",
              "library": "libc10_cuda.so",
              "code": None if "python" in more else script + ":159",
              "python": [{"file": PACKAGES + "torch/cuda/__init__.py", "line": 118,
                          "function": "is_available"},
                         {"file": "/home/u/" + script, "line": 159, "function": "<module>"}]}
    record.update(more)
    record = {key: value for key, value in with_line_frame(record).items() if value is not None}
    return with_native(record)


def start(pid=7, at=0, **more):
    """Builds a start record, which has neither the host nor the cgroup."""
    return line(pid, api=None, asked=None, decision=None, caller=None, library=None, code=None,
                python=None, at=at, event="start", policy="FORCE_CPU",
                **{"host": "", "cgroup": "", **more})


def text(*lines):
    return "".join(one + "\n" for one in lines)


def schema(*path):
    return json.loads(settings.read("shim", *path))
