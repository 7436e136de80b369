# SPDX-License-Identifier: Apache-2.0
"""Checks the allow-list: driver, runtime and NVML show exactly its GPUs, or none if it is wrong.

There is one row for each list, and every program has to agree with a plain model.
"""

NO_DRIVER = "9"  # NVML_ERROR_DRIVER_NOT_LOADED
WHAT = "allow-list %s: %s"


def lists(uuids):
    """Yields (name, CUDAGUARD_VISIBLE_DEVICES, the program's CUDA_VISIBLE_DEVICES, view, seen by
    CUDA).

    view: the UUIDs that NVML shows, None if the list is refused; seen: those that CUDA shows.
    """
    count = len(uuids)
    first = uuids[0]
    found = [
        ("index0", "0", None, [first], [first]),
        ("uuid0", first, None, [first], [first]),
        ("all", ",".join(str(i) for i in range(count)), None, uuids, uuids),
        ("nested-index", "0", "0", [first], [first]),
        ("nested-uuid", "0", first, [first], [first]),
        ("nested-none", "0", "", [first], []),
        ("nested-unknown", "0", "1", [first], []),
        ("unknown-index", str(count), None, None, []),
        ("unknown-uuid", "GPU-00000000-dead-beef-0000-000000000000", None, None, []),
        ("duplicate", "0,%s" % first, None, None, []),
        ("not-a-list", "all", None, None, []),
    ]
    prefix = first[:12]
    if sum(uuid.startswith(prefix) for uuid in uuids) == 1:
        found.append(("prefix0", prefix, None, [first], [first]))
    if count < 2:
        return found
    last = uuids[-1]
    backwards = uuids[::-1]
    found += [
        ("last", str(count - 1), None, [last], [last]),
        ("reversed", ",".join(str(i) for i in reversed(range(count))), None, backwards, backwards),
        ("uuids-reversed", ",".join(backwards), None, backwards, backwards),
        ("two", "%d,0" % (count - 1), None, [last, first], [last, first]),
        ("two-nested", "%d,0" % (count - 1), "1", [last, first], [first]),
        ("two-nested-uuid", "%d,0" % (count - 1), last, [last, first], [last]),
    ]
    return found


SEVERAL = ("last", "reversed", "uuids-reversed", "two", "two-nested", "two-nested-uuid")


def programs(box):
    """Returns (name, argv, libraries preloaded after the guard) of each program."""
    found = [
        ("driver dlopen", [box.open, "cu.see"], ()),
        ("driver cuGetProcAddress", [box.open, "cu.route=proc", "cu.see"], ()),
        ("driver linked", [box.linked, "cu.see"], ()),
        ("driver linked, proxy preloaded", [box.linked, "cu.see"], (box.proxies[0],)),
        ("NVML dlopen", [box.open, "nv.see"], ()),
        ("NVML linked", [box.linked_nvml, "nv.see"], ()),
    ]
    for major, kind, name in box.runtimes():
        # cudaFree(0) makes a context.
        for first, steps in (("runtime", ["rt.see", "rt.free=0", "nv.see", "cu.see"]),
                             ("nvml", ["nv.see", "rt.see", "rt.free=0", "cu.see"])):
            found.append(("cudart %s %s, %s first" % (major, kind, first),
                          [box.program(name), *steps], ()))
    return found


def kind_of(argv):
    """The step that says which interface is tried."""
    return next(step for step in ("rt.see", "cu.see", "nv.see") if step in argv)


def shown(uuids):
    return "%d: %s" % (len(uuids), " ".join(uuid[:12] for uuid in uuids))


def handles(box, view):
    """{step: its answer} of NVML's handles: beyond the count, and by the UUID of each GPU."""
    found = {"nv.get=%d" % len(view): "2:null"}
    for uuid in box.uuids():
        found["nv.uuid=" + uuid] = ("0:%d:%s" % (view.index(uuid), uuid[4:]) if uuid in view
                                    else "6:77:!6")
    return found


