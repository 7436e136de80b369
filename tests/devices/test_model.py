# SPDX-License-Identifier: Apache-2.0
"""Any allow-list with any value that the program writes, against a plain model.

What is seen is always a part of the list, in the order that the model says, and driver, both
runtimes and NVML agree. SEED and CASES repeat or lengthen a run.
"""

import random
import re

from support import box
from support.box import ALL, uuid

SEED = 20261121
CASES = 320
BATCH = 40
BLANKS = " \t\n\v\f\r"


def prefixes(text):
    """The GPUs of which `text` ("GPU-...") is a beginning."""
    return [gpu for gpu in ALL if uuid(gpu).startswith(text)]


def model_of_list(text):
    """The GPUs that an allow-list names, or None for a list that is a mistake; [] allows none."""
    if text.strip(BLANKS) in ("", "-1"):
        return []
    view = []
    for entry in text.split(","):
        entry = entry.strip(BLANKS)
        if re.fullmatch(r"\d+", entry):
            found = [int(entry)] if int(entry) < len(ALL) else []
        elif entry.startswith("GPU-") and len(entry) > 4:
            found = prefixes(entry)
        else:
            return None
        if len(found) != 1 or found[0] in view:
            return None
        view += found
    return view


def model_of_rewrite(text, view):
    """CUDA's own reading of CUDA_VISIBLE_DEVICES on a machine that holds `view` alone."""
    if text is None:
        return list(view)
    chosen = []
    by_uuid = text.startswith("GPU-")
    for entry in text.split(","):
        if by_uuid:
            found = [gpu for gpu in prefixes(entry) if gpu in view]
            if not entry.startswith("GPU-") or len(found) != 1:
                break
            gpu = found[0]
        else:
            number = re.match(r"[ \t\n\v\f\r]*([+-]?\d+)", entry)
            if number is None or not 0 <= int(number[1]) < len(view):
                break
            gpu = view[int(number[1])]
        if gpu in chosen:
            return []
        chosen.append(gpu)
    return chosen


def model(allow, own):
    """What is seen: by CUDA, by NVML."""
    view = model_of_list(allow)
    if not view:
        return "!100", []
    return model_of_rewrite(own, view) or "!100", view


def some_uuid(rng):
    gpu = rng.choice(ALL)
    return uuid(gpu, rng.choice((None, None, 8, 1, 3, 24, 33, 35, rng.randrange(1, 37))))


def some_list(rng):
    """Mostly good lists; the mistakes that people make."""
    gpus = rng.sample(ALL, rng.choice((1, 1, 2, 2, 3, 4, 8)))
    words = [rng.choice((str(gpu), str(gpu), "0%d" % gpu, " %d " % gpu, uuid(gpu),
                         uuid(gpu, rng.choice((8, 36, 36))))) for gpu in gpus]
    if rng.random() < 0.25:
        mistake = rng.choice(("8", "-1", "", "x", "1gpu", "99", "GPU-", "GPU-zz", "all", words[0],
                              some_uuid(rng), "0x1", "GPU0", "+1", "1.0", "MIG-1", "4294967296"))
        words.insert(rng.randrange(len(words) + 1), mistake)
    return ",".join(words)


def some_number(rng):
    """Mostly indices of the view, in the ways that strtol takes them."""
    small = rng.randrange(3)
    return rng.choice(("%d" % small, "%d" % rng.randrange(4), "%d" % rng.randrange(9),
                       "0%d" % small, " %d" % small, "%d " % small, "+%d" % small, "%dgpu" % small,
                       "-0", "-1", "", "x", "9" * 23))


def some_rewrite(rng):
    """Anything that a program may write; None: nothing."""
    if rng.random() < 0.12:
        return rng.choice((None, None, "", "-1", "none", "all", ",", "0,0", "NoDevFiles"))
    if rng.random() < 0.3:
        words = [some_uuid(rng) for _ in range(rng.randrange(1, 4))]
    else:
        words = [some_number(rng) for _ in range(rng.randrange(1, 5))]
    if rng.random() < 0.1:
        words.insert(rng.randrange(len(words) + 1), some_uuid(rng))
    return ",".join(words)


