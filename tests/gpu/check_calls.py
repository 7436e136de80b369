# SPDX-License-Identifier: Apache-2.0
"""Compares the cost of a forwarded call with the unguarded call; an unguarded function costs
nothing more."""

import statistics

from support import harness

ROUNDS = 7
LIMIT = 3.0  # ns
GUARDED = harness.guarded("DRIVER")


def timed(box, report, name, what, argv):
    # Both runs have the same number of variables, because a driver may call getenv.
    setups = {"unguarded": {"CG_UNUSED": "VALIDATE", "CG_NO_PRELOAD": box.guard},
              "VALIDATE": {"CUDAGUARD_POLICY": "VALIDATE"},
              "list": {"CUDAGUARD_VISIBLE_DEVICES": "0"}}
    found = {key: [] for key in setups}
    for turn in range(ROUNDS):
        order = list(setups)
        for key in order[turn % 3:] + order[:turn % 3]:
            run = box.run(argv + ["do=calls"], guard=key != "unguarded", env=setups[key])
            if "ns" in run.words:
                found[key].append(float(run.words["ns"]))
    if not all(found.values()):
        report.not_filled(name, what, "no times: " + ", ".join(
            "%s %d" % (key, len(values)) for key, values in found.items()))
        return
    middle = {key: statistics.median(values) for key, values in found.items()}
    added = middle["VALIDATE"] - middle["unguarded"]
    value = "unguarded %.1f ns, VALIDATE %+.1f ns, list %+.1f ns [limit +%g ns: %s]" % (
        middle["unguarded"], added, middle["list"] - middle["unguarded"], LIMIT,
        "met" if added <= LIMIT else "MISSED")
    report.info(name, what, value, found)


def pointers(box, report):
    name = "calls.pointers"
    what = "names that are not guarded: the driver's own pointer, by dlsym and cuGetProcAddress"
    argv = [box.program("gpu_driver"), "do=names"]
    unguarded = box.run(argv).words
    run = box.run(argv, guard=True, env={"CUDAGUARD_POLICY": "VALIDATE"})
    wrong, ours = [], 0
    for key, file in unguarded.items():
        name_of = key.split(".", 1)[-1]
        mine = run.words.get(key)
        if name_of in GUARDED and file != "null":
            ours += 1
            if "cudaguard" not in (mine or ""):
                wrong.append("%s in %s" % (key, mine))
        elif mine != file:
            wrong.append("%s in %s, unguarded in %s" % (key, mine, file))
    report.check(name, what, "%d names asked, %d ours%s" % (
        len(unguarded), ours, "; wrong: " + ", ".join(wrong)[:200] if wrong else ""),
        bool(unguarded) and not wrong, {"unguarded": unguarded, "guarded": run.words})


def rows(box, report):
    reason = box.why_not() or box.why_no_proxy()
    if reason:
        report.not_filled("calls", "cost of a forwarded cudaSetDevice and cuDeviceGet", reason)
        return
    timed(box, report, "calls.cuDeviceGet", "cuDeviceGet(0), ns per call",
          [box.program("gpu_driver")])
    for major, kind, program in box.runtimes():
        unguarded = box.run([box.program(program), "do=calls"])
        name = "calls.cudaSetDevice-%s-%s" % (major, kind)
        what = "cudaSetDevice(0), cudart %s %s, ns per call" % (major, kind)
        if "ns" not in unguarded.words:
            report.not_filled(name, what,
                              "unguarded it answers %s" % unguarded.words.get("cudaSetDevice"))
        elif kind == "shared":
            timed(box, report, name, what, [box.program(program)])
    pointers(box, report)
