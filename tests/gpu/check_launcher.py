# SPDX-License-Identifier: Apache-2.0
"""Checks `cudaguard run`, `verify`, the fences and rules with a device that is there.

The fences are tried with `env -i`, which removes the guard from the program: only the fence is left.
"""

import os

import box as machine


def launch(box, *words, **more):
    return box.run([box.launcher, *words], timeout=90, **more)


def without_guard(box, *words):
    """A command whose program runs without variables of cudaguard."""
    path = box.environment.get("LD_LIBRARY_PATH")
    return ["env", "-i", *(["LD_LIBRARY_PATH=" + path] if path else []), *words]


def run_and_verify(box, report):
    driver = box.program("gpu_driver")
    run = launch(box, "run", "--", driver)
    report.check("launcher.run", "cudaguard run: cuInit answers 100, and a line says so",
                 "cuInit %s; %s" % (run.words.get("cuInit"), "; ".join(run.lines())),
                 run.words.get("cuInit") == "100" and len(run.lines()) == 1, run.short())
    run = launch(box, "verify", "--", driver)
    report.check("launcher.verify", "verify fails and names the program that asked",
                 "exit code %s" % run.rc,
                 run.rc != 0 and "gpu_driver" in run.err + run.out, run.short())
    run = launch(box, "verify", "--", "true")
    report.check("launcher.verify-pass", "verify passes a program that does not ask",
                 "exit code %s" % run.rc, run.rc == 0, run.short())


def fences(box, report):
    driver = box.program("gpu_driver")
    if box.fake:
        report.not_filled("fence", "the fences", "a fake driver opens no device")
        return
    control = box.run(without_guard(box, driver))
    for name, option in (("ioctls", "--fence=require"), ("devices", "--fence=devices")):
        run = launch(box, "run", option, "--", *without_guard(box, driver))
        report.check("fence." + name, "run %s, a program without the guard: no CUDA" % option,
                     "exit code %s, cuInit %s (unfenced %s); %s" % (
                         run.rc, run.words.get("cuInit"), control.words.get("cuInit"),
                         "; ".join(run.err.strip().splitlines()[:3])),
                     control.words.get("cuInit") == "0" and run.words.get("cuInit") not in (None, "0"),
                     run.short())
    for node in ["/dev/nvidiactl", *box.nodes]:
        script = "if : < %s; then echo opened=1; else echo opened=0; fi" % node
        control = box.run(["sh", "-c", "( %s ) 2>/dev/null" % script])
        run = launch(box, "run", "--fence=devices", "--", *without_guard(
            box, "sh", "-c", "( %s ) 2>/dev/null" % script))
        report.check("fence.open-" + os.path.basename(node), "run --fence=devices: an open of " + node,
                     "opened %s (unfenced %s)" % (run.words.get("opened"), control.words.get("opened")),
                     run.words.get("opened") == "0" and control.words.get("opened") == "1", run.short())


def rules(box, report):
    driver, nvml = box.program("gpu_driver"), box.program("gpu_nvml")
    both = ["sh", "-c", '"$1"; "$2" | sed "s/^/nvml./"', "sh", driver, nvml]
    run = launch(box, "run", "--rule", "VALIDATE program=gpu_driver", "--", *both)
    nvml_count = run.words.get("nvml.count", "0")
    report.check("rules.program", "run --rule 'VALIDATE program=gpu_driver': this program alone",
                 "its cuInit %s; NVML of another program: %s GPUs" % (run.words.get("cuInit"),
                                                                    nvml_count),
                 run.words.get("cuInit") == "0" and nvml_count == "0", run.short())
    for how in ("spawn", "fork"):
        held = box.hold([box.launcher, "run", "--children=gpu", "--", box.program("gpu_workers"),
                         "workers=4", "how=" + how])
        text = ""
        for step in "12":
            held.send(step)
            text += held.line(60) or ""
        held.send("3")
        text += held.end(60)
        words = machine.words_of(text)
        report.check("rules.children-" + how, "run --children=gpu: 4 workers, " + how,
                     "parent's cuInit %s; %s of %s workers with a context" % (
                         words.get("trainer.cuInit"), words.get("contexts"), words.get("started")),
                     words.get("trainer.cuInit") == "100" and words.get("contexts") == "4",
                     {"words": words, "err": held.err()[:2000]})


def rows(box, report):
    reason = box.why_not() or box.why_no_proxy()
    if not reason and not os.path.exists(box.launcher):
        reason = "%s is not built" % box.launcher
    if reason:
        report.not_filled("launcher", "run, verify, the fences and rules", reason)
        return
    doctor = launch(box, "doctor")
    report.info("launcher.doctor", "what doctor prints of this machine",
                "exit code %s, %d lines" % (doctor.rc, len(doctor.out.splitlines())), doctor.short())
    run_and_verify(box, report)
    fences(box, report)
    rules(box, report)
