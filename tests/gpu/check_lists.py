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
    """Returns (name, argv, kind, libraries preloaded after the guard) of each program."""
    driver, linked = box.program("gpu_driver"), box.program("gpu_driver_linked")
    nvml, nvml_linked = box.program("gpu_nvml"), box.program("gpu_nvml_linked")
    proxy = (box.proxies[0],)
    found = [
        ("driver dlopen", [driver], "driver", ()),
        ("driver cuGetProcAddress", [driver, "by=proc"], "driver", ()),
        ("driver linked", [linked], "driver", ()),
        ("driver linked, proxy preloaded", [linked], "driver", proxy),
        ("NVML dlopen", [nvml], "nvml", ()),
        ("NVML linked", [nvml_linked], "nvml", ()),
    ]
    for major, kind, name in box.runtimes():
        for first in ("runtime", "nvml"):
            argv = [box.program(name), "first=" + first]
            # A fake runtime has no memory.
            argv += ["copy=0"] if box.fake else []
            found.append(("cudart %s %s, %s first" % (major, kind, first), argv, "runtime", ()))
    return found


def answer_of(run, kind):
    return run.words.get({"driver": "cuInit", "nvml": "nvmlInit",
                          "runtime": "cudaGetDeviceCount"}[kind])


def shown(uuids):
    return "%d: %s" % (len(uuids), " ".join(uuid[:12] for uuid in uuids))


def judge_nvml(run, prefix, view, found):
    if (view or []) != run.listed(prefix):
        found.append("NVML shows " + shown(run.listed(prefix)))


def judge(run, kind, uuids, view, seen):
    """Returns the mistakes in a program's answers, or an empty list."""
    found = []
    words = run.words
    if run.rc != 0:
        found.append("exit code %s" % run.rc)
    if kind == "nvml" and view is None:  # refused: NVML is as without a driver
        if answer_of(run, kind) != NO_DRIVER:
            found.append("nvmlInit answers %s" % answer_of(run, kind))
    elif kind == "nvml":
        judge_nvml(run, "", view, found)
        for i in range(len(view or [])):
            if words.get("index%d" % i) != str(i):
                found.append("nvmlDeviceGetIndex of %d is %s" % (i, words.get("index%d" % i)))
        if words.get("beyond") != "2":
            found.append("handle by index beyond the count: %s" % words.get("beyond"))
        for i, uuid in enumerate(uuids):
            wanted = "0" if uuid in (view or []) else "6"
            if words.get("byUuid%d" % i) != wanted:
                found.append("handle by UUID of GPU %d: %s" % (i, words.get("byUuid%d" % i)))
    else:
        judge_cuda(run, kind, view, seen, found)
    if view is None and not run.lines():
        found.append("no line says why")
    return found


def judge_cuda(run, kind, view, seen, found):
    words = run.words
    wanted = "0" if seen else "100"
    if answer_of(run, kind) != wanted:
        found.append("answers %s, not %s" % (answer_of(run, kind), wanted))
    if seen and run.listed() != seen:
        found.append("shows " + shown(run.listed()))
    if kind == "runtime":
        judge_nvml(run, "nvml.", view, found)
        if words.get("driver.cuInit") != wanted:
            found.append("the driver beside it answers %s" % words.get("driver.cuInit"))
        if seen and run.listed("driver.") != seen:
            found.append("the driver beside it shows " + shown(run.listed("driver.")))
        for i in range(len(seen)):
            if words.get("copy%d" % i, "right") != "right":
                found.append("copy to device %d: %s" % (i, words["copy%d" % i]))


def usable(box, report):
    """Returns the programs that work unguarded, with the GPUs that they then show."""
    found, reported = [], []
    candidates = programs(box)
    uuids = ",".join(box.uuids())
    for (name, argv, kind, preload), run in zip(candidates, box.many(
            lambda item: box.run(item[1], env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}), candidates)):
        if kind == "nvml":
            argv = argv + ["uuids=" + uuids]
        good = answer_of(run, kind) == "0" and run.rc == 0
        reason = "unguarded it answers %s" % answer_of(run, kind)
        if good and sorted(run.listed()) != sorted(box.uuids()):
            good, reason = False, "CUDA and NVML list different devices (MIG?)"
        if good:
            found.append((name, argv, kind, preload))
        elif name.split(",")[0] not in reported:
            reported.append(name.split(",")[0])
            report.not_filled("control." + reported[-1].replace(" ", "-"),
                              "a program that the lists are tried with, unguarded", reason,
                              run.short())
    # Unguarded, this run saw all GPUs, which the lists below narrow.
    report.info("control.unguarded", "programs that see every GPU without the guard",
                "%d of %d programs, %d GPU(s)" % (len(found), len(candidates), len(box.gpus)))
    return found


def one_list(box, report, case, chosen):
    name, value, nested, view, seen = case
    env = {"CUDAGUARD_VISIBLE_DEVICES": value}
    if nested is not None:
        env["CUDA_VISIBLE_DEVICES"] = nested
    runs = box.many(lambda item: box.run(item[1], guard=True, env=env, preload=item[3]), chosen)
    bad, detail = [], {}
    for (program, _, kind, _), run in zip(chosen, runs):
        found = judge(run, kind, box.uuids(), view, seen)
        if found:
            bad.append(program)
            detail[program] = {"found": found, **run.short()}
    about = "refused: no GPU, and a line" if view is None else "%d GPU(s) to see, %d for CUDA" % (
        len(view), len(seen))
    verdict = "%d of %d programs agree" % (len(chosen) - len(bad), len(chosen))
    if bad:
        verdict += "; not: " + "; ".join("%s (%s)" % (p, detail[p]["found"][0]) for p in bad)[:300]
    given = value if len(value) < 20 else value[:16] + "..."
    if nested is not None:
        given += ', CUDA_VISIBLE_DEVICES="%s"' % (nested if len(nested) < 20 else nested[:12] + "...")
    lines = sorted({line for run in runs for line in run.lines()})[:4]
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
