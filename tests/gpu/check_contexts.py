# SPDX-License-Identifier: Apache-2.0
"""Measures GPU memory: one context, and a trainer with 24 workers, with and without
CUDAGUARD_CHILDREN."""

import box as machine

WORKERS = 24
MIB = 2**20
CONTEXT = "GPU memory that one process with a context takes"
TRAINER = "GPU memory of %d workers that each make a context" % WORKERS


def grown(before, after):
    """Returns the change in MiB of the GPU that changed most."""
    return max((b - a for a, b in zip(before, after)), key=abs) / MIB


def context(box, guarded, env):
    before = box.used_memory()
    held = box.hold([box.program("gpu_driver"), "do=context", "hold=1"], guard=guarded, env=env)
    line = held.line(60) or ""
    after = box.used_memory()
    held.end()
    words = machine.words_of(line)
    if before is None or after is None:
        return words, None
    return words, grown(before, after)


def one_context(box, report):
    name, what = "context.unguarded", CONTEXT + ", unguarded"
    words, size = context(box, False, None)
    if size is None:
        for other in ("unguarded", "force-cpu", "validate"):
            report.not_filled("context." + other, CONTEXT, "NVML reports no memory")
        return None
    value = "%.0f MiB; cuInit %s, context %s, %.0f ms" % (
        size, words.get("cuInit"), words.get("context"), int(words.get("contextNs", 0)) / 1e6)
    report.check(name, what, value, words.get("context") == "0" and size > 0, words)
    for key, env in (("force-cpu", {"CUDAGUARD_POLICY": "FORCE_CPU"}),
                     ("validate", {"CUDAGUARD_POLICY": "VALIDATE"})):
        if key == "validate" and box.why_no_proxy():
            report.not_filled("context." + key, CONTEXT, box.why_no_proxy())
            continue
        words, taken = context(box, True, env)
        wanted = "100" if key == "force-cpu" else "0"
        limit = size * 0.1 if key == "force-cpu" else size * 1.25 + 16
        report.check("context." + key, "%s, %s" % (CONTEXT, env["CUDAGUARD_POLICY"]),
                     "%.0f MiB; cuInit %s" % (taken, words.get("cuInit")),
                     words.get("cuInit") == wanted and taken <= limit, words)
    return size


def kernels(box, report):
    """Runs a kernel, so that a context that only exists is not mistaken for one that works."""
    for name, guarded, env in (("unguarded", False, None), ("validate", True, {
            "CUDAGUARD_POLICY": "VALIDATE"}), ("list", True, {"CUDAGUARD_VISIBLE_DEVICES": "0"})):
        what = "a kernel loaded from PTX, run and its result checked, " + name
        if guarded and box.why_no_proxy():
            report.not_filled("kernel." + name, what, box.why_no_proxy())
            continue
        run = box.run([box.program("gpu_driver"), "do=kernel"], guard=guarded, env=env)
        value = "module %s, launch %s, result %s" % tuple(
            run.words.get(key, "?") for key in ("module", "launch", "kernel"))
        good = run.words.get("kernel") == "right"
        if not guarded and not good:
            report.not_filled("kernel", "a kernel loaded from PTX",
                              "unguarded it does not work: " + value, run.short())
            return
        report.check("kernel." + name, what, value, good, run.short())


def workers(box, guarded, env, how, is_first):
    """Returns the memory that the workers alone use, and their answers."""
    held = box.hold(machine.workers(WORKERS, how), guard=guarded, env=env, is_first=is_first)
    text = ""
    held.send("1")
    text += held.line(60) or ""
    before = box.used_memory()
    held.send("2")
    text += held.line(120) or ""
    after = box.used_memory()
    held.send("3")
    text += held.end(60)
    words = machine.words_of(text)
    messages = [line for line in held.err().splitlines() if line.startswith("cudaguard[")]
    size = grown(before, after) if before and after else None
    return words, size, messages


def all_workers(box, report, one):
    setups = [("unguarded", "unguarded", False, None, "spawn", False)]
    narrowed = {"CUDAGUARD_POLICY": "VALIDATE", "CUDAGUARD_CHILDREN": "FORCE_CPU"}
    for how in ("spawn", "fork"):
        setups += [
            ("validate-" + how, "VALIDATE, " + how, True, {"CUDAGUARD_POLICY": "VALIDATE"}, how,
             False),
            ("children-" + how, "CUDAGUARD_CHILDREN=FORCE_CPU and CUDAGUARD_ROOT, " + how, True,
             narrowed, how, True),
        ]
    sizes = {}
    for key, about, guarded, env, how, is_first in setups:
        name, what = "workers." + key, TRAINER + ", " + about
        if box.left() < 40:
            report.not_filled(name, what, "out of time")
            continue
        if guarded and box.why_no_proxy():
            report.not_filled(name, what, box.why_no_proxy())
            continue
        words, size, messages = workers(box, guarded, env, how, is_first)
        value = "%s; %s of %s workers with a context, %s refused; trainer's context %s" % (
            "memory not reported" if size is None else "%.0f MiB" % size, words.get("contexts"),
            words.get("started"), words.get("refused"), words.get("trainer.context"))
        narrow = bool(env) and "CUDAGUARD_CHILDREN" in env
        good = words.get("refused" if narrow else "contexts") == str(WORKERS)
        good = good and words.get("trainer.context") == "0"
        sizes[key] = size
        if narrow and size is not None and one:
            good = good and size <= one * 0.1 * WORKERS
            if sizes.get("unguarded") is not None:
                value += "; %.0f MiB less than unguarded" % (sizes["unguarded"] - size)
        report.check(name, what, value, good, {"words": words, "lines": messages[:40]})


def rows(box, report):
    reason = box.why_not()
    if reason:
        for name, what in (("context", CONTEXT), ("kernel", "a kernel from PTX, run and checked"),
                           ("workers", TRAINER + ", with and without CUDAGUARD_CHILDREN")):
            report.not_filled(name, what, reason)
        return
    one = one_context(box, report)
    kernels(box, report)
    all_workers(box, report, one)
