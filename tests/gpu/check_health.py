# SPDX-License-Identifier: Apache-2.0
"""Checks `run --if-healthy` and `doctor --gpu` with a driver that works."""

import json

LIMIT = "60"


def launch(box, *words, **env):
    return box.launch(*words, env={"CUDAGUARD_DOCTOR_TIMEOUT": LIMIT, **env})


def program(box, option, *words, **env):
    """The driver program below the launcher: its cuInit, its GPUs, and the launcher's messages."""
    run = launch(box, "run", "--if-healthy=" + option, *words, "--", box.program("gpu_driver"), **env)
    lines = [line for line in run.err.splitlines() if line.startswith("cudaguard: ")]
    return run, run.words.get("cuInit"), run.listed(), "; ".join(lines)


def rows(box, report):
    reason = box.why_no_launcher()
    if reason:
        report.not_filled("health", "run --if-healthy and doctor --gpu", reason)
        return
    asked = launch(box, "doctor", "--gpu", "--json", "-")
    answer = json.loads(asked.out or "{}")
    report.check("health.doctor", "doctor --gpu: exit code 0, and each GPU is counted",
                 "exit code %s, %s GPUs in %s s" % (asked.rc, answer.get("gpus"),
                                                    answer.get("seconds")),
                 asked.rc == 0 and answer.get("gpus") == box.driver.number("count"), asked.short())
    for name, option, what in (("fresh", LIMIT + ",fresh", "the driver is asked"),
                               ("shared", LIMIT, "the same with the answer of the row before")):
        run, answer, gpus, message = program(box, option, CUDA_DEVICE_ORDER="PCI_BUS_ID")
        report.check("health." + name, "run --if-healthy: " + what,
                     "cuInit %s, %d GPUs after %.2f s; %s" % (answer, len(gpus), run.seconds,
                                                            message or "no message"),
                     (answer, gpus, message) == ("0", box.driver.listed(), ""), run.short())
    uuid = box.uuids()[-1]
    run, answer, gpus, message = program(box, LIMIT, "--gpus", "GPU-" + uuid.removeprefix("GPU-"))
    report.check("health.list", "run --if-healthy --gpus UUID: this GPU alone",
                 "cuInit %s, %s; %s" % (answer, gpus, message or "no message"),
                 (answer, gpus, message) == ("0", [uuid], ""), run.short())
    run, answer, _, message = program(box, LIMIT, "--gpus", "99")
    report.check("health.missing", "run --if-healthy --gpus 99: the program runs without CUDA",
                 "cuInit %s; %s" % (answer, message),
                 answer == "100" and "GPU 99 is not there" in message, run.short())
