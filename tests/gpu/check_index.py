# SPDX-License-Identifier: Apache-2.0
"""Checks VALIDATE and CLAMP with index 99 for every call that takes a device index."""

WHAT = "index %d, %s, %s"
CALLS = ("rt.properties", "rt.attribute", "rt.initdevice", "rt.set")


def steps_of(major, index):
    """The program asks twice for the last error, because an error must be there only once."""
    calls = [call for call in CALLS if (major, call) != ("11", "rt.initdevice")]
    steps = [step for call in calls for step in ("%s=%d" % (call, index), "rt.last", "rt.last")]
    return ["rt.count", *steps, "rt.current"]


def judge(run, steps, answer, current):
    """Returns the mistakes, or an empty list."""
    got = [(step, text.split(":")[0]) for step, text in run.steps()]
    wanted = [("rt.count", "0")]
    for step in steps[1:-1:3]:
        wanted += [(step.split("=")[0], answer), ("rt.last", answer), ("rt.last", "0")]
    found = ["%s answers %s, not %s" % (*one, other[1])
             for one, other in zip(got, wanted) if one != other]
    if run.words.get("rt.current") != "0:%d" % current:
        found.append("the current device is %s" % run.words.get("rt.current"))
    return found


def runtime_rows(box, report):
    for major, kind, name in box.runtimes():
        about = "cudart %s %s" % (major, kind)
        steps = steps_of(major, 99)
        unguarded = box.run([box.program(name), *steps])
        if unguarded.code("rt.set") != "101":
            report.not_filled("index.%s-%s" % (major, kind), WHAT % (99, about, "unguarded"),
                              "unguarded, cudaSetDevice(99) answers %s" % unguarded.code("rt.set"),
                              unguarded.short())
            continue
        for policy, index in (("VALIDATE", 99), ("CLAMP", 99), ("CLAMP", -1)):
            steps = steps_of(major, index)
            run = box.run([box.program(name), *steps], guard=True, env={"CUDAGUARD_POLICY": policy})
            # A static runtime compares the index itself, so the index never reaches the guard and
            # cannot be clamped.
            clamped = (policy, index, kind) == ("CLAMP", 99, "shared")
            answer, current = ("0", len(box.gpus) - 1) if clamped else ("101", 0)
            found = judge(run, steps, answer, current)
            if index == 99 and kind == "shared" and not any("99" in line for line in run.lines()):
                found.append("no line names the index")
            report.check("index.%s-%s.%s" % (major, kind, policy if index == 99 else "negative"),
                         WHAT % (index, about, policy),
                         "cudaSetDevice %s, then device %s; %d line(s)%s" % (
                             run.code("rt.set"), run.words.get("rt.current"), len(run.lines()),
                             "; " + "; ".join(found)[:200] if found else ""),
                         not found, {"unguarded": unguarded.short(), "guarded": run.short()})


def driver_rows(box, report):
    for policy, index, answer in (("VALIDATE", 99, "101"), ("CLAMP", 99, "0"),
                                  ("CLAMP", -1, "101")):
        for key, argv, preload in (("dlopen", [box.open], ()),
                                   ("proc", [box.open, "cu.route=proc"], ()),
                                   ("linked", [box.linked], (box.proxies[0],))):
            argv = argv + ["cu.init", "cu.get=%d" % index]
            unguarded = box.run(argv)
            run = box.run(argv, guard=True, env={"CUDAGUARD_POLICY": policy}, preload=preload)
            name = "index.cuDeviceGet-%s.%s%s" % (key, policy, "" if index > 0 else ".negative")
            what = "cuDeviceGet(%d), %s, %s" % (index, key, policy)
            if unguarded.code("cu.get") != "101":
                report.not_filled(name, what,
                                  "unguarded it answers %s" % unguarded.code("cu.get"))
                continue
            good = run.code("cu.get") == answer and (
                answer != "0" or run.words["cu.get"] != "0:-7")
            good = good and (index < 0 or any("99" in line for line in run.lines()))
            report.check(name, what, "%s; %d line(s)" % (run.words.get("cu.get"), len(run.lines())),
                         good, run.short())


def rows(box, report):
    reason = box.why_not() or box.why_no_proxy()
    if reason:
        report.not_filled("index", WHAT % (99, "cudart 11, 12, 13 shared and static, cuDeviceGet",
                                           "VALIDATE and CLAMP"), reason)
        return
    runtime_rows(box, report)
    driver_rows(box, report)