class Model(box.Case):
    STEPS = ["cu.see", "nv.see", "rt12.see", "rt13.see", "getenv=CUDA_VISIBLE_DEVICES"]

    def run_batch(self, cases, guard=True):
        """One process that starts a fresh one for every case."""
        argv = []
        for number, (allow, own) in enumerate(cases):
            write = "unsetenv=CUDA_VISIBLE_DEVICES"
            if own is not None:
                write = "setenv=CUDA_VISIBLE_DEVICES=" + own
            # Every other program writes it by itself, before its first call.
            outer, inner = ([write], []) if number % 2 == 0 else ([], [write])
            argv += ["setenv=CUDAGUARD_VISIBLE_DEVICES=" + allow] + outer
            argv += ["spawn=c%d" % number] + inner + self.STEPS + ["end"]
        result = box.run(argv, guard=guard, timeout=300)
        self.assertEqual(result.rc, 0, result)
        return result

    def check(self, result, number, allow, own):
        wanted, view = model(allow, own)
        said = "case %d: %s=%r %s=%r" % (number, "CUDAGUARD_VISIBLE_DEVICES", allow,
                                         "CUDA_VISIBLE_DEVICES", own)
        seen = {key: box.seen(result.answers["c%d.%s.see" % (number, key)])
                for key in ("cu", "nv", "rt12", "rt13")}
        self.assertEqual(seen, {"cu": wanted, "rt12": wanted, "rt13": wanted, "nv": view}, said)
        # Whatever the model may have wrong: never another GPU, never one twice.
        named = model_of_list(allow) or []
        for gpus in seen.values():
            if isinstance(gpus, list):
                self.assertLessEqual(set(gpus), set(named), said)
                self.assertEqual(len(set(gpus)), len(gpus), said)
        key = "c%d.CUDA_VISIBLE_DEVICES=" % number
        self.assertIn(key + ("(unset)" if own is None else own) + "\n", result.out, said)

    def cases(self):
        rng = random.Random(SEED)
        return [(some_list(rng), some_rewrite(rng)) for _ in range(CASES)]

    def test_model(self):
        cases = self.cases()
        for start in range(0, len(cases), BATCH):
            result = self.run_batch(cases[start:start + BATCH])
            for number, case in enumerate(cases[start:start + BATCH]):
                with self.subTest(seed=SEED, case=case):
                    self.check(result, number, *case)

    def test_the_cases_are_worth_it(self):
        """Every kind of outcome is there often enough; the model is not all errors."""
        kinds = {"error": 0, "none": 0, "all": 0, "part": 0, "order": 0}
        for allow, own in self.cases():
            view = model_of_list(allow)
            wanted = model(allow, own)[0]
            if view is None:
                kinds["error"] += 1
            elif wanted == "!100":
                kinds["none"] += 1
            elif wanted == view:
                kinds["all"] += 1
            else:
                kinds["part"] += len(wanted) < len(view)
                kinds["order"] += wanted != [gpu for gpu in view if gpu in wanted]
        for kind, number in kinds.items():
            self.assertGreaterEqual(number, CASES // 40, kinds)

    def test_without_the_guard(self):
        """The control: the lists hide nothing; the rewrites are read as the model says."""
        cases = self.cases()[:BATCH]
        result = self.run_batch(cases, guard=False)
        for number, (allow, own) in enumerate(cases):
            wanted = model_of_rewrite(own, box.FASTEST) or "!100"
            with self.subTest(allow=allow, own=own):
                self.assertEqual(box.seen(result.answers["c%d.cu.see" % number]), wanted)
                self.assertEqual(box.seen(result.answers["c%d.nv.see" % number]), ALL)
