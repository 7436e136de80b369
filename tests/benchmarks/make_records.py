#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints records of a cluster that does not exist, as its guards would write them, the same ones
each time.

    make_records.py RECORDS PROCESSES

Nine of ten have a Python and a native stack of 10 to 20 frames. The records of one process are not
adjacent, as in a file in which many nodes' records were collected.
"""

import json
import random
import sys

PACKAGES = "/opt/conda/envs/train/lib/python3.11/site-packages/"
LIBRARIES = ["libcudart.so.12", "libc10_cuda.so", "libtorch_cuda.so", "libtorch_python.so",
             "libtorch_cpu.so"]
APIS = [("cuInit", None), ("nvmlInit_v2", None), ("cuInit", None), ("cudaGetDeviceCount", None),
        ("dlopen", "libnvidia-opencl.so.1")]


def stack(number, dice):
    """Returns a record's text from "api" on."""
    api, asked = APIS[number % len(APIS)]
    caller = PACKAGES + "torch/lib/%s+0x%x" % (dice.choice(LIBRARIES), dice.randrange(1 << 26))
    python = [{"file": PACKAGES + "torch/%s/__init__.py" % dice.choice(["cuda", "nn", "utils"]),
               "line": dice.randrange(2000), "function": dice.choice(["_lazy_init", "forward"])}
              for _ in range(dice.randint(8, 17))]
    python += [{"file": "/home/user%d/project/%s.py" % (number % 40, name), "line": line + number,
                "function": "main"} for name, line in (("model", 40), ("train", 159))]
    record = {"api": api, "asked": "nvml" if api.startswith("nvml") else "cuda",
              "decision": "deny", "caller": caller,
              "library": caller.rpartition("/")[2].partition("+")[0]}
    if asked:
        record["object"] = asked
    if number % 10 == 9:
        record.update(python_missing="no Python here")
    else:
        outer = {"file": "/home/user%d/project/train.py" % (number % 40), "line": 300,
                 "function": "<module>"}
        record.update(code="model.py:%d" % (40 + number), line_frame=len(python) - 2,
                      python=python + [outer])
    return json.dumps(record, separators=(",", ":"))[1:]


def process(number):
    """Returns the text before the thread's number and the text after it."""
    job = number // 64
    words = ["python3", "/home/user%d/project/train.py" % (job % 40), "--config",
             "configs/run%d.yaml" % (job % 500), "--rank", str(number % 64), "--epochs", "90"]
    rest = {"uid": 1000 + job % 40, "host": "node%d.cluster" % (number // 8 % 500),
            "exe": "/opt/conda/envs/train/bin/python3.11", "argv": words,
            "cgroup": "/system.slice/slurmstepd.scope/job_%d/step_0/user/task_%d" % (
                job, number % 64), "slurm": str(100000 + job)}
    return ('"pid":%d,"ppid":%d,"tid":' % (1000 + number, 900 + job),
            "," + json.dumps(rest, separators=(",", ":"))[1:-1] + ",")


def main():
    records, processes = map(int, sys.argv[1:])
    dice = random.Random(1)
    stacks = [stack(number, dice) for number in range(60)]
    window = []  # processes whose records are not yet complete
    each = max(1, records // processes)
    begun = 0
    out = []
    for number in range(records):
        if begun < processes and (len(window) < 2000 or not window):
            for _ in range(min(2000, processes - begun)):
                window.append([process(begun), begun, 0])
                begun += 1
        place = dice.randrange(len(window))
        (front, back), pid, done = window[place]
        out.append('{"v":1,"ts":%d.%06d,%s%d%s%s\n' % (
            1795256748 + number // 50, number % 1000000, front, 1000 + pid, back,
            stacks[(pid // 64 * 5 + done) % len(stacks)]))
        window[place][2] += 1
        if done + 1 == each:
            window[place] = window[-1]
            window.pop()
        if len(out) == 2000:
            sys.stdout.write("".join(out))
            out.clear()
    sys.stdout.write("".join(out))


if __name__ == "__main__":
    main()
