# SPDX-License-Identifier: Apache-2.0
"""Checks what the guard reports of programs that may use CUDA: contexts, code, forks, late writes.
"""

import re

from support import harness

CONTEXT = re.compile(r"cuDevicePrimaryCtxRetain|cuCtxCreate")
CODE = re.compile(r"cuModuleLoad|cuLibraryLoad")


def run_and_read_records(box, *words, **env):
    path = box.scratch_file("report")
    run = box.run([box.program("gpu_driver"), *words], guard=True, env={
        "CUDAGUARD_LOG": "all", "CUDAGUARD_REPORT": path, **env})
    return run, harness.records(path)


def observe(box, report):
    for key, what, code in (("context", "a process that only holds a context", False),
                            ("kernel", "a process that loads code and runs a kernel", True)):
        run, records = run_and_read_records(box, "do=" + key, CUDAGUARD_POLICY="VALIDATE")
        apis = " ".join(str(record.get("api")) for record in records)
        context, loaded = bool(CONTEXT.search(apis)), bool(CODE.search(apis))
        value = "records: %s" % (" ".join(dict.fromkeys(apis.split())) or "none")
        if run.words.get("context") != "0":
            report.not_filled("observe." + key, what + ": the records of CUDAGUARD_LOG=all",
                              "the context could not be made: %s" % run.words.get("context"))
            continue
        report.check("observe." + key, what + ": the records of CUDAGUARD_LOG=all", value,
                     context and loaded == code, {"run": run.short(), "records": records[:20]})


def listed(box, report):
    seen = box.uuids()[-1:]
    run, records = run_and_read_records(box, CUDAGUARD_VISIBLE_DEVICES=str(len(box.gpus) - 1))
    text = " ".join(str(one.get("object")) for one in records if one.get("api") == "cuInit")
    lines = [line for line in run.lines() if "cuInit" in line]
    report.check("observe.list", "a list of the last GPU: message and record of cuInit name it",
                 "%d GPU(s); record: %s; %d line(s)" % (len(run.listed()), text or "none", len(lines)),
                 run.listed() == seen and seen[0] in text and bool(lines),
                 {"run": run.short(), "records": records[:20]})


def fork(box, report):
    what = "a forked child of a process that had initialised CUDA: one line, the driver's answer"
    argv = [box.program("gpu_driver"), "do=fork"]
    unguarded = box.run(argv)
    run = box.run(argv, guard=True, env={"CUDAGUARD_POLICY": "VALIDATE"})
    lines = [line for line in run.lines() if "fork" in line]
    same = all(unguarded.words.get(key) == run.words.get(key) for key in (
        "child.cuInit", "child.countRc", "child.status"))
    report.check("observe.fork", what, "child's cuInit %s (unguarded %s), %d line(s)" % (
        run.words.get("child.cuInit"), unguarded.words.get("child.cuInit"), len(lines)),
        same and len(lines) == 1, {"unguarded": unguarded.short(), "guarded": run.short()})


def late_write(box, report):
    # With one GPU, "0" changes nothing and gets no line.
    late, left = ("0", 1) if len(box.gpus) > 1 else ("-1", 0)
    what = ("CUDA_VISIBLE_DEVICES=%s written after NVML reported the count: one line with the remedy" %
            late)
    argv = [box.program("gpu_driver"), "do=late", "write=" + late]
    unguarded = box.run(argv)
    if unguarded.words.get("nvml.countRc") != "0":
        report.not_filled("observe.late-write", what, "NVML reports no count")
        return
    run = box.run(argv, guard=True, env={"CUDAGUARD_POLICY": "VALIDATE"})
    lines = [line for line in run.lines() if "CUDAGUARD_VISIBLE_DEVICES" in line]
    value = "NVML %s, then CUDA %s (unguarded %s); %d line(s)" % (
        run.words.get("nvml.count"), run.words.get("count"), unguarded.words.get("count"),
        len(lines))
    report.check("observe.late-write", what, value,
                 len(lines) == 1 and run.words.get("count") == unguarded.words.get("count"),
                 {"unguarded": unguarded.short(), "guarded": run.short()})
    run = box.run(argv, guard=True, env={"CUDAGUARD_VISIBLE_DEVICES": late})
    report.check("observe.late-write-remedy",
                 "the same with the remedy in front: NVML and CUDA agree",
                 "NVML %s, CUDA %s" % (run.words.get("nvml.count"), run.words.get("count")),
                 run.number("nvml.count", 0) == run.number("count", 0) == left, run.short())


def rows(box, report):
    reason = box.why_not() or box.why_no_proxy()
    if reason:
        report.not_filled("observe", "CUDAGUARD_LOG=all, the fork line, the late write", reason)
        return
    observe(box, report)
    listed(box, report)
    fork(box, report)
    late_write(box, report)