def judge(box, run, argv, view, seen):
    """Returns the mistakes in a program's answers, or an empty list."""
    found = []
    cuda = "0" if seen else "100"
    codes = {"cu.see": cuda, "rt.see": cuda, "rt.free": cuda,
             "nv.see": NO_DRIVER if view is None else "0"}
    uuids = {"cu.see": seen, "rt.see": seen, "nv.see": view or []}
    for step in [step.split("=")[0] for step in argv if step.split("=")[0] in codes]:
        if run.code(step) != codes[step]:
            found.append("%s answers %s, not %s" % (step, run.code(step), codes[step]))
        elif codes[step] == "0" and step in uuids and run.seen(step) != uuids[step]:
            found.append("%s shows %s" % (step, shown(run.seen(step))))
    if kind_of(argv) == "nv.see" and view is not None:
        got = [answer for step, answer in run.steps() if step in ("nv.get", "nv.uuid")]
        wanted = list(handles(box, view).values())
        if got != wanted:
            found.append("handles are %s, not %s" % (got, wanted))
    if run.rc != 0:
        found.append("exit code %s" % run.rc)
    if view is None and not run.lines():
        found.append("no line says why")
    return found


def usable(box, report):
    """Returns the programs that see every GPU unguarded."""
    found, reported = [], []
    candidates = programs(box)
    for program, run in zip(candidates, box.many(
            lambda item: box.run(item[1], env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}), candidates)):
        name, argv, _ = program
        step = kind_of(argv)
        if run.code(step) != "0" or run.rc != 0:
            reason = "unguarded it answers %s" % run.code(step)
        elif sorted(run.seen(step)) != sorted(box.uuids()):
            reason = "CUDA and NVML list different devices (MIG?)"
        else:
            found.append(program)
            continue
        if name.split(",")[0] not in reported:
            reported.append(name.split(",")[0])
            report.not_filled("control." + reported[-1].replace(" ", "-"),
                              "a program that the lists are tried with, unguarded", reason,
                              run.short())
    report.info("control.unguarded", "programs that see every GPU without the guard",
                "%d of %d programs, %d GPU(s)" % (len(found), len(candidates), len(box.gpus)))
    return found


def one_list(box, report, case, chosen):
    name, value, nested, view, seen = case
    env = {"CUDAGUARD_VISIBLE_DEVICES": value}
    if nested is not None:
        env["CUDA_VISIBLE_DEVICES"] = nested

    def run(item):
        more = handles(box, view or []) if kind_of(item[1]) == "nv.see" else ()
        return box.run([*item[1], *more], guard=True, env=env, preload=item[2])

    bad, detail = [], {}
    runs = box.many(run, chosen)
    for (program, argv, _), result in zip(chosen, runs):
        found = judge(box, result, argv, view, seen)
        if found:
            bad.append(program)
            detail[program] = {"found": found, **result.short()}
    about = "refused: no GPU, and a line" if view is None else "%d GPU(s) to see, %d for CUDA" % (
        len(view), len(seen))
    verdict = "%d of %d programs agree" % (len(chosen) - len(bad), len(chosen))
    if bad:
        verdict += "; not: " + "; ".join("%s (%s)" % (p, detail[p]["found"][0]) for p in bad)[:300]
    given = value if len(value) < 20 else value[:16] + "..."
    if nested is not None:
        given += ', CUDA_VISIBLE_DEVICES="%s"' % (nested if len(nested) < 20 else nested[:12] + "...")
    lines = sorted({line for result in runs for line in result.lines()})[:4]
    report.check("allow." + name, WHAT % (given, about), verdict, not bad,
                 {"failed": detail, "lines": lines})


def rows(box, report):
    reason = box.why_not() or box.why_no_proxy()
    if reason:
        report.not_filled("allow", WHAT % ("by index, UUID, reversed, subset", "driver, runtime and "
                                           "NVML agree"), reason)
        return
    chosen = usable(box, report)
    if not chosen:
        return
    for case in lists(box.uuids()):
        if box.left() < 30:
            report.not_filled("allow." + case[0], WHAT % (case[1], "agreement"), "out of time")
            continue
        one_list(box, report, case, chosen)
    if len(box.gpus) < 2:
        for name in SEVERAL:
            report.not_filled("allow." + name, WHAT % ("of several GPUs", name), "one GPU only")
