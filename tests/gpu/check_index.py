# SPDX-License-Identifier: Apache-2.0
"""Checks VALIDATE and CLAMP with index 99 for every call that takes a device index."""

CALLS = ("cudaSetDevice", "cudaGetDeviceProperties", "cudaDeviceGetAttribute", "cudaInitDevice")
WHAT = "index 99, %s, %s"


def answers_of(run, calls):
    return ", ".join("%s %s (last error %s)" % (
        call, run.words.get(call), run.words.get(call + ".last")) for call in calls)


def judge(run, policy, kind, calls, count):
    """A static runtime compares the index itself, so the index never reaches the guard and cannot
    be clamped."""
    found = []
    clamped = policy == "CLAMP" and kind == "shared"
    wanted = "0" if clamped else "101"
    for call in calls:
        if run.words.get(call) != wanted:
            found.append("%s answers %s, not %s" % (call, run.words.get(call), wanted))
        if run.words.get(call + ".last") != wanted:
            found.append("%s leaves the error %s" % (call, run.words.get(call + ".last")))
        if run.words.get(call + ".again") != "0":
            found.append("%s leaves an error that stays" % call)
    current = str(count - 1) if clamped else "0"
    if run.words.get("current") != current:
        found.append("the current device is %s, not %s" % (run.words.get("current"), current))
    if kind == "shared" and not any("99" in line for line in run.lines()):
        found.append("no line names the index")
    return found


def runtime_rows(box, report):
    for major, kind, program in box.runtimes():
        unguarded = box.run([box.program(program), "do=index", "index=99"])
        calls = [call for call in CALLS if call in unguarded.words]
        control = unguarded.words.get("cudaSetDevice")
        if control != "101":
            report.not_filled("index.%s-%s" % (major, kind), WHAT % ("cudart", major + " " + kind),
                              "unguarded, cudaSetDevice(99) answers %s" % control,
                              unguarded.short())
            continue
        for policy in ("VALIDATE", "CLAMP"):
            run = box.run([box.program(program), "do=index", "index=99"], guard=True,
                          env={"CUDAGUARD_POLICY": policy})
            found = judge(run, policy, kind, calls, len(box.gpus))
            value = answers_of(run, calls[:1]) + ", then device %s; %d line(s)" % (
                run.words.get("current"), len(run.lines()))
            if found:
                value += "; " + "; ".join(found)[:200]
            report.check("index.%s-%s.%s" % (major, kind, policy), WHAT % (
                "cudart %s %s" % (major, kind), policy), value, not found,
                {"unguarded": unguarded.short(), "guarded": run.short(), "found": found})
            negative = box.run([box.program(program), "do=index", "index=-1"], guard=True,
                               env={"CUDAGUARD_POLICY": policy})
            if policy == "CLAMP":
                report.check("index.%s-%s.negative" % (major, kind),
                             "index -1, cudart %s %s, CLAMP: never clamped" % (major, kind),
                             answers_of(negative, calls[:1]),
                             all(negative.words.get(call) == "101" for call in calls),
                             negative.short())


def driver_rows(box, report):
    for policy, index, answer in (("VALIDATE", 99, "101"), ("CLAMP", 99, "0"),
                                  ("CLAMP", -1, "101")):
        for key, argv, preload in (
                ("dlopen", [box.program("gpu_driver")], ()),
                ("proc", [box.program("gpu_driver"), "by=proc"], ()),
                ("linked", [box.program("gpu_driver_linked")], (box.proxies[0],))):
            argv = argv + ["do=get", "index=%d" % index]
            unguarded = box.run(argv)
            run = box.run(argv, guard=True, env={"CUDAGUARD_POLICY": policy}, preload=preload)
            name = "index.cuDeviceGet-%s.%s%s" % (key, policy, "" if index > 0 else ".negative")
            what = "cuDeviceGet(%d), %s, %s" % (index, key, policy)
            if unguarded.words.get("cuDeviceGet") != "101":
                report.not_filled(name, what,
                                  "unguarded it answers %s" % unguarded.words.get("cuDeviceGet"))
                continue
            value = "%s, device %s; %d line(s)" % (
                run.words.get("cuDeviceGet"), run.words.get("device"), len(run.lines()))
            good = run.words.get("cuDeviceGet") == answer and (answer != "0" or run.words.get(
                "device") not in (None, "-7"))
            good = good and (index < 0 or any("99" in line for line in run.lines()))
            report.check(name, what, value, good, run.short())


def rows(box, report):
    reason = box.why_not() or box.why_no_proxy()
    if reason:
        report.not_filled("index", WHAT % ("cudart 11, 12, 13 shared and static, cuDeviceGet",
                                           "VALIDATE and CLAMP"), reason)
        return
    runtime_rows(box, report)
    driver_rows(box, report)
