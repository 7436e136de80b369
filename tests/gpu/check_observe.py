# SPDX-License-Identifier: Apache-2.0
"""Checks what the guard reports of programs that may use CUDA: contexts, code, the list, forks and
late writes."""

import re

from support import harness

CONTEXT = re.compile(r"cuDevicePrimaryCtxRetain|cuCtxCreate")
CODE = re.compile(r"cuModuleLoad|cuLibraryLoad")


def run_and_read_records(box, argv, env):
    path = box.scratch_file("report")
    run = box.run(argv, guard=True, env={"CUDAGUARD_LOG": "all", "CUDAGUARD_REPORT": path, **env})
    records = harness.records(path)
    return run, records, " ".join(str(record.get("api")) for record in records)


def observe(box, report):
    for key, what, argv, code in (
            ("context", "a process that only holds a context",
             [box.open, "cu.init", "cu.context=primary,0"], False),
            ("kernel", "a process that loads code and runs a kernel", box.python("kernel"), True)):
        run, records, apis = run_and_read_records(box, argv, {"CUDAGUARD_POLICY": "VALIDATE"})
        context, loaded = bool(CONTEXT.search(apis)), bool(CODE.search(apis))
        value = "records: %s" % (" ".join(dict.fromkeys(apis.split())) or "none")
        answer = run.code("cu.context") or run.words.get("context")
        if answer != "0":
            report.not_filled("observe." + key, what + ": the records of CUDAGUARD_LOG=all",
                              "the context could not be made: %s" % answer)
            continue
        report.check("observe." + key, what + ": the records of CUDAGUARD_LOG=all", value,
                     context and loaded == code, {"run": run.short(), "records": records[:20]})


def one_gpu(box, report):
    """Message and record of cuInit have the list that the driver was given."""
    uuid = box.uuids()[-1]
    run, records, _ = run_and_read_records(
        box, [box.open, "cu.see"], {"CUDAGUARD_VISIBLE_DEVICES": str(len(box.gpus) - 1)})
    shown = [record.get("object") for record in records if record.get("api") == "cuInit"]
    lines = [line for line in run.lines() if "cuInit" in line]
    report.check("observe.list",
                 "CUDAGUARD_LOG=all, a list: line and record of cuInit name the UUID",
                 "record: %s; %d line(s)" % (shown, len(lines)),
                 run.seen("cu.see") == [uuid] and uuid in str(shown) and lines,
                 {"run": run.short(), "records": records[:20]})


def fork(box, report):
    what = "a forked child of a process that had initialised CUDA: one line, the driver's answer"
    argv = [box.open, "cu.init", "fork=child", "cu.init", "cu.count", "end"]
    unguarded = box.run(argv)
    run = box.run(argv, guard=True, env={"CUDAGUARD_POLICY": "VALIDATE"})
    lines = [line for line in run.lines() if "fork" in line]
    report.check("observe.fork", what, "child's cuInit %s (unguarded %s), %d line(s)" % (
        run.code("child.cu.init"), unguarded.code("child.cu.init"), len(lines)),
        run.steps() == unguarded.steps() and len(run.steps()) == 3 and len(lines) == 1,
        {"unguarded": unguarded.short(), "guarded": run.short()})


def late_write(box, report):
    # With one GPU, "0" changes nothing and gets no line.
    late, left = ("0", 1) if len(box.gpus) > 1 else ("-1", 0)
    what = ("CUDA_VISIBLE_DEVICES=%s written after NVML reported the count: one line with the remedy" %
            late)
    argv = [box.open, "nv.see", "setenv=CUDA_VISIBLE_DEVICES=" + late, "cu.see"]
    unguarded = box.run(argv)
    if unguarded.code("nv.see") != "0":
        report.not_filled("observe.late-write", what, "NVML reports no count")
        return

    def counts(run):
        return len(run.seen("nv.see")), len(run.seen("cu.see"))

    run = box.run(argv, guard=True, env={"CUDAGUARD_POLICY": "VALIDATE"})
    lines = [line for line in run.lines() if "CUDAGUARD_VISIBLE_DEVICES" in line]
    report.check("observe.late-write", what, "NVML %d, then CUDA %d (unguarded %d); %d line(s)" % (
        *counts(run), counts(unguarded)[1], len(lines)),
        len(lines) == 1 and run.steps() == unguarded.steps(),
        {"unguarded": unguarded.short(), "guarded": run.short()})
    run = box.run(argv, guard=True, env={"CUDAGUARD_VISIBLE_DEVICES": late})
    report.check("observe.late-write-remedy",
                 "the same with the remedy in front: NVML and CUDA agree",
                 "NVML %d, CUDA %d" % counts(run), counts(run) == (left, left), run.short())


def rows(box, report):
    reason = box.why_not() or box.why_no_proxy()
    if reason:
        report.not_filled("observe", "CUDAGUARD_LOG=all, the fork line, the late write", reason)
        return
    observe(box, report)
    one_gpu(box, report)
    fork(box, report)
    late_write(box, report)
