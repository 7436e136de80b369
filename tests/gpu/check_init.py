# SPDX-License-Identifier: Apache-2.0
"""Measures cuInit: NVIDIA's own, with CUDA_VISIBLE_DEVICES=, and guarded."""

import collections
import statistics

ROUNDS = 7
# Each entry has the name, the description and the policy's variables (None: unguarded).
SETUPS = (
    ("unguarded", "the first cuInit of a process, unguarded", None),
    ("hidden", "the same, unguarded, with CUDA_VISIBLE_DEVICES=", {"CUDA_VISIBLE_DEVICES": ""}),
    ("force-cpu", "the same under FORCE_CPU", {"CUDAGUARD_POLICY": "FORCE_CPU"}),
    ("validate", "the same under VALIDATE", {"CUDAGUARD_POLICY": "VALIDATE"}),
    ("list", "the same under the allow-list 0", {"CUDAGUARD_VISIBLE_DEVICES": "0"}),
)


def shown(values):
    """Formats nanoseconds in a unit that fits."""
    middle = statistics.median(values)
    unit, size = ("ms", 1e6) if middle >= 1e6 else ("us", 1e3) if middle >= 1e3 else ("ns", 1)
    return "%.2f %s (%.2f-%.2f)" % (middle / size, unit, min(values) / size, max(values) / size)


def rows(box, report):
    if not box.may_enter or not box.have("gpu_driver"):
        for name, what, _ in SETUPS:
            report.not_filled("cuInit." + name, what,
                              "the driver is not entered here, or tests/gpu is not built")
        return
    times, answers, opens = (collections.defaultdict(list) for _ in range(3))
    for turn in range(ROUNDS):
        for name, _, env in SETUPS[turn % len(SETUPS):] + SETUPS[:turn % len(SETUPS)]:
            if box.left() < 30:
                continue
            guarded = name not in ("unguarded", "hidden")
            if name in ("validate", "list") and (box.why_not() or box.why_no_proxy()):
                continue
            run = box.run([box.program("gpu_driver"), "do=init"], guard=guarded, env=env)
            if run.number("initNs") is not None:
                times[name].append(run.number("initNs"))
            answers[name].append(run.words.get("cuInit"))
            if turn == 0:
                watched = box.run([box.program("gpu_driver"), "do=init"], guard=guarded, env=env,
                                  watch=True)
                opens[name] = len(watched.opens)
    for name, what, _ in SETUPS:
        if not times[name] or box.why_not_watched():
            reason = (box.why_not_watched() or box.why_not() or box.why_no_proxy() or
                      "answers %s" % set(answers[name]))
            report.not_filled("cuInit." + name, what, reason)
            continue
        value = "%s; answers %s; %d opens of /dev/nvidia*" % (
            shown(times[name]), ",".join(sorted(set(answers[name]))), opens[name])
        detail = {"ns": times[name], "opens": opens[name]}
        if name == "force-cpu":
            if times["unguarded"] and not box.fake:
                value += "; %.0f times faster than unguarded" % (
                    statistics.median(times["unguarded"]) / statistics.median(times[name]))
            report.check("cuInit." + name, what, value,
                         set(answers[name]) == {"100"} and opens[name] == 0, detail)
        elif name in ("validate", "list"):
            report.check("cuInit." + name, what, value, set(answers[name]) == {"0"}, detail)
        else:
            report.info("cuInit." + name, what, value, detail)
