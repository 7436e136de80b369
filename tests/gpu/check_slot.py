# SPDX-License-Identifier: Apache-2.0
"""Checks how the allow-list is enforced: the guard finds and uses the driver's own import slot of
getenv."""

import json
import os


def asked(box, guarded, env):
    """Returns which of the driver's files call the process's getenv for CUDA_VISIBLE_DEVICES."""
    log = box.scratch_file("getenv")
    run = box.run([box.program("gpu_driver")], guard=guarded, env=dict(env, CG_RECORDED=log),
                  preload=(box.library("getenv"),))
    found = []
    if os.path.exists(log):
        with open(log, encoding="utf-8", errors="replace") as stream:
            for line in stream:
                parts = line.split(None, 3)
                if parts[2] == "CUDA_VISIBLE_DEVICES":
                    found.append(os.path.basename(parts[3].strip()))
    return run, found


def report_records(path):
    records = []
    if os.path.exists(path):
        with open(path, encoding="utf-8", errors="replace") as stream:
            for line in stream:
                try:
                    records.append(json.loads(line))
                except ValueError:
                    records.append({"not JSON": line[:200]})
    return records


def slot(box, report):
    name, what = "slot.getenv", "libcuda's own getenv import: who asks for CUDA_VISIBLE_DEVICES"
    unguarded, before = asked(box, False, {})
    drivers = [file for file in before if file.startswith("libcuda.so")]
    if not drivers:
        report.not_filled(name, what, "unguarded, no libcuda was seen to ask getenv (asked: %s)" %
                          ", ".join(sorted(set(before))), unguarded.short())
        return
    run, after = asked(box, True, {"CUDAGUARD_VISIBLE_DEVICES": "0"})
    left = [file for file in after if file.startswith("libcuda.so")]
    value = "unguarded libcuda asks libc's getenv %d time(s); with the list %d, and cuInit answers %s" % (
        len(drivers), len(left), run.words.get("cuInit"))
    report.check(name, what, value, not left and run.words.get("cuInit") == "0"
                 and run.listed() == box.uuids()[:1], {"unguarded": before, "guarded": after,
                                                       "run": run.short()})


def record(box, report, value, seen, name, what):
    """Checks that the message and the record of cuInit have the list that the driver was given."""
    path = box.scratch_file("report")
    run = box.run([box.program("gpu_driver")], guard=True, env={
        "CUDAGUARD_VISIBLE_DEVICES": value, "CUDAGUARD_LOG": "all", "CUDAGUARD_REPORT": path})
    records = report_records(path)
    init_records = [r for r in records if r.get("event") == "init" or r.get("api") == "cuInit"]
    text = " ".join(str(r.get("object", "")) for r in init_records)
    shown = all(uuid in text for uuid in seen)
    lines = [line for line in run.lines() if "cuInit" in line]
    good = run.listed() == seen and shown and bool(lines)
    report.check(name, what, "cuInit %s, %d GPU(s); record: %s; %d line(s)" % (
        run.words.get("cuInit"), len(run.listed()), text[:60] or "none", len(lines)), good,
        {"run": run.short(), "records": records[:20]})


def rows(box, report):
    what = "the allow-list is enforced through the driver's getenv import"
    reason = box.why_not() or box.why_no_proxy()
    if reason:
        report.not_filled("slot", what, reason)
        return
    slot(box, report)
    record(box, report, "0", box.uuids()[:1], "slot.record",
           "CUDAGUARD_LOG=all, list 0: line and record of cuInit name the UUID")
    if len(box.gpus) > 1:
        record(box, report, "1", box.uuids()[1:2], "slot.hides",
               "the same with a list that hides GPU 0")
    else:
        report.not_filled("slot.hides", "the same with a list that hides a GPU", "one GPU only")
