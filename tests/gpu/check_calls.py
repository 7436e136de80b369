# SPDX-License-Identifier: Apache-2.0
"""A function that is not guarded is the driver's own, so it costs nothing more. (scripts/bench
measures a forwarded call.)"""

from support import harness

GUARDED = harness.guarded("DRIVER")
NAMES = ("cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName",
         "cuDeviceGetUuid", "cuDeviceGetPCIBusId", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent",
         "cuCtxSynchronize", "cuModuleLoadData", "cuModuleGetFunction", "cuMemAlloc_v2",
         "cuMemcpyDtoH_v2", "cuLaunchKernel", "cuBrandNewThing")
WHAT = "names that are not guarded: the driver's own pointer, by dlsym and cuGetProcAddress"


def places(run):
    """Returns {(name, way): the file that has the function}."""
    steps = [answer for _, answer in run.steps()]
    found = {(name, "dlsym"): answer for name, answer in zip(NAMES, steps)}
    # ANSWER:STATUS:FILE+OFFSET of cuGetProcAddress_v2, then the same of its old form.
    found.update({(name, "proc"): (answer.split(":") + [""] * 3)[2]
                  for name, answer in zip(NAMES, steps[len(NAMES):])})
    return {key: place.split("+")[0] for key, place in found.items()}


def rows(box, report):
    reason = box.why_not() or box.why_no_proxy()
    if reason:
        report.not_filled("calls", WHAT, reason)
        return
    argv = [box.open, *("cu.where=" + name for name in NAMES),
            *("cu.ask=%s,12000" % name.split("_")[0] for name in NAMES)]
    unguarded = box.run(argv)
    run = box.run(argv, guard=True, env={"CUDAGUARD_POLICY": "VALIDATE"})
    theirs, mine = places(unguarded), places(run)
    wrong, ours = [], 0
    for (name, way), file in theirs.items():
        if name in GUARDED and file != "null":
            ours += 1
            good = "cudaguard" in mine.get((name, way), "")
        else:
            good = mine.get((name, way)) == file
        if not good:
            wrong.append("%s by %s in %s, unguarded in %s" % (
                name, way, mine.get((name, way)), file))
    report.check("calls.pointers", WHAT, "%d names asked, %d ours%s" % (
        len(theirs), ours, "; wrong: " + ", ".join(wrong)[:200] if wrong else ""),
        len(theirs) == 2 * len(NAMES) and not wrong,
        {"unguarded": unguarded.short(), "guarded": run.short()})
